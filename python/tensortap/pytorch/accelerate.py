"""A tracker for Accelerate: ``Accelerator(log_with=TensortapTracker("runs/1"))``.

Needed only by those who import it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.compiler import is_compiling
from torch.utils.hooks import RemovableHandle

from tensortap.exceptions import InvalidArgumentError, StopTraining
from tensortap.modes import ModeKeys
from tensortap.pytorch.callbacks import ModuleCallback
from tensortap.pytorch.hook import Hook
from tensortap.pytorch.led_hook import LedHook, missing_library
from tensortap.pytorch.modules import require_module

try:
    from accelerate import Accelerator
    from accelerate.tracking import GeneralTracker
    from accelerate.utils import extract_model_from_parallel
except ModuleNotFoundError as error:
    if error.name != "accelerate":
        raise
    raise missing_library("accelerate", "accelerate") from None

logger = logging.getLogger("tensortap")


class TensortapTracker(GeneralTracker):
    """Records a training loop that uses Accelerate, and lets rules end it.

    A forward pass of the model begins a step of mode TRAIN while ``model.training``; within ``accelerator.accumulate``
    all batches of an optimizer step make one. Forward passes after ``model.eval()`` are steps of mode EVAL (or
    PREDICT, after ``tracker.hook.set_mode(tensortap.modes.PREDICT)``). Weights, biases, gradients and losses are
    recorded as by ``tensortap.watch``; beside them the numbers given to ``accelerator.log`` (``scalar/<name>``). The
    ``config`` of ``init_trackers`` is not kept.

    When a rule with the action ``stop_training`` fires, the model's next forward pass raises ``StopTraining``. With
    several processes that would leave the others waiting: there ``accelerator.set_trigger()`` is called instead,
    and the loop asks ``accelerator.check_trigger()``. The run is closed by ``accelerator.end_training()``.

    Parameters
    ----------
    out_dir
        Directory of the run; None makes ``tensortap_runs/<date>-<time>-<pid>``.
    rules
        As for ``tensortap.watch``.
    on_stop
        ``"raise"`` or ``"trigger"``; None: by the number of processes.
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
        ``hook`` was given together with other arguments; ``on_stop`` is none of those words.

    Examples
    --------
    >>> tracker = TensortapTracker("runs/1", rules=["VanishingGradient:actions=stop_training"])
    >>> accelerator = Accelerator(log_with=tracker)
    >>> model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    >>> accelerator.init_trackers("project")
    >>> tracker.watch(accelerator, model)
    """

    name = "tensortap"
    requires_logging_directory = False
    main_process_only = False

    def __init__(
        self,
        out_dir: str | os.PathLike[str] | None = None,
        rules: Sequence[Any] = (),
        *,
        on_stop: str | None = None,
        hook: Hook | None = None,
        collections: Sequence[str] | None = None,
        save_interval: int = 1,
        save_raw_tensor: bool = False,
        **hook_arguments: Any,
    ) -> None:
        if on_stop not in (None, "raise", "trigger"):
            raise InvalidArgumentError(f"on_stop is 'raise', 'trigger' or None, not {on_stop!r}")
        super().__init__()
        self._led = LedHook(
            hook, out_dir, rules, collections, save_interval, save_raw_tensor, hook_arguments
        )
        self._on_stop = on_stop
        self._accelerator: Accelerator | None = None
        self._handles: list[RemovableHandle] = []
        self._begins_step = True

    @property
    def hook(self) -> Hook | None:
        """The hook that records; None before :meth:`watch`."""
        return self._led.hook

    #: The name that ``accelerator.get_tracker("tensortap", unwrap=True)`` asks for.
    tracker = hook

    def watch(
        self,
        accelerator: Accelerator,
        model: torch.nn.Module,
        loss: torch.nn.Module | None = None,
    ) -> None:
        """Record a model from now on.

        Parameters
        ----------
        accelerator
            Whose loop it is.
        model
            As it came or as ``accelerator.prepare`` gave it: its wrapper is taken off.
        loss
            Loss module whose output is recorded. For a loss function call
            ``tracker.hook.record_tensor_value("loss", value)``.

        Raises
        ------
        InvalidTypeError
            Not a ``torch.nn.Module``.
        RunExistsError
            ``out_dir`` already holds a run.
        """
        require_module(model, "watch")
        self._accelerator = accelerator
        model = extract_model_from_parallel(model, keep_torch_compile=False)
        self._led.attach(model)
        if loss is not None and self._led.hook is not None:
            self._led.hook.register_loss(loss)
        before = ModuleCallback(self._before_forward)
        self._handles.append(
            model.register_forward_pre_hook(before, prepend=True, with_kwargs=True)
        )

    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Record the numbers among some values; called by ``accelerator.log``. They belong to the step that is open."""
        self._led.record_scalars(values)

    def finish(self) -> None:
        """Close the run; called by ``accelerator.end_training``."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._led.close()

    # ---------------------------------------------------------------- called by PyTorch

    def _before_forward(self, model: torch.nn.Module, args: Any, kwargs: Any) -> None:
        if is_compiling() or self._accelerator is None or self._led.hook is None:
            return
        if self._begins_step or not model.training:
            self._led.end()
            self._heed_stop(self._led.take_stop(), self._accelerator)
        if not model.training:
            is_prediction = self._led.hook.mode == ModeKeys.PREDICT
            self._led.begin(ModeKeys.PREDICT if is_prediction else ModeKeys.EVAL)
            self._begins_step = True
            return
        if self._begins_step:
            self._led.begin(ModeKeys.TRAIN)
        self._begins_step = self._accelerator.sync_gradients

    def _heed_stop(self, stop: StopTraining | None, accelerator: Accelerator) -> None:
        if stop is None:
            return
        on_stop = self._on_stop or ("raise" if accelerator.num_processes == 1 else "trigger")
        if on_stop == "raise":
            raise stop
        logger.warning("Tensortap asks to end the training (accelerator.set_trigger): %s", stop)
        accelerator.set_trigger()
