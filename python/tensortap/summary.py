"""A run in a few readable lines: what was recorded, how the losses went, what the rules found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tensortap.modes import ModeKeys
from tensortap.trial import Trial, create_trial

if TYPE_CHECKING:
    from tensortap import _core


def summarize(run: str | Trial, reports: Sequence[_core.RuleReport] = ()) -> str:
    """Describe a run.

    Parameters
    ----------
    run
        Directory of the run, or an open trial.
    reports
        Rule reports, as ``hook.rule_reports()`` or ``tensortap.check(...).reports`` give them.

    Returns
    -------
    str
        Several lines without a trailing line break.
    """
    trial = create_trial(run) if isinstance(run, str) else run
    lines = [f"Run {trial.path}", *_counts(trial), *_losses(trial)]
    for report in reports:
        lines.extend(_rule(report))
    return "\n".join(lines)


def _counts(trial: Trial) -> list[str]:
    steps = trial.steps()
    modes = ", ".join(f"{len(trial.steps(mode))} {mode.name}" for mode in trial.modes())
    groups = {
        name: len(trial.tensor_names(collection=name))
        for name in sorted(trial.collections())
        if name not in ("all", "default")
    }
    listed = ", ".join(f"{count} {name}" for name, count in groups.items() if count)
    first_last = f" ({steps[0]} to {steps[-1]})" if steps else ""
    return [
        f"  steps     {len(steps)}{first_last}: {modes or 'none'}",
        f"  tensors   {len(trial.tensor_names())}: {listed or 'none'}",
    ]


def _losses(trial: Trial) -> list[str]:
    lines = []
    for name in trial.tensor_names(collection="losses"):
        steps, values = trial.tensor(name).column("mean")
        if len(steps):
            lines.append(
                f"  loss      {name}: {values[0]:.4g} at step {steps[0]}, {values[-1]:.4g} at step {steps[-1]}"
            )
    return lines


def _rule(report: _core.RuleReport) -> list[str]:
    lines = [f"  rule      {report.name}: {report.status}, {report.checked_steps} steps checked"]
    if report.message:
        lines.append(f"            {report.message}")
    finding = report.first_finding
    if finding is not None:
        mode = ModeKeys(finding.mode).name
        lines += [
            f"            first of {report.finding_count} findings, "
            f"at step {finding.step} ({mode} {finding.mode_step}):",
            f"            tensor     {finding.tensor or '-'}",
            f"            observed   {finding.statistic} = {finding.observed:.4g}",
            f"            threshold  {finding.threshold:.4g}",
            f"            {finding.message}",
        ]
    return lines
