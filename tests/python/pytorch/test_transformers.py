"""The callback for Hugging Face's Trainer, with the real Trainer on tiny models and text that lies on every machine."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensortap
from tensortap import modes

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")

from tensortap.pytorch.transformers import TensortapCallback  # noqa: E402

# Bytes of Python's own licence are the tokens.
TEXT = np.frombuffer(Path(os.__file__).read_bytes()[:8192], dtype=np.uint8) % 128


class Windows(torch.utils.data.Dataset):
    """Windows of 16 characters; `label` is whether the window has an upper-case letter."""

    def __init__(self, first: int, count: int, *, with_label: bool) -> None:
        self.first, self.count, self.with_label = first, count, with_label

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        start = (self.first + i) * 16
        tokens = torch.tensor(TEXT[start : start + 16].astype(np.int64))
        has_capital = int(((tokens >= 65) & (tokens <= 90)).any())
        labels = torch.tensor(has_capital) if self.with_label else tokens
        return {"input_ids": tokens, "labels": labels}


def bert() -> tuple[Any, bool]:
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    config = transformers.BertConfig(
        vocab_size=128, num_attention_heads=2, max_position_embeddings=16, **sizes
    )
    return transformers.BertForSequenceClassification(config), True


def gpt2() -> tuple[Any, bool]:
    config = transformers.GPT2Config(
        vocab_size=128,
        n_positions=16,
        n_embd=16,
        n_layer=1,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    return transformers.GPT2LMHeadModel(config), False


def make_trainer(
    tmp_path: Path,
    *callbacks: Any,
    make: Callable[[], tuple[Any, bool]] = bert,
    **arguments: Any,
) -> Any:
    torch.manual_seed(0)
    model, with_label = make()
    arguments = {"max_steps": 6, "logging_steps": 2} | arguments
    return transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(
            output_dir=str(tmp_path / "trainer"),
            per_device_train_batch_size=8,
            per_device_eval_batch_size=8,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            **arguments,
        ),
        train_dataset=Windows(0, 72, with_label=with_label),
        eval_dataset=Windows(72, 24, with_label=with_label),
        callbacks=list(callbacks),
    )


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (bert, {}),
        (bert, {"gradient_accumulation_steps": 3}),
        (gpt2, {"bf16": True}),
    ],
    ids=["bert", "accumulating", "gpt2 in bfloat16"],
)
def test_training_is_recorded_and_not_changed(
    tmp_path: Path, make: Callable[[], tuple[Any, bool]], arguments: dict[str, Any]
) -> None:
    plain = make_trainer(tmp_path, make=make, **arguments)
    plain.train()
    callback = TensortapCallback(tmp_path / "run", strict=True, save_raw_tensor=True)
    trainer = make_trainer(tmp_path, callback, make=make, **arguments)
    trainer.train()
    volatile = ("train_runtime", "train_samples_per_second", "train_steps_per_second")
    for ours, theirs in zip(trainer.state.log_history, plain.state.log_history, strict=True):
        assert {k: v for k, v in ours.items() if k not in volatile} == {
            k: v for k, v in theirs.items() if k not in volatile
        }
    for name, value in plain.model.state_dict().items():
        assert torch.equal(value, trainer.model.state_dict()[name])

    trial = tensortap.create_trial(tmp_path / "run")
    steps = list(range(6))
    assert trial.steps(mode=modes.TRAIN) == steps
    assert len(trial.tensor_names(collection="losses")) == arguments.get(
        "gradient_accumulation_steps", 1
    )
    for collection in ("weights", "gradients", "losses"):
        names = trial.tensor_names(collection=collection)
        assert names
        for name in names:
            assert trial.tensor(name).steps(mode=modes.TRAIN) == steps, name


def test_logged_values_stand_with_the_steps_they_are_about(tmp_path: Path) -> None:
    callback = TensortapCallback(tmp_path / "run", strict=True)
    trainer = make_trainer(tmp_path, callback, eval_strategy="steps", eval_steps=3)
    trainer.train()
    trial = tensortap.create_trial(tmp_path / "run")
    loss = trial.tensor("scalar/loss")
    assert loss.steps(mode=modes.TRAIN) == [1, 3, 5]  # the Trainer counts from 1: 2, 4, 6
    logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert [loss.value(step, mode=modes.TRAIN) for step in (1, 3, 5)] == logged
    # Two evaluations of three batches, each with its result in its last step.
    assert trial.steps(mode=modes.EVAL) == [0, 1, 2, 3, 4, 5]
    assert trial.tensor("scalar/eval_loss").steps(mode=modes.EVAL) == [2, 5]
    runtime = trial.tensor("scalar/train_runtime")
    assert (len(runtime.steps()), runtime.steps(mode=modes.TRAIN)) == (1, [])
    assert not any("output_1" in name for name in trial.tensor_names())


def test_a_rule_ends_the_training_in_its_step(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    callback = TensortapCallback(
        tmp_path / "run",
        rules=["ExplodingTensor:collection_names=losses,actions=stop_training"],
        strict=True,
    )
    trainer = make_trainer(
        tmp_path, callback, max_steps=20, learning_rate=1e38, max_grad_norm=0.0, optim="sgd"
    )
    with caplog.at_level(logging.WARNING, logger="tensortap"):
        trainer.train()
    last = tensortap.create_trial(tmp_path / "run").steps(mode=modes.TRAIN)[-1]
    assert trainer.state.global_step == last + 1 < 20
    assert "control.should_training_stop" in caplog.text
    assert f"rule ExplodingTensor stopped the training at step {last}" in caplog.text


def test_evaluate_and_predict_need_no_training(tmp_path: Path) -> None:
    callback = TensortapCallback(tmp_path / "run", strict=True)
    trainer = make_trainer(tmp_path, callback)
    trainer.evaluate()
    trainer.predict(trainer.eval_dataset)
    trainer.model(input_ids=torch.zeros(1, 16, dtype=torch.int64))  # nobody's evaluation
    trial = tensortap.create_trial(tmp_path / "run")
    assert trial.steps(mode=modes.EVAL) == [0, 1, 2]
    assert trial.steps(mode=modes.PREDICT) == [0, 1, 2]
    assert trial.tensor("scalar/eval_loss").steps(mode=modes.EVAL) == [2]
    assert trial.tensor("scalar/test_loss").steps(mode=modes.PREDICT) == [2]


def train_in_rank(rank: int, directory: Path, port: int) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    # Only the second process has a rule that ever fires.
    bound = "collection_names=losses" if rank == 1 else "tensor_regex=nothing"
    callback = TensortapCallback(
        directory / "run",
        rules=[f"ExplodingTensor:{bound},actions=stop_training"],
        include_workers="all",
        strict=True,
    )
    trainer = make_trainer(
        directory,
        callback,
        max_steps=20,
        learning_rate=1e38,
        max_grad_norm=0.0,
        optim="sgd",
        ddp_backend="gloo",
    )
    trainer.train()
    assert 0 < trainer.state.global_step < 20


def test_a_rule_of_one_process_ends_all(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.start_processes(
        train_in_rank, args=(tmp_path, port), nprocs=2, start_method="fork"
    )
    trial = tensortap.create_trial(tmp_path / "run")
    assert trial.workers() == ["worker_0", "worker_1"]
    weight = trial.tensor("BertForSequenceClassification_classifier.weight")
    for step in weight.steps(mode=modes.TRAIN):
        assert weight.workers(step, modes.TRAIN) == ["worker_0", "worker_1"]
