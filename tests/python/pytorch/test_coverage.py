"""What the hook says of what it could not see."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from trainings import mlp, train_mlp

import tensortap.pytorch as smd


def open_hook(path: Path, **arguments: Any) -> smd.Hook:
    arguments.setdefault("save_config", smd.SaveConfig(save_interval=1))
    return smd.Hook(path / "run", reduction_config=smd.ReductionConfig(), **arguments)


def test_a_plain_training_is_seen_whole(tmp_path: Path) -> None:
    model = mlp(4, 8, 1)
    with open_hook(tmp_path, save_all=True) as hook:
        hook.register_module(model)
        train_mlp(model, 3)
        coverage = hook.coverage()
        assert coverage.is_complete
        assert str(coverage) == "coverage  everything was seen"
        assert coverage.looked_at_modules == 4
        assert "  coverage  everything was seen" in hook.summary()
    written = json.loads((tmp_path / "run" / "coverage" / "worker_0.json").read_text())
    assert written == {**hook.coverage().to_dict()}
    assert written["version"] == 1
    assert written["steps"] == 3


def test_the_hook_stays_off_the_modules_it_has_seen(tmp_path: Path) -> None:
    model = mlp(4, 8, 1)
    with open_hook(tmp_path) as hook:
        hook.register_module(model)
        train_mlp(model, 2)
        # Losses are all that is wanted: of the root, what it returns may hold one.
        assert not any(child._forward_pre_hooks or child._forward_hooks for child in model)


class Odd(nn.Module):
    """Modules that take part in every way but being called."""

    def __init__(self) -> None:
        super().__init__()
        self.called = nn.Linear(4, 4)
        self.direct = nn.Linear(4, 4)
        self.functional = nn.Linear(4, 4)
        self.unused = nn.Linear(4, 4)
        self.block = nn.Sequential(nn.ReLU())
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.holder = nn.ModuleList([nn.Identity()])
        self.frozen = nn.Linear(4, 4).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.direct.forward(self.called(x))
        x = torch.nn.functional.linear(x, self.functional.weight)
        x = self.holder[0](self.frozen(x))
        for layer in self.block:
            x = layer(x)
        return self.attention(x, x, x)[0].sum()


def test_modules_that_were_not_called_and_why(tmp_path: Path) -> None:
    model = Odd()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with open_hook(tmp_path) as hook:
        hook.register_module(model)
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(2, 3, 4)).backward()
            optimizer.step()
        coverage = hook.coverage()
        text = hook.summary()
    assert coverage.never_called == ["unused"]
    direct = "used through its forward or its parameters, not as module(x)"
    assert coverage.called_around == {
        "direct": direct,
        "functional": direct,
        "block": direct,
        "attention.out_proj": "computed by the attention module itself",
    }
    assert coverage.frozen == ["Odd_frozen.weight", "Odd_frozen.bias"]
    unused = ["Odd_functional.bias", "Odd_unused.weight", "Odd_unused.bias"]
    assert coverage.without_gradient == unused
    assert not coverage.is_complete
    assert "1 module never called: unused" in text
    assert f"3 modules not seen, {direct}: direct, functional, block" in text


def test_the_fast_path_of_transformer_layers_stays_in_use(tmp_path: Path) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.Linear(8, 8), layer)
    inputs = torch.randn(2, 3, 8)
    fast: list[bool] = []

    def evaluate() -> torch.Tensor:
        model.eval()
        with torch.no_grad(), torch.profiler.profile() as profile:
            result = model(inputs)
        fast.append(
            "aten::_transformer_encoder_layer_fwd" in {e.key for e in profile.key_averages()}
        )
        return result

    expected = evaluate()
    with open_hook(tmp_path) as hook:
        hook.register_module(model)
        assert torch.equal(evaluate(), expected)
        coverage = hook.coverage()
        assert coverage.never_called == []
        assert coverage.called_around["1.linear1"].startswith("spared hooks in evaluation")
        model.train()
        model(inputs)
        assert hook.coverage().called_around == {
            "1.self_attn.out_proj": "computed by the attention module itself"
        }
        assert torch.equal(evaluate(), expected)
    assert fast == [True] * 3


def test_a_model_that_is_never_called_as_a_module(tmp_path: Path) -> None:
    model = mlp(4, 8, 1)
    with open_hook(tmp_path) as hook:
        hook.register_module(model)
        model.forward(torch.randn(2, 4))
        assert "0 calls seen" in hook.summary()
        assert not hook.coverage().is_complete


def test_steps_of_which_none_is_due(tmp_path: Path) -> None:
    model = mlp(4, 8, 1)
    with open_hook(tmp_path, save_config=smd.SaveConfig(start_step=100)) as hook:
        hook.register_module(model)
        train_mlp(model, 7)
        assert "none of 7 steps was looked at" in str(hook.coverage())


def test_compiled_and_scripted_modules(tmp_path: Path) -> None:
    model = nn.Sequential(torch.jit.script(mlp(4, 4)), nn.Linear(4, 4), mlp(4, 1))
    model[1].compile(backend="eager")
    with open_hook(tmp_path) as hook:
        hook.register_module(model)
        model(torch.randn(2, 4))
        coverage = hook.coverage()
    assert coverage.compiled == ["0", "0.0", "1"]
    assert coverage.never_called == []


def test_lazy_parameters_unreadable_tensors_and_skipped_steps(tmp_path: Path) -> None:
    class Meta(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)
            self.later = nn.LazyLinear(3)

        def forward(self, x: torch.Tensor, factor: float) -> torch.Tensor:
            return self.layer(x).sum() * factor

    model = Meta()
    optimizer = torch.optim.SGD(model.layer.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    every_third = smd.SaveConfig(save_interval=3)
    with open_hook(tmp_path, include_regex="loss", save_config=every_third) as hook:
        hook.register_module(model)
        for step in range(6):
            loss = model(torch.randn(2, 4), float("nan") if step in (1, 3, 5) else 1.0)
            hook.record_tensor_value("loss", torch.empty(3, device="meta"))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        coverage = hook.coverage()
    assert coverage.lazy == ["Meta_later.weight", "Meta_later.bias"]
    assert coverage.unreadable == ["loss_output_0"]
    assert coverage.skipped_optimizer_steps == 3  # in steps that were not due, too
    assert "3 optimizer steps skipped" in str(coverage)


def test_a_fault_and_dropped_steps_are_in_the_coverage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = mlp(4, 8, 1)
    with open_hook(tmp_path) as hook:
        hook.register_module(model)
        monkeypatch.setattr(hook._recording, "begin_step", None)
        train_mlp(model, 2)
    assert hook.coverage().faults == 1
    assert "switched itself off" in str(hook.coverage())
    assert json.loads((tmp_path / "run/coverage/worker_0.json").read_text())["faults"] == 1


def test_a_dry_run_and_a_hook_that_is_off_leave_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = mlp(4, 8, 1)
    with open_hook(tmp_path, dry_run=True) as hook:
        hook.register_module(model)
        train_mlp(model, 2)
        assert hook.coverage().looked_at_modules == 4
    monkeypatch.setenv("TENSORTAP_DISABLE", "1")
    with open_hook(tmp_path) as hook:
        hook.register_module(model)
        assert hook.coverage().steps == 0
    assert not (tmp_path / "run").exists()
