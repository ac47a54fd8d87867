"""The callback for Lightning, with the real Trainer on scikit-learn's digits."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tensortap
from tensortap import modes
from tensortap.exceptions import InvalidArgumentError
from tensortap.pytorch import Hook, ReductionConfig, SaveConfig

L = pytest.importorskip("lightning.pytorch")

from tensortap.pytorch.lightning import TensortapCallback  # noqa: E402

PARAMETERS = ["net.0.bias", "net.0.weight", "net.2.bias", "net.2.weight"]


class Digits(L.LightningModule):
    """Calls a submodule, never itself: its own forward pass is not run."""

    def __init__(self, lr: float = 0.1) -> None:
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
        self.losses: list[float] = []
        self.gradients: list[torch.Tensor] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.losses.append(loss.item())
        self.log("train_loss", loss, on_step=True, on_epoch=True, prog_bar=True)
        if batch_idx == 2:
            self.log("now_and_then", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("val_loss", loss)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.log("test_loss", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

    def predict_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.net(batch[0])

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        self.gradients.append(self.net[0].weight.grad.clone())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), self.lr, momentum=0.9)


class TwoPlayers(L.LightningModule):
    """Two optimizers by hand, as GANs do it."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.maker, self.judge = nn.Linear(4, 64), nn.Linear(64, 1)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        first, second = self.optimizers()
        made = self.maker(torch.ones(len(batch[0]), 4))
        first.zero_grad()
        self.manual_backward(self.judge(batch[0]).mean() - self.judge(made.detach()).mean())
        first.step()
        second.zero_grad()
        self.manual_backward(self.judge(made).mean())
        second.step()

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        return [torch.optim.SGD(m.parameters(), 0.1) for m in (self.judge, self.maker)]


def loader(first: int = 0, count: int = 160) -> DataLoader:
    images, labels = load_digits(return_X_y=True)
    rows = slice(first, first + count)
    inputs = torch.tensor(images[rows] / 16, dtype=torch.float32)
    return DataLoader(TensorDataset(inputs, torch.tensor(labels[rows])), 32)


def make_trainer(tmp_path: Path, *callbacks: Any, **arguments: Any) -> Any:
    arguments = {"max_epochs": 2, "accelerator": "cpu", "logger": False} | arguments
    return L.Trainer(
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        callbacks=list(callbacks),
        **arguments,
    )


def fit(
    tmp_path: Path, *callbacks: Any, model: Any = None, lr: float = 0.1, **arguments: Any
) -> Any:
    torch.manual_seed(0)
    model = Digits(lr) if model is None else model
    trainer = make_trainer(tmp_path, *callbacks, **arguments)
    trainer.fit(model, loader(), loader(1000, 64))
    return model


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"accumulate_grad_batches": 2},
        {"gradient_clip_val": 0.1},
        {"precision": "bf16-mixed"},
    ],
    ids=str,
)
def test_training_is_recorded_and_not_changed(tmp_path: Path, arguments: dict[str, Any]) -> None:
    plain = fit(tmp_path, **arguments)
    callback = TensortapCallback(tmp_path / "run", strict=True, save_raw_tensor=True)
    model = fit(tmp_path, callback, **arguments)
    assert model.losses == plain.losses
    for name, value in plain.state_dict().items():
        assert torch.equal(value, model.state_dict()[name])

    trial = tensortap.create_trial(tmp_path / "run")
    batches = arguments.get("accumulate_grad_batches", 1)
    step_count = 2 * -(-5 // batches)
    steps = trial.steps(mode=modes.TRAIN)
    assert steps == list(range(step_count))
    for name in PARAMETERS:
        assert trial.tensor(f"Digits_{name}").steps(mode=modes.TRAIN) == steps
    gradient = trial.tensor("gradient/Digits_net.0.weight")
    assert gradient.steps(mode=modes.TRAIN) == steps
    for step, expected in enumerate(model.gradients):
        value = gradient.value(step, mode=modes.TRAIN)
        if "gradient_clip_val" in arguments:
            assert np.linalg.norm(value) <= 0.1001  # what the optimizer used
        else:
            np.testing.assert_array_equal(value, expected.numpy())
    losses = [
        trial.tensor(f"training_step_loss_output_{i}").values(mode=modes.TRAIN)
        for i in range(batches)
    ]
    recorded = [
        losses[i][step].item() for step in steps for i in range(batches) if step in losses[i]
    ]
    assert recorded == model.losses


def test_modes_and_logged_values_stand_where_they_belong(tmp_path: Path) -> None:
    callback = TensortapCallback(tmp_path / "run", strict=True)
    fit(tmp_path, callback)  # 2 epochs of 5 batches; 2 batches of validation; a sanity check
    trial = tensortap.create_trial(tmp_path / "run")
    assert trial.steps(mode=modes.EVAL) == [0, 1, 2, 3]
    scalars = [name for name in trial.tensor_names() if name.startswith("scalar/")]
    assert scalars == [
        "scalar/now_and_then",
        "scalar/train_loss_epoch",
        "scalar/train_loss_step",
        "scalar/val_loss",
    ]
    assert trial.tensor("scalar/train_loss_step").steps(mode=modes.TRAIN) == list(range(10))
    # Lightning keeps the value in its dictionary; it was logged twice.
    assert trial.tensor("scalar/now_and_then").steps(mode=modes.TRAIN) == [2, 7]
    assert trial.tensor("scalar/val_loss").steps(mode=modes.EVAL) == [1, 3]
    epoch = trial.tensor("scalar/train_loss_epoch")
    assert epoch.steps(mode=modes.TRAIN) == []
    steps = trial.tensor("scalar/train_loss_step").values(mode=modes.TRAIN)
    means = [np.mean([steps[i] for i in range(first, first + 5)]) for first in (0, 5)]
    np.testing.assert_allclose([epoch.value(step) for step in epoch.steps()], means, rtol=1e-6)


def test_a_rule_ends_the_training_in_its_step(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    callback = TensortapCallback(
        tmp_path / "run",
        rules=["ExplodingTensor:collection_names=losses,actions=stop_training"],
        strict=True,
    )
    trainer = make_trainer(tmp_path, callback, max_epochs=5)
    with caplog.at_level(logging.WARNING, logger="tensortap"):
        trainer.fit(Digits(lr=1e30), loader())
    trial = tensortap.create_trial(tmp_path / "run")
    last = trial.steps(mode=modes.TRAIN)[-1]
    assert trainer.global_step == last + 1 < 25
    assert not np.isfinite(
        trial.tensor("training_step_loss_output_0").value(last, mode=modes.TRAIN)
    )
    assert "trainer.should_stop" in caplog.text
    assert f"rule ExplodingTensor stopped the training at step {last}" in caplog.text


def test_later_stages_go_on_in_the_run(tmp_path: Path) -> None:
    callback = TensortapCallback(tmp_path / "run", strict=True)
    trainer = make_trainer(tmp_path, callback, max_epochs=1)
    model = Digits()
    trainer.fit(model, loader())
    assert callback.hook is None
    trainer.test(model, loader(1000, 64), verbose=False)
    trainer.predict(model, loader(1000, 96))
    trial = tensortap.create_trial(tmp_path / "run")
    counts = [len(trial.steps(mode=mode)) for mode in (modes.TRAIN, modes.EVAL, modes.PREDICT)]
    assert counts == [5, 2, 3]
    assert trial.tensor("scalar/test_loss").steps(mode=modes.EVAL) == [1]


def test_two_optimizers_by_hand_make_one_step_a_batch(tmp_path: Path) -> None:
    callback = TensortapCallback(tmp_path / "run", strict=True)
    make_trainer(tmp_path, callback, max_epochs=1).fit(TwoPlayers(), loader())
    trial = tensortap.create_trial(tmp_path / "run")
    for name in ("maker", "judge"):
        gradient = trial.tensor(f"gradient/TwoPlayers_{name}.weight")
        assert gradient.steps(mode=modes.TRAIN) == [0, 1, 2, 3, 4]


class OneBadLoss(Digits):
    """The second process sees an infinite loss in its second batch; gradients stay as they are."""

    def setup(self, stage: str) -> None:
        torch.set_num_threads(1)  # the threads of the parent are not there after a fork

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = super().training_step(batch, batch_idx)
        is_bad = self.trainer.global_rank == 1 and batch_idx == 1
        return loss + torch.inf if is_bad else loss


def test_a_rule_of_one_process_ends_all(tmp_path: Path) -> None:
    callback = TensortapCallback(
        tmp_path / "run",
        rules=["ExplodingTensor:collection_names=losses,actions=stop_training"],
        include_workers="all",
        strict=True,
    )
    arguments = {"devices": 2, "strategy": "ddp_fork", "max_epochs": 3}
    trainer = make_trainer(tmp_path, callback, **arguments)
    trainer.fit(OneBadLoss(), loader())
    trial = tensortap.create_trial(tmp_path / "run")
    assert trial.workers() == ["worker_0", "worker_1"]
    losses = trial.tensor("training_step_loss_output_0")
    for worker in trial.workers():
        assert list(losses.values(mode=modes.TRAIN, worker=worker)) == [0, 1]
    assert trial.tensor_names(regex="module") == []  # no wrapper in any name


def test_takes_a_hook(tmp_path: Path) -> None:
    hook = Hook(
        tmp_path / "run",
        save_config=SaveConfig(save_interval=2),
        reduction_config=ReductionConfig(),
        include_collections=["weights"],
        strict=True,
    )
    model = Digits()
    hook.register_module(model)
    fit(tmp_path, TensortapCallback(hook=hook), model=model)
    assert hook.is_active  # who made it closes it
    hook.close()
    trial = tensortap.create_trial(tmp_path / "run")
    weight = trial.tensor("Digits_net.0.weight")
    assert weight.steps(mode=modes.TRAIN) == [0, 2, 4, 6, 8]
    with pytest.raises(InvalidArgumentError, match="either hook= or"):
        TensortapCallback(tmp_path / "other", hook=hook)
