"""What the callbacks for Lightning, Transformers and Accelerate share: a hook whose steps a library begins and ends.

Such a library knows what the hook by itself would have to guess: which forward passes belong to one
optimizer step, and which are validation. Nothing here imports one of them.
"""

from __future__ import annotations

import logging
import numbers
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch

from tensortap._opening import absolute_path
from tensortap.collection import flatten
from tensortap.config import ReductionConfig, SaveConfig
from tensortap.exceptions import InvalidArgumentError, InvalidTypeError, StopTraining
from tensortap.modes import ModeKeys
from tensortap.pytorch.hook import Hook
from tensortap.pytorch.watch import DEFAULT_COLLECTIONS, default_out_dir

logger = logging.getLogger("tensortap")


class LedHook:
    """A hook, made when it is first needed, and the steps that its library announces.

    No method raises into the training: the hook's own faults switch it off (``strict=True`` raises
    them), and a rule's wish to stop is kept in `stop`.

    Parameters
    ----------
    hook
        The user's own; then the other arguments must be left at their defaults, and the user closes it.
    out_dir
        Directory of the run; None makes one below ``tensortap_runs``.
    rules, collections, save_interval, save_raw_tensor, hook_arguments
        As for ``tensortap.watch``.

    Raises
    ------
    InvalidArgumentError
        Both ``hook`` and arguments for making one were given, or one of a wrong type.
    """

    def __init__(
        self,
        hook: Hook | None,
        out_dir: str | os.PathLike[str] | None,
        rules: Sequence[Any],
        collections: Sequence[str] | None,
        save_interval: int,
        save_raw_tensor: bool,
        hook_arguments: Mapping[str, Any],
    ) -> None:
        if hook is not None and not isinstance(hook, Hook):
            raise InvalidTypeError(
                f"hook= takes a tensortap.pytorch.Hook, not {type(hook).__name__}"
            )
        is_default = out_dir is None and not rules and collections is None and not hook_arguments
        if hook is not None and not (is_default and save_interval == 1 and not save_raw_tensor):
            raise InvalidArgumentError(
                "give either hook= or what a hook is made of (out_dir, rules, collections, ...), not both"
            )
        self.stop: StopTraining | None = None
        self._is_own = hook is None
        self._hook = hook
        self._out_dir = None if out_dir is None else absolute_path(out_dir)
        self._has_run = False
        self._modules: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._arguments = {
            "save_config": SaveConfig(save_interval=save_interval),
            "reduction_config": ReductionConfig(save_raw_tensor=save_raw_tensor),
            "include_collections": flatten(
                DEFAULT_COLLECTIONS if collections is None else collections
            ),
            "rules": list([rules] if isinstance(rules, str) else rules),
            **hook_arguments,
        }

    @property
    def hook(self) -> Hook | None:
        """The hook; None before the first step."""
        return self._hook

    @property
    def has_rules(self) -> bool:
        """Whether anything could ask to stop."""
        return not self._is_own or bool(self._arguments["rules"])

    def attach(self, module: torch.nn.Module) -> None:
        """Make the hook if there is none, and register a module unless it is registered.

        A run that this object has closed is gone on with.
        """
        if self._hook is None:
            if self._out_dir is None:
                self._out_dir = default_out_dir()
            arguments = dict(self._arguments)
            if self._has_run:
                arguments["resume"] = True
            self._hook = Hook(self._out_dir, **arguments)
            self._has_run = True
            self._modules.clear()
        if not self._hook.is_active or module in self._modules:
            return
        self._modules.add(module)
        with suppress(InvalidArgumentError):  # the user has registered it
            self._hook.register_module(module)

    def begin(self, mode: ModeKeys) -> bool:
        """End the open step and begin one of a mode. Gives whether anything is to be saved in it."""
        self.end()  # by itself: a wish to stop must not keep the next step from beginning

        def begin_step(hook: Hook) -> None:
            hook._let_lead()
            hook.set_mode(mode)
            hook._begin_step()

        self._guard("begin", begin_step)
        return self.is_due

    @property
    def is_due(self) -> bool:
        """Whether the hook saves anything in the step."""
        return self._hook is not None and self._hook.is_active and self._hook._is_due

    @property
    def in_step(self) -> bool:
        """Whether a step is open."""
        hook = self._hook
        return hook is not None and hook.is_active and bool(hook._engine.in_step)

    def end(self) -> None:
        """End the open step; see `stop` afterwards."""

        def end_step(hook: Hook) -> None:
            hook._finish_step()
            hook._raise_if_stopped()

        self._guard("end", end_step)

    def take_stop(self) -> StopTraining | None:
        """What a rule that asked to stop has to say, once."""
        stop, self.stop = self.stop, None
        return stop

    def record_loss(self, name: str, loss: Any) -> None:
        """Record a loss of the open step as ``<name>_output_<i>``; anything but a floating tensor is passed over."""
        if isinstance(loss, torch.Tensor) and loss.is_floating_point() and self.in_step:
            self._guard("record_loss", lambda hook: hook.record_tensor_value(name, loss))

    def record_scalars(self, values: Mapping[str, Any]) -> None:
        """Record numbers that the library logged, as ``scalar/<name>``.

        They belong to the step that is open. Between steps they are means of an epoch or of a whole
        training: these go to a step of their own in mode GLOBAL, lest they pass for values of the step that comes next.
        """
        numbers_only = {name: value for name, value in values.items() if _is_number(value)}
        if not numbers_only:
            return

        def record(hook: Hook) -> None:
            is_between = not hook._engine.in_step
            mode = hook.mode
            if is_between:
                hook.set_mode(ModeKeys.GLOBAL)
                hook._engine.begin_step()
            for name, value in numbers_only.items():
                hook.save_scalar(name, value)
            if is_between:
                hook._engine.end_step()
                hook.set_mode(mode)
                hook._raise_if_stopped()

        self._guard("record_scalars", record)

    def close(self) -> None:
        """End the open step; close the hook if it is not the user's."""
        if self._hook is None:
            return
        self.end()
        if self._is_own:
            self._hook.close()
            self._hook = None
        else:
            self._hook.flush()

    def _guard(self, where: str, action: Callable[[Hook], object]) -> None:
        hook = self._hook
        if hook is None or not hook.is_active:
            return
        try:
            action(hook)
        except StopTraining as stop:
            self.stop = stop
        except Exception as error:
            hook.fail(where, error)


def _is_number(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return bool(value.numel() == 1)
    return isinstance(value, numbers.Real)


def missing_library(name: str, package: str) -> ImportError:
    """What to raise where a library is not installed."""
    return ImportError(
        f"tensortap.pytorch.{name} needs {package}, which is not installed: pip install {package}"
    )
