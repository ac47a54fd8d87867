"""The tracker for Accelerate, in real loops on scikit-learn's digits."""

from __future__ import annotations

from collections.abc import Iterator
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

accelerate = pytest.importorskip("accelerate")

from tensortap.pytorch.accelerate import TensortapTracker  # noqa: E402


@pytest.fixture(autouse=True)
def _fresh_state() -> Iterator[None]:
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()


def train(
    tracker: TensortapTracker | None = None,
    *,
    lr: float = 0.1,
    epochs: int = 2,
    asks_trigger: bool = False,
    **arguments: Any,
) -> tuple[list[float], nn.Module]:
    """Two epochs of 6 batches, an evaluation of 2 batches after each."""
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(
        torch.tensor(images[:256] / 16, dtype=torch.float32), torch.tensor(labels[:256])
    )
    loaders = [
        DataLoader(torch.utils.data.Subset(data, range(*bounds)), 32)
        for bounds in ((0, 192), (192, 256))
    ]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    accelerator = accelerate.Accelerator(cpu=True, log_with=tracker, **arguments)
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9)
    model, optimizer, train_loader, test_loader = accelerator.prepare(model, optimizer, *loaders)
    criterion = nn.CrossEntropyLoss()
    if tracker is not None:
        accelerator.init_trackers("digits", config={"lr": lr})
        tracker.watch(accelerator, model, loss=criterion)
    losses: list[float] = []
    try:
        for _ in range(epochs):
            model.train()
            for inputs, targets in train_loader:
                with accelerator.accumulate(model):
                    loss = criterion(model(inputs), targets)
                    accelerator.backward(loss)
                    optimizer.step()
                    optimizer.zero_grad()
                losses.append(loss.item())
                accelerator.log({"train_loss": losses[-1], "note": "words are passed over"})
                if asks_trigger and accelerator.check_trigger():
                    return losses, model
            model.eval()
            with torch.no_grad():
                correct = sum((model(x).argmax(1) == y).sum().item() for x, y in test_loader)
            accelerator.log({"accuracy": correct / 64})
    finally:
        accelerator.end_training()
    return losses, accelerator.unwrap_model(model)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"gradient_accumulation_steps": 3}, {"mixed_precision": "bf16"}],
    ids=str,
)
def test_training_is_recorded_and_not_changed(tmp_path: Path, arguments: dict[str, Any]) -> None:
    plain_losses, plain = train(**arguments)
    tracker = TensortapTracker(tmp_path / "run", strict=True, save_raw_tensor=True)
    losses, model = train(tracker, **arguments)
    assert losses == plain_losses
    for name, value in plain.state_dict().items():
        assert torch.equal(value, model.state_dict()[name])

    trial = tensortap.create_trial(tmp_path / "run")
    batches = arguments.get("gradient_accumulation_steps", 1)
    steps = list(range(12 // batches))
    assert trial.steps(mode=modes.TRAIN) == steps
    for collection in ("weights", "gradients"):
        for name in trial.tensor_names(collection=collection):
            assert trial.tensor(name).steps(mode=modes.TRAIN) == steps
    assert len(trial.tensor_names(collection="gradients")) == 4
    outputs = [trial.tensor(f"CrossEntropyLoss_output_{i}") for i in range(batches)]
    recorded = [o.value(step, mode=modes.TRAIN).item() for step in steps for o in outputs]
    assert recorded == losses
    assert trial.steps(mode=modes.EVAL) == [0, 1, 2, 3]
    assert trial.tensor("scalar/accuracy").steps(mode=modes.EVAL) == [1, 3]
    scalar = trial.tensor("scalar/train_loss")
    last_of_step = losses[batches - 1 :: batches]
    assert [scalar.value(step, mode=modes.TRAIN) for step in steps] == last_of_step
    assert "scalar/note" not in trial.tensor_names()


def test_a_rule_ends_the_loop_with_stop_training(tmp_path: Path) -> None:
    rule = "ExplodingTensor:collection_names=losses,actions=stop_training"
    tracker = TensortapTracker(tmp_path / "run", rules=[rule], strict=True)
    with pytest.raises(tensortap.StopTraining, match="ExplodingTensor") as caught:
        train(tracker, lr=1e30)
    trial = tensortap.create_trial(tmp_path / "run")
    assert trial.steps(mode=modes.TRAIN)[-1] == caught.value.finding.step


def test_a_rule_can_set_the_trigger_of_accelerate(tmp_path: Path) -> None:
    rule = "ExplodingTensor:collection_names=losses,actions=stop_training"
    tracker = TensortapTracker(tmp_path / "run", rules=[rule], on_stop="trigger", strict=True)
    losses, _ = train(tracker, lr=1e30, asks_trigger=True)
    first = int(np.flatnonzero(~np.isfinite(losses))[0])
    assert len(losses) == first + 2  # the pass that finds out is completed
    with pytest.raises(InvalidArgumentError, match="on_stop"):
        TensortapTracker(on_stop="pray")
