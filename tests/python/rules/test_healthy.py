"""Healthy trainings under all rules: whatever fires is a false alarm."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[3] / "examples"
STEPS = 150


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
    assert [f"{finding.rule}: {finding.message}" for finding in hook.findings()] == []
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
