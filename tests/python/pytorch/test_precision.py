"""Reduced precision: parameters in bfloat16, autocast, and what a half-precision training overflows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from oracle import bits_of, fit, open_hook, train_twice
from torch import nn
from trainings import mlp

import tensortap.pytorch as smd


def test_bfloat16_parameters_round_trip_to_the_bit(tmp_path: Path) -> None:
    weights: list[torch.Tensor] = []
    gradients: list[torch.Tensor] = []

    def train(model: nn.Module, hook: smd.Hook | None) -> list[torch.Tensor]:
        weights.clear()
        gradients.clear()

        def note(step: int) -> None:
            weights.append(model[0].weight.detach().clone())
            gradients.append(model[0].weight.grad.clone())

        return fit(
            model, 3, batch=lambda: torch.randn(5, 4, dtype=torch.bfloat16), before_step=note
        )

    run = train_twice(tmp_path / "run", lambda: mlp(4, 8, 1).to(torch.bfloat16), train)
    for name, expected in {
        "Sequential_0.weight": weights,
        "gradient/Sequential_0.weight": gradients,
    }.items():
        tensor = run.trial.tensor(name)
        for step in range(3):
            value = torch.from_numpy(np.asarray(tensor.value(step), np.float32))
            assert bits_of(value.to(torch.bfloat16)) == bits_of(expected[step])
            assert torch.equal(value, expected[step].float())
            wide = expected[step].double()
            row = tensor.statistics(step)
            assert row.l2 == pytest.approx(wide.norm().item(), rel=1e-9)
            assert row.abs_mean == pytest.approx(wide.abs().mean().item(), rel=1e-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_has_a_dtype_for_each_record(tmp_path: Path, dtype: torch.dtype) -> None:
    """Inputs and parameters stay float32, outputs are narrow, gradients float32 again."""

    class Autocast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 8)
            self.norm = nn.LayerNorm(8)
            self.second = nn.Linear(8, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", dtype=dtype):
                return self.second(self.norm(self.first(x)))

    def train(model: nn.Module, hook: smd.Hook | None) -> list[torch.Tensor]:
        losses = fit(model, 2)
        model.eval()
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            losses.append(model.second(torch.ones(2, 8)).sum())
        return losses

    run = train_twice(tmp_path / "run", Autocast, train)
    for name, size in {
        "Autocast_input_0": 4,
        "first_input_0": 4,
        "Autocast_first.weight": 4,
        "gradient/Autocast_first.weight": 4,
    }.items():
        assert run.value(name, 1).dtype.itemsize == size
    layout = run.trial.tensor("first_output_0")
    with torch.autocast("cpu", dtype=dtype):
        expected = torch.from_numpy(run.value("first_input_0", 1))
    assert layout.value(1).shape == (5, 8)
    assert bits_of(torch.from_numpy(np.asarray(layout.value(1), np.float32)).to(dtype)) == bits_of(
        torch.nn.functional.linear(
            expected.to(dtype),
            torch.from_numpy(run.value("Autocast_first.weight", 1)).to(dtype),
            torch.from_numpy(run.value("Autocast_first.bias", 1)).to(dtype),
        )
    )


def test_a_norm_that_half_precision_could_not_hold(tmp_path: Path) -> None:
    """1,000 values of 300: their squares overflow float16, their norm is 9,487."""

    class Large(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.full((1000,), 300.0, dtype=torch.float16))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.weight.float().mean() * x

    run = train_twice(tmp_path / "run", Large, lambda model, hook: fit(model, 1))
    row = run.trial.tensor("Large_weight").statistics(0)
    assert row.l2 == pytest.approx(9486.833, rel=1e-6)
    assert (row.positive_inf_count, row.overflow_count) == (0, 0)


def train_scaled(
    model: nn.Module,
    scaler: torch.amp.GradScaler | None,
    *,
    unscale: bool,
    poisoned: set[int],
    fused: bool = False,
) -> tuple[list[torch.Tensor], list[float]]:
    """Train with a loss scale, infinite losses at some steps. Gives losses and norms of true gradients."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, fused=fused)
    losses, norms = [], []
    generator = torch.Generator().manual_seed(5)
    for step in range(6):
        x = torch.randn(5, 4, generator=generator)
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        if step in poisoned:
            loss = loss * float("inf")
        (scaler.scale(loss) if scaler else loss).backward()
        factor = scaler.get_scale() if scaler else 1.0
        norms.append(model[0].weight.grad.double().norm().item() / factor)
        if scaler:
            if unscale:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        losses.append(loss.detach())
    return losses, norms


@pytest.mark.parametrize(
    "how", ["no_scaler", "unscaled_by_hand", "unscaled_by_scaler", "unscaled_by_optimizer"]
)
def test_gradients_do_not_carry_the_loss_scale(tmp_path: Path, how: str) -> None:
    norms: list[float] = []

    def train(model: nn.Module, hook: smd.Hook | None) -> list[torch.Tensor]:
        scaler = None if how == "no_scaler" else torch.amp.GradScaler("cpu", init_scale=65536.0)
        losses, norms[:] = train_scaled(
            model,
            scaler,
            unscale=how == "unscaled_by_hand",
            poisoned=set(),
            fused=how == "unscaled_by_optimizer",
        )
        return losses

    run = train_twice(tmp_path / "run", lambda: mlp(4, 8, 1), train)
    gradient = run.trial.tensor("gradient/Sequential_0.weight")
    assert gradient.steps() == list(range(6))
    assert [gradient.statistics(step).l2 for step in range(6)] == pytest.approx(norms, rel=1e-6)


@pytest.mark.parametrize("unscale", [False, True])
def test_skipped_steps_are_marked_and_raise_no_false_alarm(tmp_path: Path, unscale: bool) -> None:
    """Overflow in the first steps is how a scale is found: no NaN of the training's."""

    def train(model: nn.Module, hook: smd.Hook | None) -> list[torch.Tensor]:
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        return train_scaled(model, scaler, unscale=unscale, poisoned={0, 1, 4})[0]

    run = train_twice(
        tmp_path / "run",
        lambda: mlp(4, 8, 1),
        train,
        include_collections=["gradients", "loss_scaling"],
    )
    skipped = run.trial.tensor("skipped_step")
    marked = [step for step in skipped.steps() if float(skipped.value(step)) == 1.0]
    assert marked == [0, 1, 4]
    scale = run.trial.tensor("loss_scale")
    assert [float(scale.value(step)) for step in range(6)] == [
        1024.0,
        512.0,
        256.0,
        256.0,
        256.0,
        128.0,
    ]


def test_float8_values_are_read(tmp_path: Path) -> None:
    class Float8(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.codes = nn.Identity()
            self.head = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.codes(torch.tensor([0.5, -448.0, 2.0]).to(torch.float8_e4m3fn))
            return self.head(x)

    run = train_twice(tmp_path / "run", Float8, lambda model, hook: fit(model, 1))
    np.testing.assert_array_equal(
        np.asarray(run.value("codes_output_0", 0), np.float32), [0.5, -448.0, 2.0]
    )
    assert run.trial.tensor("codes_output_0").statistics(0).abs_max == 448.0


def test_default_dtype_of_double_changes_nothing(tmp_path: Path) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        model = mlp(4, 8, 1)
        with open_hook(tmp_path / "run") as hook:
            hook.register_module(model)
            hook.save_scalar("plain", 0.1)
            fit(model, 2)
    finally:
        torch.set_default_dtype(torch.float32)
    trial = smd.create_trial(tmp_path / "run")
    assert trial.tensor("Sequential_0.weight").value(0).dtype == np.float64
    assert float(trial.tensor("scalar/plain").value(0)) == 0.1
