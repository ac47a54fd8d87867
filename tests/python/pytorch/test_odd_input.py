"""Odd models and trainings: nothing harms them, and nothing is missing in silence."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from oracle import every_step, fit, hooks_on, open_hook, train_twice
from torch import nn

import tensortap.pytorch as smd


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))


class Unwilling:
    """Answers every question with an error, but for what it holds."""

    def __init__(self, value: torch.Tensor) -> None:
        self.value = value

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"do not ask for {name}")


class LazyMapping(dict[str, Any]):
    def values(self) -> Any:
        raise KeyError("not computed yet")

    items = values


def holds_itself(value: torch.Tensor) -> list[Any]:
    answer: list[Any] = [value]
    answer.append(answer)
    return answer


def deep(value: torch.Tensor) -> list[Any]:
    answer: list[Any] = [value]
    for _ in range(5000):
        answer = [answer]
    return answer


class Inner(nn.Module):
    def __init__(self, wrap: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)
        self.wrap = wrap
        self.result: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> Any:
        self.result = self.linear(x)
        return self.wrap(self.result)


@pytest.mark.parametrize(
    ("wrap", "outputs"),
    [
        (Unwilling, []),
        (lambda value: LazyMapping(a=value), []),
        (holds_itself, ["inner_output_0"]),
        (deep, []),
        (lambda value: (part for part in [value]), []),
        (
            lambda value: {"a": [value, None, "text", 3], "b": value * 2},
            ["inner_output_0", "inner_output_1"],
        ),
    ],
)
def test_what_a_module_returns_may_be_anything(
    tmp_path: Path, wrap: Callable[[torch.Tensor], Any], outputs: list[str]
) -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner(wrap)

        def forward(self, x: torch.Tensor) -> torch.Tensor | None:
            self.inner(x)
            return self.inner.result

    run = train_twice(tmp_path / "inner", Outer, lambda model, _: fit(model, 2))
    names = run.trial.tensor_names()
    assert [name for name in names if name.startswith("inner_output")] == outputs
    assert run.steps("gradient/Outer_inner.linear.weight") == [0, 1]


def test_a_model_may_return_an_object_that_cannot_be_asked_for_its_loss(tmp_path: Path) -> None:
    def train(model: nn.Module, _: object) -> list[torch.Tensor]:
        losses = []
        for _ in range(2):
            loss = model(torch.ones(1, 4)).value.sum()
            loss.backward()
            losses.append(loss.detach())
        return losses

    run = train_twice(tmp_path / "run", lambda: Inner(Unwilling), train)
    assert run.steps("linear_output_0") == [0, 1]


def test_names_that_no_text_could_hold_are_written_out(tmp_path: Path) -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name in ("a\udc80", "ü\n", "a/b", "x" * 3000):
                self.add_module(name, nn.Linear(4, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for module in self.children():
                x = module(x)
            return x

    run = train_twice(tmp_path / "run", Named, lambda model, _: fit(model, 1))
    for name in ("a\\udc80", "ü\n", "a/b", "x" * 3000):
        assert run.steps(f"{name}_output_0") == run.steps(f"gradient/Named_{name}.bias") == [0]


def test_an_optimizer_made_anew_takes_over_the_name(tmp_path: Path) -> None:
    def train(model: nn.Module, _: object) -> list[torch.Tensor]:
        losses = []
        for _ in range(3):
            losses += fit(model, 2, optimizer=torch.optim.Adam(model.parameters()))
        return losses

    run = train_twice(tmp_path / "run", small, train)
    assert run.steps("learning_rate/Adam/0") == [0, 1, 2, 3, 4, 5]
    assert "learning_rate/Adam_1/0" not in run.trial.tensor_names()


def clear_hooks(model: nn.Module) -> None:
    for module in model.modules():
        for table in (module._forward_hooks, module._forward_pre_hooks):
            table.clear()


def test_hooks_that_somebody_takes_off_are_put_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def train(model: nn.Module, _: object) -> list[torch.Tensor]:
        losses = fit(model, 2)
        clear_hooks(model)
        return losses + fit(model, 3)

    run = train_twice(tmp_path / "run", small, train)
    # The first step after it is lost: only its optimizer tells of it.
    assert run.steps("0_output_0") == run.steps("gradient/Sequential_0.weight") == [0, 1, 2, 3]
    assert [record.message for record in caplog.records if "taken" in record.message] == [
        "somebody has taken Tensortap's hooks off the model (or all that it had): until they were put back at an "
        "optimizer's step, or close(), nothing was recorded"
    ]


def test_hooks_taken_off_between_steps_that_are_due_are_missed_at_close(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = small()
    with open_hook(tmp_path / "run", save_config=smd.SaveConfig(save_interval=100)) as hook:
        hook.register_module(model)
        fit(model, 3)
        clear_hooks(model)
        fit(model, 200)
    assert "somebody has taken Tensortap's hooks off" in caplog.text
    assert hooks_on(model) == []


def test_a_training_without_gradients_in_the_parameters_is_told_apart(tmp_path: Path) -> None:
    model = small()
    hook = open_hook(tmp_path / "run")
    hook.register_module(model)
    for _ in range(2):
        gradients = torch.autograd.grad(model(torch.ones(2, 4)).sum(), list(model.parameters()))
        assert all(gradient is not None for gradient in gradients)
    assert hook.coverage().has_no_gradient
    assert "no gradient of any parameter was seen" in str(hook.coverage())
    fit(model, 1)
    assert not hook.coverage().has_no_gradient
    hook.close()


def test_an_optimizer_of_another_kind_shows_its_gradients(tmp_path: Path) -> None:
    def train(model: nn.Module, _: object) -> list[torch.Tensor]:
        losses = []
        for _ in range(2):
            loss = model(torch.randn(2, 4)).pow(2).mean()
            loss.backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    assert parameter.grad is not None
                    parameter -= 0.1 * parameter.grad
                    parameter.grad = None
            losses.append(loss.detach())
        return losses

    run = train_twice(tmp_path / "run", small, train)
    assert run.steps("gradient/Sequential_0.weight") == [0, 1]
    assert not run.hook.coverage().has_no_gradient


def test_a_mode_changed_before_the_optimizer_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def train(model: nn.Module, hook: smd.Hook | None) -> list[torch.Tensor]:
        def evaluate(_: int) -> None:
            if hook is not None:
                hook.set_mode(smd.modes.EVAL)
                hook.set_mode(smd.modes.TRAIN)

        return fit(model, 3, before_step=evaluate)

    train_twice(tmp_path / "run", small, train)
    assert [record.message for record in caplog.records] == [
        "an optimizer's step came when the step of the run was over (after set_mode, or after another optimizer's "
        "step): what belongs to it is not recorded"
    ]


@pytest.mark.parametrize("disaster", [shutil.rmtree, lambda path: path.rename(f"{path}.moved")])
def test_a_run_deleted_while_training_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, disaster: Callable[[Path], Any]
) -> None:
    model = small()
    hook = open_hook(tmp_path / "run")
    hook.register_module(model)
    fit(model, 2)
    assert hook.flush()
    disaster(tmp_path / "run")
    fit(model, 2)
    assert "there is no run here" in hook.summary()
    hook.close()
    lost = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert lost == [
        f"the directory of the run is gone, and with it what was recorded until now: {tmp_path / 'run'}"
    ]


def test_a_lost_run_is_told_while_the_training_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensortap._hook._LOOK_INTERVAL", 0.0)
    model = small()
    hook = open_hook(tmp_path / "run")
    hook.register_module(model)
    fit(model, 2)
    hook.flush()
    assert caplog.text == ""
    shutil.rmtree(tmp_path / "run")
    fit(model, 3)
    assert caplog.text.count("the directory of the run is gone") == 1
    hook.close()


def test_an_optimizer_for_each_parameter_within_the_backward_pass(tmp_path: Path) -> None:
    def train(model: nn.Module, _: object) -> list[torch.Tensor]:
        optimizers = {p: torch.optim.SGD([p], lr=0.01) for p in model.parameters()}

        def update(parameter: torch.Tensor) -> None:
            optimizers[parameter].step()
            optimizers[parameter].zero_grad()

        handles = [p.register_post_accumulate_grad_hook(update) for p in model.parameters()]
        losses = []
        for _ in range(3):
            loss = model(torch.randn(5, 4)).pow(2).mean()
            loss.backward()
            losses.append(loss.detach())
        for handle in handles:
            handle.remove()
        return losses

    run = train_twice(tmp_path / "run", small, train, **every_step())
    for name in ("0.weight", "0.bias", "2.weight", "2.bias"):
        assert run.steps(f"gradient/Sequential_{name}") == [0, 1, 2]
