"""Every argument of the hook does what its documentation says; wrong ones get one clear line."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from trainings import mlp, train_mlp

import tensortap
import tensortap.pytorch as smd
from tensortap.exceptions import InvalidArgumentError, InvalidTypeError


def open_hook(path: Path, **arguments: Any) -> smd.Hook:
    arguments.setdefault("save_config", smd.SaveConfig(save_interval=1))
    arguments.setdefault("reduction_config", smd.ReductionConfig())
    return smd.Hook(path / "run", strict=True, **arguments)


# ---------------------------------------------------------------- losses and weights do not change

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "save_all": {"save_all": True},
    "raw": {"save_all": True, "reduction_config": None},
    "regex": {"include_regex": ["relu_output", "_0.weight"]},
    "by class": {"include_collections": ["relu_output", "normalization_output", "model_inputs"]},
    "derived": {"include_collections": ["update_ratios", "gradients_before_clipping"]},
    "optimizer": {"include_collections": ["optimizer_variables", "gradients"]},
    "every third": {"save_all": True, "save_config": smd.SaveConfig(save_interval=3)},
    "modes": {
        "save_all": True,
        "save_config": {smd.modes.TRAIN: smd.SaveConfigMode(save_steps=[1, 4], end_step=0)},
    },
    "all workers": {"save_all": True, "include_workers": "all"},
    "dry run": {"save_all": True, "dry_run": True},
    "drop": {"save_all": True, "backpressure": "drop", "queue_bytes": 1},
    "no threads": {"save_all": True, "compute_threads": 0},
    "rules": {"save_all": True, "rules": ["VanishingGradient", "LossNotDecreasing"]},
}


class Everything(nn.Module):
    """In-place modules, dropout, batch statistics, attention."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(0.2)
        )
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.body(x).unsqueeze(0)
        return self.head(self.attention(x, x, x)[0]).squeeze(0)


def train(hook: smd.Hook | None, amsgrad: bool = True) -> list[torch.Tensor]:
    """Weights, losses and the state of the random numbers after a training with all that hooks wrap."""
    torch.manual_seed(5)
    model = Everything()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, amsgrad=amsgrad)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    if hook is not None:
        hook.register_module(model)
    losses = []
    for step in range(7):
        inputs = torch.randn(6, 4)
        if hook is not None:
            hook.set_mode(smd.modes.TRAIN if step < 6 else smd.modes.EVAL)
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).pow(2).mean()
        if hook is not None:
            hook.record_tensor_value("loss", loss)
            hook.save_scalar("step", step)
        optimizer.zero_grad()
        scaler.scale(loss * (float("inf") if step == 3 else 1.0)).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        losses.append(loss.detach())
    state = [value.clone() for value in model.state_dict().values()]
    moments = [value for state in optimizer.state.values() for value in state.values()]
    return [*losses, *state, *moments, torch.get_rng_state()]


@pytest.fixture(scope="module")
def plain() -> list[torch.Tensor]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    result = train(None)
    torch.set_num_threads(threads)
    return result


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_training_is_the_same_to_the_bit(
    tmp_path: Path, plain: list[torch.Tensor], name: str
) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with open_hook(tmp_path, **CONFIGURATIONS[name]) as hook:
        hooked = train(hook)
    torch.set_num_threads(threads)
    assert hook.fault_count == 0
    assert len(hooked) == len(plain)
    assert all(torch.equal(a, b) for a, b in zip(hooked, plain, strict=True))


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "error"),
    [
        (5, InvalidTypeError),
        (None, InvalidTypeError),
        ("", InvalidArgumentError),
        ("\ud800", InvalidArgumentError),
    ],
)
def test_names_that_cannot_be(tmp_path: Path, name: Any, error: type[Exception]) -> None:
    model = mlp(4, 1)
    with open_hook(tmp_path) as hook:
        hook.register_module(model)
        model(torch.ones(2, 4))
        for call in (
            lambda: hook.save_tensor(name, torch.ones(2)),
            lambda: hook.save_tensor("fine", torch.ones(2), collections_to_write=["a", name]),
            lambda: hook.record_tensor_value(name, torch.ones(2)),
            lambda: hook.save_scalar(name, 1.0),
        ):
            with pytest.raises(error):
                call()
        hook.save_tensor("ünïcode ✓", torch.ones(2))
        assert hook.is_active
        assert hook.fault_count == 0
    assert "ünïcode ✓" in smd.create_trial(tmp_path / "run").tensor_names()


def test_a_value_that_is_no_tensor(tmp_path: Path) -> None:
    with open_hook(tmp_path) as hook, pytest.raises(InvalidTypeError, match="save_tensor"):
        hook.save_tensor("words", object())
    assert hook.fault_count == 0


# ---------------------------------------------------------------- add_module_tensors


def test_module_tensors_before_and_after_the_model_is_registered(tmp_path: Path) -> None:
    model = nn.Sequential(mlp(4, 4), nn.Tanh(), nn.Linear(4, 1))
    collections = ["outputs_of_mine", "both", "late"]
    own = smd.Collection("outputs_of_mine")
    own.add_module_tensors(model[1])
    with open_hook(tmp_path, include_collections=collections) as hook:
        hook.add_collection(own)
        hook.get_collection("both").add_module_tensors(model[0][0], inputs=True)
        hook.register_module(model)
        hook.get_collection("late").add_module_tensors(model[2], inputs=True, outputs=False)
        model(torch.ones(2, 4))
    trial = smd.create_trial(tmp_path / "run")
    assert own.include_regex == ["^1_output_"]
    assert trial.tensor_names(collection="outputs_of_mine") == ["1_output_0"]
    assert trial.tensor_names(collection="both") == ["0.0_input_0", "0.0_output_0"]
    assert trial.tensor_names(collection="late") == ["2_input_0"]


# ---------------------------------------------------------------- other arguments


def test_include_workers_is_one_or_all(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"'one'.*'all'.*'some'"):
        open_hook(tmp_path, include_workers="some")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "directory"),
    [
        ({"export_tensorboard": True}, "run/tensorboard"),
        ({"tensorboard_dir": "elsewhere"}, "elsewhere"),
        ({"export_tensorboard": True, "tensorboard_dir": "elsewhere"}, "elsewhere"),
    ],
)
def test_tensorboard_is_accepted_with_one_warning(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    arguments: dict[str, Any],
    directory: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_hook(tmp_path, **arguments) as hook:
        hook.register_module(model := mlp(4, 1))
        train_mlp(model, 2)
    assert len(caplog.records) == 1
    assert "exported later" in caplog.text
    assert hook.tensorboard_dir == str(tmp_path / directory)


def test_a_configuration_file_with_tensorboard(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    parameters = {"export_tensorboard": True, "tensorboard_dir": str(tmp_path / "tb")}
    config.write_text(
        json.dumps({"LocalPath": str(tmp_path / "run"), "HookParameters": parameters})
    )
    with smd.Hook.create_from_json_file(config) as hook:
        assert hook.tensorboard_dir == str(tmp_path / "tb")


# ---------------------------------------------------------------- hooks that are off


def use_everything(hook: smd.Hook) -> None:
    model = mlp(4, 8, 1)
    hook.register_module(model)
    hook.register_loss(nn.MSELoss())
    hook.set_mode(smd.modes.TRAIN)
    train_mlp(model, 2)
    hook.record_tensor_value("loss", torch.ones(()))
    hook.save_scalar("x", 1.0)
    hook.save_tensor("y", torch.ones(2), collections_to_write=["z"])
    hook.add_collection(smd.Collection("mine", include_regex="x"))
    hook.get_collection("mine").include("y")
    hook.get_collection("mine").add_module_tensors(model[0])
    assert "mine" in hook.get_collections()
    assert (hook.step, hook.mode, hook.run_id) == (-1, smd.modes.GLOBAL, "")
    assert hook.findings() == []
    assert hook.rule_reports() == []
    assert hook.counters() == {}
    assert "nothing was recorded" in hook.summary()
    assert hook.coverage().steps == 0
    assert hook.flush()
    with hook:
        pass
    hook.close()


def test_a_pickled_hook_does_nothing_and_does_it_completely(tmp_path: Path) -> None:
    with open_hook(tmp_path) as hook:
        hook.register_module(mlp(4, 1))
        revived = pickle.loads(pickle.dumps(hook))
        use_everything(revived)
        use_everything(pickle.loads(pickle.dumps(revived)))
        assert copy.deepcopy(hook) is hook
        assert hook.is_active


def test_a_hook_that_the_environment_switches_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORTAP_DISABLE", "1")
    use_everything(open_hook(tmp_path))
    assert not (tmp_path / "run").exists()
    assert tensortap.watch(mlp(4, 1), out_dir=tmp_path / "run").step == -1
