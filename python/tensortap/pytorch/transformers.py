"""A callback for Hugging Face's ``Trainer``: ``Trainer(..., callbacks=[TensortapCallback("runs/1")])``.

Needed only by those who import it.
"""

from __future__ import annotations

import logging
import os
import sys
import weakref
from collections.abc import Mapping, Sequence
from types import CodeType, FrameType
from typing import Any

import torch
from torch.compiler import is_compiling

from tensortap.modes import ModeKeys
from tensortap.pytorch.callbacks import ModuleCallback
from tensortap.pytorch.hook import Hook
from tensortap.pytorch.led_hook import LedHook, missing_library

try:
    from transformers import Trainer, TrainerCallback
except ModuleNotFoundError as error:
    if error.name != "transformers":
        raise
    raise missing_library("transformers", "transformers") from None

logger = logging.getLogger("tensortap")

# The callback is not told which of the two runs: the function that called it tells.
_EVALUATION_MODES: dict[CodeType, ModeKeys] = {
    Trainer.evaluate.__code__: ModeKeys.EVAL,
    Trainer.predict.__code__: ModeKeys.PREDICT,
}


class TensortapCallback(TrainerCallback):
    """Records a training with ``Trainer``, and lets rules end it.

    A step of mode TRAIN is a step of the ``Trainer``: with ``gradient_accumulation_steps=4``, four batches. Batches of
    ``evaluate`` are steps of mode EVAL, batches of ``predict`` steps of mode PREDICT. Weights, biases, gradients and
    losses are recorded as by ``tensortap.watch``; beside them what the ``Trainer`` logs (``scalar/loss``,
    ``scalar/eval_loss`` ...). What it logs between steps, such as ``train_runtime``, stands in steps of mode GLOBAL.

    When a rule with the action ``stop_training`` fires, ``control.should_training_stop`` is set in that very step.
    The run is closed when the training ends; a later ``evaluate`` or ``predict`` goes on in it.

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
    >>> trainer.add_callback(TensortapCallback("runs/1", rules=["VanishingGradient:actions=stop_training"]))
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
        self._armed: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._is_training = False
        self._waits_for_log = False
        self._evaluation: ModeKeys | None = None
        self._begins_evaluation_step = False

    @property
    def hook(self) -> Hook | None:
        """The hook that records; None before the first step."""
        return self._led.hook

    # ---------------------------------------------------------------- training

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Wait for a first batch: ``evaluate`` does not say when it begins."""
        self._arm(kwargs["model"])

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Attach."""
        self._is_training = True
        self._arm(kwargs["model"])
        self._led.attach(kwargs["model"])

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin a step: the first of the batches that an optimizer step is made of."""
        self._led.begin(ModeKeys.TRAIN)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the step, unless there is something to log about it."""
        self._waits_for_log = control.should_log
        if not self._waits_for_log:
            self._end(args, control)

    def on_log(
        self,
        args: Any,
        state: Any,
        control: Any,
        logs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Record what is logged, with the step it is about."""
        self._led.record_scalars(logs or {})
        if self._waits_for_log:
            self._waits_for_log = False
            self._end(args, control)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Close the run."""
        self._is_training = False
        self._led.close()

    def _end(self, args: Any, control: Any) -> None:
        self._led.end()
        stop = self._led.take_stop()
        is_wanted = stop is not None
        if args.world_size > 1 and self._led.has_rules:
            is_wanted = _any_process(is_wanted, args.device)
        if is_wanted:
            control.should_training_stop = True
        if stop is not None:
            logger.warning("Tensortap ends the training (control.should_training_stop): %s", stop)

    # ---------------------------------------------------------------- evaluation, prediction

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Let the next batch be a step of its own."""
        self._arm(kwargs["model"])
        self._begins_evaluation_step = True

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the evaluation."""
        self._end_evaluation()

    def on_predict(
        self, args: Any, state: Any, control: Any, metrics: Mapping[str, Any], **kwargs: Any
    ) -> None:
        """Record the metrics of the prediction, which nobody logs, and end it."""
        if self._evaluation is not None:
            self._led.record_scalars(metrics)
        self._end_evaluation()

    def _end_evaluation(self) -> None:
        self._evaluation = None
        if self._is_training:
            self._led.end()
        else:
            self._led.close()

    # ---------------------------------------------------------------- called by PyTorch

    def _arm(self, model: torch.nn.Module) -> None:
        if model in self._armed:
            return
        self._armed.add(model)
        model.register_forward_pre_hook(
            ModuleCallback(self._before_forward), prepend=True, with_kwargs=True
        )

    def _before_forward(self, model: torch.nn.Module, args: Any, kwargs: Any) -> None:
        if model.training or is_compiling():
            return
        if self._evaluation is None:
            self._evaluation = _running_evaluation()
            self._begins_evaluation_step = True
        if self._evaluation is not None and self._begins_evaluation_step:
            self._begins_evaluation_step = False
            self._led.attach(model)
            self._led.begin(self._evaluation)


def _running_evaluation() -> ModeKeys | None:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code in _EVALUATION_MODES:
            return _EVALUATION_MODES[frame.f_code]
        frame = frame.f_back
    return None


def _any_process(flag: bool, device: torch.device) -> bool:
    """Whether any process says so: all leave the loop in the same step, or the others would wait for this one."""
    flags = torch.tensor(int(flag), device=device)
    torch.distributed.all_reduce(flags, torch.distributed.ReduceOp.MAX)
    return bool(flags.item())
