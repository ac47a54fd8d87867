"""Each training in examples/pathologies: its rule fires at the right tensor, and is silent at the healthy twin."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

import tensortap

PATHOLOGIES = Path(__file__).parents[3] / "examples" / "pathologies"
NAMES = sorted(p.stem for p in PATHOLOGIES.glob("*.py") if "PATHOLOGY = " in p.read_text())


@pytest.fixture(params=NAMES)
def pathology(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(PATHOLOGIES)
    pathology = importlib.import_module(request.param).PATHOLOGY
    if pathology.samples_machine:
        monkeypatch.delenv("TENSORTAP_SYSTEM_METRICS")
    yield pathology
    sys.modules.pop(request.param)


def test_the_illness_is_found_and_health_is_not(pathology, tmp_path: Path) -> None:
    healthy = pathology.run(tmp_path / "healthy", is_sick=False)
    assert [finding.message for finding in healthy.findings()] == []
    (report,) = healthy.rule_reports()
    assert report.status == "NoIssuesFound", report.message

    sick = pathology.run(tmp_path / "sick", is_sick=True)
    assert sick.rule_reports()[0].status == "IssuesFound"
    tensors = {finding.tensor for finding in sick.findings()}
    assert any(re.search(pathology.tensor, tensor) for tensor in tensors), tensors
    if (tmp_path / "sick" / "run.json").exists():  # one run, not several
        assert tensortap.check(tmp_path / "sick", [pathology.rule]) == sick.findings()
