"""Rules: the built-in ones, and `Rule` to write one's own.

A built-in rule is an attribute of this module, made from the engine's own description of it:
``rules.VanishingGradient(threshold=1e-7, actions=["stop_training"])`` gives a `RuleSpec`, for ``watch(rules=[...])``,
``Hook(rules=[...])`` and `check`. As text it is ``"VanishingGradient:threshold=1e-7,actions=stop_training"``.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable
from typing import Any

from tensortap import _core
from tensortap.actions import parse_actions
from tensortap.exceptions import InvalidTypeError
from tensortap.rules.builtin import RuleSpec, constructors, describe, names
from tensortap.rules.custom import (
    CustomRule,
    Rule,
    bind_rule,
    invoke_rule,
    make_checker,
    no_refresh,
    refresh,
)
from tensortap.rules.status import rule_job_summary
from tensortap.trial import Trial, create_trial

__all__ = [
    "CheckResult",
    "CustomRule",
    "Rule",
    "RuleSpec",
    "bind_rule",
    "check",
    "describe",
    "invoke_rule",
    "make_checker",
    "names",
    "no_refresh",
    "parse_rule",
    "refresh",
    "rule_job_summary",
]

_logger = logging.getLogger("tensortap")


def parse_rule(rule: object) -> RuleSpec | CustomRule:
    """Take anything that a list of rules may hold.

    Parameters
    ----------
    rule
        A `RuleSpec`, its text, a `Rule` subclass, a function that makes a rule of a trial, a rule made with
        ``base_trial=None``, or a pair of one of the last three and a list of actions.

    Raises
    ------
    InvalidTypeError
        Something else.
    NotFoundError, InvalidArgumentError
        As `RuleSpec.make`.
    """
    if isinstance(rule, (RuleSpec, CustomRule)):
        return rule
    if isinstance(rule, str):
        return RuleSpec.parse(rule)
    if isinstance(rule, tuple) and len(rule) == 2 and not isinstance(rule[0], str):
        parsed = parse_rule(rule[0])
        actions = tuple(dict.fromkeys((*parsed.actions, *parse_actions(rule[1]))))
        if isinstance(parsed, CustomRule):
            return CustomRule(parsed.rule, actions)
        return RuleSpec(parsed.name, parsed.parameters, actions)
    if isinstance(rule, Rule):
        return CustomRule(rule, tuple(rule.actions))
    name = getattr(rule, "__name__", "")
    if name in constructors and rule is constructors[name]:
        return RuleSpec.make(name)  # rules.VanishingGradient, without the brackets
    if callable(rule):
        return CustomRule(rule)
    raise InvalidTypeError(
        "a rule is a built-in one (rules.VanishingGradient(), 'VanishingGradient:threshold=1e-7'), a subclass of "
        f"Rule, or a function that makes one of a trial; not {rule!r}"
    )


class CheckResult(list[_core.Finding]):
    """What `check` found, in the order of steps; `reports` says how each rule fared."""

    def __init__(
        self,
        findings: Iterable[_core.Finding],
        reports: list[_core.RuleReport],
        saved_steps: Iterable[int] = (),
    ) -> None:
        super().__init__(findings)
        self.reports = reports
        self._saved_steps = list(saved_steps)

    def diagnoses(self) -> list[dict[str, Any]]:
        """Join the findings into diagnoses, the worst first: what ``tensortap diagnose RUN --json`` gives.

        Returns
        -------
        list of dict
            Each with ``title``, ``severity``, ``first_step``, ``last_step``, ``explanation``, ``causes``,
            ``next_step`` and ``symptoms`` (what each rule saw, causes before what they cause).
        """
        return [json.loads(text) for text in _core.diagnose(list(self), self._saved_steps)]


def check(
    run: str | os.PathLike[str] | Trial,
    rules: Iterable[object],
    start_step: int | None = None,
    end_step: int | None = None,
) -> CheckResult:
    """Look through a recorded run with rules, as they would have judged it while it was trained.

    Parameters
    ----------
    run : str, path or Trial
    rules : list
        Built-in ones, their text, custom ones: what `parse_rule` takes.
    start_step, end_step : int, optional
        Global steps [start, end).

    Returns
    -------
    CheckResult
        A list of `Finding`; its `reports` has the status of each rule. A rule that matched no tensor, or
        that raised, is logged as a warning: silence would look like health.

    Raises
    ------
    RunNotFoundError, NotFoundError, InvalidArgumentError
        No run; an unknown rule; an unknown or unparsable parameter.
    """
    if isinstance(rules, str):
        rules = [rules]
    parsed = [parse_rule(rule) for rule in rules]
    trial = run if isinstance(run, Trial) else create_trial(run)
    trial.maybe_refresh()
    specs = [rule.to_core() for rule in parsed if isinstance(rule, RuleSpec)]
    custom = [bind_rule(rule, trial) for rule in parsed if isinstance(rule, CustomRule)]
    findings, reports = _core.check_trial(
        trial._core,
        specs,
        start_step,
        end_step,
        python_rules=[(rule.rule_name, make_checker(rule)) for rule in custom],
    )
    for report in reports:
        if report.status in ("NoData", "Error"):
            _logger.warning("rule %s: %s", report.name, report.message)
    return CheckResult(sorted(findings, key=lambda finding: finding.step), reports, trial.steps())


def __getattr__(name: str) -> Callable[..., RuleSpec]:
    if name in constructors:
        return constructors[name]
    raise AttributeError(f"no rule is called '{name}': {', '.join(constructors)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *constructors])
