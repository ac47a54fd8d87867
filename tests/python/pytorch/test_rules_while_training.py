"""Rules beside a PyTorch training: they fire in their step, stop it, and agree with a later check."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from trainings import mlp, train_mlp

import tensortap
from tensortap.rules import Rule


def sick_model() -> nn.Module:
    torch.manual_seed(0)
    return mlp(8, *[16] * 12, 1, activation=nn.Sigmoid)


def test_a_rule_stops_the_training_in_the_step_in_which_it_fires(tmp_path: Path) -> None:
    model = sick_model()
    done: list[int] = []
    hook = tensortap.watch(
        model,
        out_dir=tmp_path / "run",
        rules=["VanishingGradient:threshold=1e-7,actions=stop_training"],
    )
    with pytest.raises(tensortap.StopTraining) as stop:
        train_mlp(model, 50, after_step=lambda step, _: done.append(step))
    hook.close()
    finding = stop.value.finding
    assert finding.rule == "VanishingGradient"
    assert finding.tensor.startswith("gradient/Sequential_")
    assert finding.observed < finding.threshold == 1e-7
    assert finding.tensor in finding.message
    assert hook.findings()[0] == finding
    # No later step was recorded than the one in which the rule fired.
    assert tensortap.create_trial(tmp_path / "run").steps()[-1] == finding.step


def test_the_stop_comes_out_of_the_optimizer_once_the_border_is_known(tmp_path: Path) -> None:
    class FromStepThree(Rule):
        def invoke_at_step(self, step: int) -> bool:
            return step >= 3

    model = mlp(4, 8, 1)
    hook = tensortap.watch(
        model, out_dir=tmp_path / "run", rules=[(FromStepThree, ["stop_training"])]
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps_done = []

    def train() -> None:
        for step in range(10):
            model(torch.randn(2, 4)).sum().backward()
            optimizer.step()
            steps_done.append(step)

    with pytest.raises(tensortap.StopTraining):
        train()
    assert steps_done == [0, 1, 2]  # step 3 raised from optimizer.step()
    hook.close()
    assert tensortap.check(tmp_path / "run", [FromStepThree])[0] == hook.findings()[0]


def test_what_is_recorded_after_the_optimizer_stays_in_its_step(tmp_path: Path) -> None:
    model = mlp(4, 8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = tensortap.watch(model, out_dir=tmp_path / "run")
    losses = []
    for _ in range(5):
        loss = model(torch.randn(2, 4)).pow(2).mean()
        loss.backward()
        optimizer.step()
        hook.record_tensor_value("loss", loss)
        losses.append(loss.item())
    hook.close()
    steps, values = tensortap.create_trial(tmp_path / "run").tensor("loss_output_0").column("mean")
    assert list(steps) == [0, 1, 2, 3, 4]
    assert list(values) == losses


def test_findings_agree_in_process_and_afterwards(tmp_path: Path) -> None:
    rules = [
        "VanishingGradient:threshold=1e-6",
        "ExplodingTensor",
        "LossNotDecreasing:num_steps=5,diff_percent=5,mode=GLOBAL",
    ]
    model = sick_model()
    hook = tensortap.watch(model, loss=None, out_dir=tmp_path / "run", rules=rules)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(30):
        optimizer.zero_grad()
        loss = (model(torch.randn(4, 8)) - 1).pow(2).mean() * (float("nan") if step == 20 else 1.0)
        hook.record_tensor_value("loss", loss)
        loss.backward()
        if step != 20:
            optimizer.step()
    hook.close()
    live, later = hook.findings(), tensortap.check(str(tmp_path / "run"), rules)
    assert len(live) > 10
    assert {finding.rule for finding in live} == {
        "VanishingGradient",
        "ExplodingTensor",
        "LossNotDecreasing",
    }
    # As text: an observed NaN does not equal itself.
    assert sorted(finding.to_json() for finding in live) == sorted(
        finding.to_json() for finding in later
    )


def test_a_rule_that_sees_nothing_says_so(tmp_path: Path) -> None:
    model = mlp(4, 8, 1)
    hook = tensortap.watch(
        model, out_dir=tmp_path / "run", collections=["weights"], rules=["VanishingGradient"]
    )
    train_mlp(model, 3)
    hook.close()
    report = hook.rule_reports()[0]
    assert report.status == "NoData"
    assert "gradients" in report.message
    assert "NoData" in hook.summary()


def test_a_custom_rule_that_raises_ends_itself_and_not_the_training(tmp_path: Path) -> None:
    class Broken(Rule):
        def invoke_at_step(self, step: int) -> bool:
            raise ZeroDivisionError("no such luck")

    model = mlp(4, 8, 1)
    hook = tensortap.watch(model, out_dir=tmp_path / "run", rules=[Broken, "ExplodingTensor"])
    assert len(train_mlp(model, 4)) == 4
    hook.close()
    reports = {report.name: report for report in hook.rule_reports()}
    assert reports["Broken"].status == "Error"
    assert "no such luck" in reports["Broken"].message
    assert reports["ExplodingTensor"].status == "NoIssuesFound"
    assert tensortap.create_trial(tmp_path / "run").steps() == [0, 1, 2, 3]
