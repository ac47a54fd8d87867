"""Models that are compiled or scripted, before and after a hook is attached."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from oracle import fit, hooks_on, open_hook, train_twice
from torch import nn
from trainings import mlp

import tensortap.pytorch as smd


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def make() -> nn.Module:
    torch.compiler.reset()
    return mlp(4, 8, 1)


GRADIENT = "gradient/Sequential_0.weight"


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("wanted", ["gradients", "all"])
@pytest.mark.parametrize("attached", ["before", "after", "to_compiled", "late"])
def test_a_compiled_model_trains_the_same_and_has_its_gradients(
    tmp_path: Path, backend: str, wanted: str, attached: str
) -> None:
    gradients = []

    def train(model: nn.Module, hook: smd.Hook | None) -> list[torch.Tensor]:
        gradients.clear()
        if hook is not None and attached == "before":
            hook.register_module(model)
        compiled = torch.compile(model, backend=backend)
        if hook is not None and attached == "after":
            hook.register_module(model)
        if hook is not None and attached == "to_compiled":
            hook.register_module(compiled)
        losses = fit(compiled, 1)
        if hook is not None and attached == "late":
            hook.register_module(model)
        return losses + fit(
            compiled, 3, before_step=lambda step: gradients.append(model[0].weight.grad.clone())
        )

    run = train_twice(
        tmp_path / "run",
        make,
        train,
        register=lambda hook, made: None,
        include_collections=["weights", "gradients", wanted],
    )
    # Compiled code that has never heard of the hook stays blind: then steps begin at the optimizer's second step.
    count = 2 if attached == "late" else 4
    assert run.trial.steps() == list(range(count))
    assert run.steps(GRADIENT) == run.steps("Sequential_0.weight") == list(range(count))
    for step in range(count):
        offset = 1 if attached == "late" else -1
        if step + offset >= 0:
            np.testing.assert_array_equal(run.value(GRADIENT, step), gradients[step + offset])


def test_inductor_trains_the_same(tmp_path: Path) -> None:
    def train(model: nn.Module, hook: smd.Hook | None) -> list[torch.Tensor]:
        return fit(torch.compile(model), 3)

    run = train_twice(tmp_path / "run", make, train, include_collections=["weights", "gradients"])
    assert run.steps(GRADIENT) == [0, 1, 2]


@pytest.mark.parametrize("wanted", [["weights", "gradients", "losses"], ["all"]])
def test_a_full_graph_stays_whole(tmp_path: Path, wanted: list[str]) -> None:
    """`fullgraph=True` turns every graph break into an error."""

    def train(model: nn.Module, hook: smd.Hook | None) -> list[torch.Tensor]:
        return fit(torch.compile(model, backend="aot_eager", fullgraph=True), 3)

    run = train_twice(tmp_path / "run", make, train, include_collections=wanted)
    assert run.trial.steps() == [0, 1, 2]
    assert run.steps(GRADIENT) == [0, 1, 2]


def test_the_graph_is_not_compiled_again_and_again(tmp_path: Path) -> None:
    """Hooks that come and go with the steps that are due must not change what the compiler guards on."""
    compilations = 0

    def counting(module: torch.fx.GraphModule, inputs: Any) -> Any:
        nonlocal compilations
        compilations += 1
        return module.forward

    model = mlp(4, 8, 1)
    hook = open_hook(tmp_path / "run", save_all=True, save_config=smd.SaveConfig(save_interval=3))
    hook.register_module(model)
    compiled = torch.compile(model, backend=counting)
    fit(compiled, 4)
    after_four = compilations
    fit(compiled, 12)
    hook.close()
    assert after_four <= 3
    assert compilations == after_four
    assert smd.create_trial(tmp_path / "run").steps() == [0, 3, 6, 9, 12, 15]


def test_losses_and_modes_of_a_compiled_training(tmp_path: Path) -> None:
    """What a script says between the forward pass and the optimizer belongs to the step of that pass."""
    losses: dict[str, list[float]] = {"train": [], "eval": []}

    def train(model: nn.Module, hook: smd.Hook | None) -> list[torch.Tensor]:
        compiled = torch.compile(model, backend="eager")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses.update(train=[], eval=[])
        for _ in range(2):
            for kind, mode in (("train", smd.modes.TRAIN), ("eval", smd.modes.EVAL)):
                if hook is not None:
                    hook.set_mode(mode)
                for _ in range(3):
                    loss = compiled(torch.randn(5, 4)).pow(2).mean()
                    losses[kind].append(loss.item())
                    if hook is not None:
                        hook.record_tensor_value("loss", loss)
                    if kind == "train":
                        optimizer.zero_grad()
                        loss.backward()
                        optimizer.step()
        return [*losses["train"], *losses["eval"]]

    run = train_twice(tmp_path / "run", make, train)
    loss = run.trial.tensor("loss_output_0")
    for kind, mode in (("train", smd.modes.TRAIN), ("eval", smd.modes.EVAL)):
        assert run.trial.steps(mode=mode) == list(range(6))
        values = loss.values(mode=mode)
        assert [float(values[step]) for step in range(6)] == pytest.approx(losses[kind])
    gradient = run.trial.tensor(GRADIENT)
    assert gradient.steps(mode=smd.modes.TRAIN) == list(range(6))
    assert gradient.steps(mode=smd.modes.EVAL) == []


def test_a_compiled_part_leaves_the_rest_visible(tmp_path: Path) -> None:
    def make() -> nn.Module:
        torch.compiler.reset()
        model = nn.Sequential(nn.Linear(4, 8), mlp(8, 8, 8), nn.Linear(8, 1))
        model[1].compile(backend="eager")
        return model

    run = train_twice(tmp_path / "run", make, lambda model, hook: fit(model, 3))
    assert run.trial.steps() == [0, 1, 2]
    assert run.steps("0_output_0") == run.steps("2_output_0") == [0, 1, 2]
    assert run.steps("gradient/Sequential_1.0.weight") == [0, 1, 2]


class Scripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x)) if x.sum() > 1000.0 else self.layer(x)


@pytest.fixture
def quiet_script() -> Iterator[None]:
    """TorchScript announces its end at every call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        yield


@pytest.mark.usefixtures("quiet_script")
@pytest.mark.parametrize("how", ["script", "trace"])
def test_a_scripted_model_has_weights_gradients_and_outputs(tmp_path: Path, how: str) -> None:
    def make() -> nn.Module:
        model = Scripted()
        return (
            torch.jit.script(model) if how == "script" else torch.jit.trace(model, torch.ones(5, 4))
        )

    run = train_twice(tmp_path / "run", make, lambda model, hook: fit(model, 3))
    assert run.trial.steps() == [0, 1, 2]
    prefix = type(run.made).__name__
    assert run.steps(f"gradient/{prefix}_layer.weight") == [0, 1, 2]
    assert run.steps(f"{prefix}_layer.weight") == [0, 1, 2]
    # A scripted module takes no hooks, a traced one does.
    assert run.steps(f"{prefix}_output_0") == ([] if how == "script" else [0, 1, 2])


@pytest.mark.usefixtures("quiet_script")
def test_a_hooked_model_can_be_scripted_traced_and_exported(tmp_path: Path) -> None:
    model = Scripted()
    plain = mlp(4, 8, 1)
    before = hooks_on(model, plain)
    hook = open_hook(tmp_path / "run")
    hook.register_module(model)
    hook.register_module(plain)
    x = torch.ones(2, 4)
    fit(model, 2)
    expected, also_expected = model(x), plain(x)
    scripted = torch.jit.script(model)
    torch.testing.assert_close(scripted(x), expected)
    torch.testing.assert_close(torch.jit.trace(plain, x)(x), also_expected)
    exported = torch.export.export(plain, (x,)).module()
    torch.testing.assert_close(exported(x), also_expected)
    assert type(exported).__name__ == "GraphModule"
    hook.close()
    # Only the training's own calls were steps.
    assert hooks_on(model, plain) == before
    assert hook.fault_count == 0
