"""Healthy trainings under all rules: whatever fires is a false alarm."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[3] / "examples"
STEPS = 150
# What a machine that runs tests does meanwhile is no alarm of the training's.
RULES_OF_TIME = ("StepOutlier", "ThroughputRegression", "ProfilerReport", "Dataloader")


@pytest.fixture
def healthy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    threads = torch.get_num_threads()
    import healthy

    yield healthy
    sys.modules.pop("healthy")
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", ["mlp", "cnn", "gpt"])
def test_no_rule_fires_at_a_healthy_training(healthy, name: str, tmp_path: Path) -> None:
    hook = healthy.train(name, tmp_path / "run", healthy.all_rules(), STEPS)
    alarms = [f"{finding.rule}: {finding.message}" for finding in hook.findings()]
    assert [alarm for alarm in alarms if not alarm.startswith(RULES_OF_TIME)] == []
    statuses = {report.name: report.status for report in hook.rule_reports()}
    assert "Error" not in statuses.values(), statuses
    for rule in (
        "LossSpike",
        "GradNormSpike",
        "NonFiniteOrigin",
        "LRScheduleFault",
        "RepeatedBatches",
    ):
        assert statuses[rule] == "NoIssuesFound"
    assert statuses["AttentionLogitGrowth"] == ("NoIssuesFound" if name == "gpt" else "NoData")
