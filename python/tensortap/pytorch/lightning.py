"""A callback for Lightning: ``Trainer(callbacks=[TensortapCallback("runs/1")])``.

Works with ``lightning`` and with ``pytorch_lightning``. Needed only by those who import it.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tensortap.modes import ModeKeys
from tensortap.pytorch.hook import Hook
from tensortap.pytorch.led_hook import LedHook, missing_library

logger = logging.getLogger("tensortap")


def _import_lightning() -> Any:
    """The Lightning that the script has imported, or the one that is installed."""
    names = ["lightning.pytorch", "pytorch_lightning"]
    for name in sorted(names, key=lambda name: name not in sys.modules):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name not in ("lightning", *names):
                raise  # it is installed, but lacks something itself
    raise missing_library("lightning", "lightning") from None


_Callback: Any = _import_lightning().Callback


class TensortapCallback(_Callback):
    """Records a training with Lightning, and lets rules end it.

    A step is what one optimizer step is made of: with ``accumulate_grad_batches=4``, four batches. Batches of
    validation and test are steps of mode EVAL, those of prediction steps of mode PREDICT; the sanity check is left out.
    Weights, biases, gradients and losses are recorded as by ``tensortap.watch``; beside them what ``training_step`` and
    ``validation_step`` return as loss (``training_step_loss_output_0``), and what ``self.log`` hands to loggers
    (``scalar/<name>``; values that lie on a GPU only in steps that are saved). Means of a training epoch stand in steps
    of mode GLOBAL, what a validation logs on the whole in its last step.

    When a rule with the action ``stop_training`` fires, ``trainer.should_stop`` is set in that very step.
    The run is closed when Lightning is done; a later ``trainer.test`` goes on in it.

    Parameters
    ----------
    out_dir
        Directory of the run; None makes ``tensortap_runs/<date>-<time>-<pid>``.
    rules
        As for ``tensortap.watch``.
    hook
        A hook of your own instead of all other arguments. You close it.
    collections
        What to record; None: weights, biases, gradients, losses.
    save_interval
        Record every n-th step of each mode.
    save_raw_tensor
        Keep raw values too, not only statistics.
    **hook_arguments
        Any other argument of ``tensortap.pytorch.Hook``.

    Raises
    ------
    InvalidArgumentError
        ``hook`` was given together with other arguments.
    RunExistsError
        When training begins: ``out_dir`` already holds a run.

    Examples
    --------
    >>> trainer = L.Trainer(callbacks=[TensortapCallback("runs/1", rules=["VanishingGradient:actions=stop_training"])])
    """

    def __init__(
        self,
        out_dir: str | os.PathLike[str] | None = None,
        rules: Sequence[Any] = (),
        *,
        hook: Hook | None = None,
        collections: Sequence[str] | None = None,
        save_interval: int = 1,
        save_raw_tensor: bool = False,
        **hook_arguments: Any,
    ) -> None:
        self._led = LedHook(
            hook, out_dir, rules, collections, save_interval, save_raw_tensor, hook_arguments
        )
        self._logged = _Logged()
        self._global_step = 0  # Lightning's, when the open step began

    @property
    def hook(self) -> Hook | None:
        """The hook that records; None before Lightning begins."""
        return self._led.hook

    # ---------------------------------------------------------------- training

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Attach: after the sanity check, which is no part of the training."""
        self._led.attach(pl_module)

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Begin a step, unless the batch adds to the gradients of the one before."""
        is_accumulating = self._led.in_step and trainer.global_step == self._global_step
        if is_accumulating and trainer.optimizers:
            return
        self._global_step = trainer.global_step
        self._led.begin(ModeKeys.TRAIN)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Record what the step has come to; end it when an optimizer has stepped."""
        loss = _loss_of(outputs)
        if isinstance(loss, torch.Tensor) and pl_module.automatic_optimization:
            loss = loss * trainer.accumulate_grad_batches  # which Lightning has divided it by
        self._led.record_loss("training_step_loss", loss)
        self._record_logged(trainer)
        if trainer.global_step != self._global_step or not trainer.optimizers:
            self._led.end()
        self._stop_if_asked(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Record what was logged for the epoch."""
        self._led.end()
        self._led.record_scalars(self._logged.take(trainer.logged_metrics))
        self._stop_if_asked(trainer)

    # ---------------------------------------------------------------- validation, test, prediction

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Attach, for a ``trainer.validate`` without training."""
        if not trainer.sanity_checking:
            self._led.attach(pl_module)

    def on_validation_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Begin a step of mode EVAL."""
        if not trainer.sanity_checking:
            self._led.begin(ModeKeys.EVAL)

    def on_validation_batch_end(
        self,
        trainer: Any,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Record loss and logged values; the step stays open for what is logged at the end of the validation."""
        if not trainer.sanity_checking:
            self._led.record_loss("validation_step_loss", _loss_of(outputs))
            self._record_logged(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Record what the validation logged on the whole."""
        if not trainer.sanity_checking:
            self._led.record_scalars(self._logged.take(trainer.logged_metrics))
            self._led.end()
            self._stop_if_asked(trainer)

    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        """As for a validation."""
        self.on_validation_start(trainer, pl_module)

    def on_test_batch_start(self, trainer: Any, pl_module: Any, *batch: Any) -> None:
        """As for a validation."""
        self._led.begin(ModeKeys.EVAL)

    def on_test_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *batch: Any) -> None:
        """As for a validation."""
        self._led.record_loss("test_step_loss", _loss_of(outputs))
        self._record_logged(trainer)

    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        """As for a validation."""
        self.on_validation_end(trainer, pl_module)

    def on_predict_start(self, trainer: Any, pl_module: Any) -> None:
        """Attach."""
        self._led.attach(pl_module)

    def on_predict_batch_start(self, trainer: Any, pl_module: Any, *batch: Any) -> None:
        """Begin a step of mode PREDICT."""
        self._led.begin(ModeKeys.PREDICT)

    def on_predict_batch_end(self, trainer: Any, pl_module: Any, *outputs: Any) -> None:
        """End the step."""
        self._led.end()

    # ---------------------------------------------------------------- the end

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Keep what was recorded until then."""
        self._led.close()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Close the run."""
        self._led.close()

    def _record_logged(self, trainer: Any) -> None:
        logged = self._logged.take(trainer.logged_metrics)
        if not self._led.is_due:  # reading a value would make a GPU wait
            logged = {name: value for name, value in logged.items() if not _is_on_gpu(value)}
        self._led.record_scalars(logged)

    def _stop_if_asked(self, trainer: Any) -> None:
        stop = self._led.take_stop()
        if trainer.world_size > 1 and self._led.has_rules:
            # All processes leave the loop in the same step, or the others would wait for this one.
            trainer.should_stop |= trainer.strategy.reduce_boolean_decision(
                stop is not None, all=False
            )
        if stop is not None:
            trainer.should_stop = True
            logger.warning("Tensortap ends the training (trainer.should_stop): %s", stop)


class _Logged:
    """Tells which of the values that Lightning keeps were logged since the last look."""

    def __init__(self) -> None:
        # Kept alive, so that the memory of a new value is not that of an old one.
        self._seen: dict[str, Any] = {}

    def take(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        fresh = {
            name: value
            for name, value in metrics.items()
            if not _is_same(self._seen.get(name), value)
        }
        self._seen.update(fresh)
        return fresh


def _is_on_gpu(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not value.is_cpu


def _is_same(old: Any, new: Any) -> bool:
    if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor):
        return bool(old.data_ptr() == new.data_ptr())
    return old is new


def _loss_of(outputs: Any) -> Any:
    return outputs.get("loss") if isinstance(outputs, Mapping) else outputs
