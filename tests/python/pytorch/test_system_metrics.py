"""What the machine did, in the run of a PyTorch training."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from trainings import mlp

import tensortap as tt
from tensortap.exceptions import InvalidArgumentError
from tensortap.rules import ProfilerReport


@pytest.fixture
def _sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENSORTAP_SYSTEM_METRICS")


def train_for(seconds: float, out_dir: Path, **options: object) -> tt.Trial:
    model = mlp(8, 16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    end = time.monotonic() + seconds
    with tt.watch(model, optimizer, out_dir=out_dir, **options):
        while time.monotonic() < end:
            model(torch.randn(256, 8)).mean().backward()
            optimizer.step()
            time.sleep(0.005)
    return tt.create_trial(out_dir)


@pytest.mark.usefixtures("_sampled")
def test_a_hook_samples_the_machine_by_default(tmp_path: Path) -> None:
    began = time.time()
    trial = train_for(0.8, tmp_path / "run")
    names = trial.tensor_names(collection="system")
    assert {"system/time", "system/cpu_utilization", "system/memory_used"} <= set(names)
    steps = trial.tensor("system/time").steps()
    times = np.concatenate([np.atleast_1d(trial.tensor("system/time").value(s)) for s in steps])
    assert times.dtype == np.float64
    assert np.all(np.diff(times) > 0.2)
    assert began < times[0] < began + 10
    cores = trial.tensor("system/cpu_utilization").value(steps[-1])
    assert cores.dtype == np.float32
    assert cores.ndim == 2
    assert np.nanmin(cores) >= 0
    assert np.nanmax(cores) <= 100
    resident = trial.tensor("system/process_memory").column("max")[1]
    assert 1e7 < resident[-1] < 1e12
    # The metrics join no step that would not be there without them.
    assert trial.steps() == trial.tensor("Sequential_0.weight").steps()


@pytest.mark.usefixtures("_sampled")
@pytest.mark.parametrize("switch", ["argument", "environment", "dry run"])
def test_the_metrics_can_be_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switch: str
) -> None:
    if switch == "environment":
        monkeypatch.setenv("TENSORTAP_SYSTEM_METRICS", "0")
    hook = tt.watch(
        mlp(4, 1),
        out_dir=tmp_path / "run",
        system_metrics=switch != "argument",
        dry_run=switch == "dry run",
    )
    assert "system" not in hook.get_collections()
    hook.close()


@pytest.mark.usefixtures("_sampled")
def test_an_interval_out_of_range_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="100 to 60000 ms, not 50"):
        tt.watch(mlp(4, 1), out_dir=tmp_path / "run", system_interval=0.05)


@pytest.mark.usefixtures("_sampled")
def test_rules_over_all_tensors_leave_the_machine_alone(tmp_path: Path) -> None:
    # Waiting times and idle disks are zero; that is no illness of the model.
    train_for(0.4, tmp_path / "run", rules=["ExplodingTensor"])
    assert tt.check(tmp_path / "run", ["ExplodingTensor"]) == []


@pytest.mark.usefixtures("_sampled")
def test_the_system_rules_are_silent_over_a_healthy_training_without_a_gpu(tmp_path: Path) -> None:
    rules = ["BatchSize", "CPUBottleneck", "Dataloader", "GPUMemoryIncrease", "IOBottleneck"]
    rules += ["LoadBalancing", "LowGPUUtilization", "MaxInitializationTime", "ProfilerReport"]
    rules += ["OverallSystemUsage", "OverallFrameworkMetrics"]
    train_for(0.8, tmp_path / "run", rules=rules)
    assert tt.check(tmp_path / "run", rules) == []
    statuses = {}
    for path in (tmp_path / "run" / "rules").glob("*.json"):
        status = json.loads(path.read_text())
        statuses[status["name"]] = (status["status"], status["report"]["message"])
    for name in ("BatchSize", "CPUBottleneck", "LowGPUUtilization", "LoadBalancing"):
        assert statuses[name] == ("NoData", "not applicable: no GPU metrics in the run")
    assert statuses["MaxInitializationTime"][0] == "NoIssuesFound"
    assert "cpu_utilization: max" in statuses["OverallSystemUsage"][1]
    assert "other" in statuses["OverallFrameworkMetrics"][1]


def test_the_report_takes_parameters_of_its_rules() -> None:
    rule = ProfilerReport(StepOutlier_n_outliers=3)
    assert str(rule) == "ProfilerReport:StepOutlier_n_outliers=3"
