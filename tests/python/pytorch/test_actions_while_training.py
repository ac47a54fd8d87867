"""Actions beside a PyTorch training: checkpoints, more detail, and requests of other processes."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from trainings import mlp

import tensortap
from tensortap import actions
from tensortap.rules import Rule


class FromStepThree(Rule):
    def invoke_at_step(self, step: int) -> bool:
        return step >= 3


def train(model: torch.nn.Module, steps: int, pause_s: float = 0.0) -> int:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 4)).pow(2).mean().backward()
        optimizer.step()
        if pause_s:
            time.sleep(pause_s)
    return steps


@pytest.mark.parametrize("save_interval", [1, 1_000_000])
def test_the_program_stops_a_training(tmp_path: Path, program: str, save_interval: int) -> None:
    model = mlp(4, 8, 1)
    run = tmp_path / "run"
    hook = tensortap.watch(
        model,
        out_dir=run,
        save_config=tensortap.SaveConfig(save_interval=save_interval),
        rules=["ExplodingTensor"],
    )
    train(model, 5)
    hook.flush()
    command = [program, "stop", str(run), "--reason", "enough for today", "--wait", "20"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as asking:
        with pytest.raises(tensortap.StopTraining, match="enough for today") as stop:
            train(model, 4000, pause_s=0.005)
        assert asking.communicate()[0] == "the training obeys (worker_0)\n"
    assert stop.value.finding.rule == ""
    assert "by a request" in str(stop.value)
    hook.close()
    (summary,) = hook.rule_job_summary()
    assert summary["RuleEvaluationStatus"] == "Stopped"
    assert tensortap.rules.rule_job_summary(run)[0]["RuleEvaluationStatus"] == "Stopped"


def test_a_following_check_stops_a_training(tmp_path: Path, program: str) -> None:
    model = mlp(4, 8, 1)
    run = tmp_path / "run"
    hook = tensortap.watch(model, out_dir=run, save_config=tensortap.SaveConfig(save_interval=1))
    train(model, 2)
    hook.flush()
    rule = "VanishingGradient:threshold=1e9,actions=stop_training"
    with subprocess.Popen(
        [program, "check", str(run), "--follow", "--rule", rule], stdout=subprocess.PIPE, text=True
    ) as checking:
        with pytest.raises(tensortap.StopTraining) as stop:
            train(model, 4000, pause_s=0.005)
        hook.close()
        out = checking.communicate(timeout=30)[0]
    assert stop.value.finding.rule == "VanishingGradient"
    assert stop.value.finding.step == 0
    assert "asked the training to stop" in out


def test_a_checkpoint_is_saved_before_the_stop(tmp_path: Path) -> None:
    model = mlp(4, 8, 1)
    saved: list[Any] = []

    def save(finding: Any) -> None:
        saved.append(finding.step)
        torch.save(model.state_dict(), tmp_path / "checkpoint.pt")

    rule = (FromStepThree, [actions.SaveCheckpoint(save), actions.StopTraining()])
    hook = tensortap.watch(
        model,
        out_dir=tmp_path / "run",
        save_config=tensortap.SaveConfig(save_interval=1),
        rules=[rule],
    )
    with pytest.raises(tensortap.StopTraining):
        train(model, 10)
    hook.close()
    assert saved == [3]
    state = torch.load(tmp_path / "checkpoint.pt")
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    lines = (tmp_path / "run/rules/FromStepThree.actions.jsonl").read_text().splitlines()
    assert {json.loads(line)["action"] for line in lines} == {"save_checkpoint", "stop_training"}


def test_a_checkpoint_that_fails_harms_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(finding: Any) -> None:
        raise OSError("no room")

    model = mlp(4, 8, 1)
    hook = tensortap.watch(
        model,
        out_dir=tmp_path / "run",
        save_config=tensortap.SaveConfig(save_interval=1),
        rules=[(FromStepThree, [actions.SaveCheckpoint(fail)])],
    )
    assert train(model, 6) == 6
    hook.close()
    assert "action save_checkpoint of rule FromStepThree failed: OSError: no room" in caplog.text


def test_capture_more_records_collections_that_were_not_saved(tmp_path: Path) -> None:
    model = mlp(4, 8, 1)
    more = actions.CaptureMore(steps=2, collections=["gradients"], raw=True, cooldown=1000)
    hook = tensortap.watch(
        model,
        out_dir=tmp_path / "run",
        collections=["weights"],
        save_config=tensortap.SaveConfig(save_interval=4),
        rules=[(FromStepThree, [more])],
    )
    train(model, 20)
    hook.close()
    trial = tensortap.create_trial(tmp_path / "run")
    (gradient, *_) = trial.tensor_names(collection="gradients")
    weight = trial.tensor_names(collection="weights")[0]
    assert trial.tensor(weight).steps() == [0, 4, 8, 12, 16]
    assert trial.tensor(gradient).steps() == [5, 6]
    assert trial.tensor(gradient).value(5).shape
