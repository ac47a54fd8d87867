"""How rules fared, in the words of SageMaker's ``rule_job_summary()``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any

from tensortap import _core
from tensortap.exceptions import RunNotFoundError
from tensortap.trial import Trial

# Of StatusDetails, in SageMaker's API.
_MAX_DETAILS = 1024


def rule_job_summary(run: str | os.PathLike[str] | Trial) -> list[dict[str, Any]]:
    """Tell how the rules of a training fare, or fared, from what they left in the run.

    Parameters
    ----------
    run : str, path or Trial

    Returns
    -------
    list of dict
        RuleConfigurationName; RuleEvaluationJobArn (where the status stands, since no job of AWS is behind it);
        RuleEvaluationStatus: "InProgress", "NoIssuesFound", "IssuesFound", "Error" or "Stopped"; StatusDetails, at
        most 1024 characters, "" when there is nothing to say; LastModifiedTime, a datetime in UTC. A rule that
        matched no tensor is "NoIssuesFound" with a warning in its details: SageMaker has no word for it.

    Raises
    ------
    RunNotFoundError
        There is no such directory.
    """
    path = run.path if isinstance(run, Trial) else os.path.expanduser(os.fspath(run))
    if "://" not in path and not path.startswith("mem:") and not os.path.isdir(path):
        raise RunNotFoundError(f"there is no run at {path}")
    return [
        _summarize(
            name=rule["name"],
            status=rule["status"],
            message=rule["message"],
            first=(rule["first_step"], rule["first_message"]),
            count=rule["finding_count"],
            modified=datetime.fromtimestamp(rule["updated_ns"] / 1e9, timezone.utc),
            run=path,
        )
        for rule in _core.rule_statuses(path)
    ]


def summarize_reports(reports: Iterable[_core.RuleReport], run: str) -> list[dict[str, Any]]:
    """Give the same for rules that are at work in this process."""
    now = datetime.now(timezone.utc)
    return [
        _summarize(
            name=report.name,
            status=report.status,
            message=report.message,
            first=(None, "")
            if report.first_finding is None
            else (report.first_finding.step, report.first_finding.message),
            count=report.finding_count,
            modified=now,
            run=run,
        )
        for report in reports
    ]


def _summarize(
    *,
    name: str,
    status: str,
    message: str,
    first: tuple[int | None, str],
    count: int,
    modified: datetime,
    run: str,
) -> dict[str, Any]:
    details = message
    if status == "IssuesFound":
        step, sentence = first
        details = f"{count} findings"
        if step is not None:
            details = f"RuleEvaluationConditionMet: rule {name} fired at step {step}: {sentence} ({details})"
    elif status == "NoData":
        status, details = "NoIssuesFound", f"WARNING: the rule checked nothing: {message}"
    return {
        "RuleConfigurationName": name,
        "RuleEvaluationJobArn": f"{run}/rules/{name}.json",
        "RuleEvaluationStatus": status,
        "StatusDetails": details[:_MAX_DETAILS],
        "LastModifiedTime": modified,
    }
