"""What is put onto users' modules and parameters: callbacks that keep no hook alive and survive copies of the model."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.compiler import is_compiling, is_dynamo_compiling

from tensortap import _core


def is_real_call() -> bool:
    """Whether a module is called by the training: not traced by a compiler, not repeated by checkpointing.

    Checkpointing calls modules again while a backward pass is under way.
    """
    return not is_compiling() and bool(torch._C._current_graph_task_id() == -1)


class ModuleCallback:
    """A hook of modules or optimizers; in a copy of the model it does nothing."""

    __slots__ = ("_method",)

    def __init__(self, method: Callable[..., None] | None) -> None:
        self._method = weakref.WeakMethod(method) if method is not None else None

    def __call__(self, module: Any, args: Any, more: Any = None) -> None:
        method = self._method() if self._method is not None else None
        if method is not None:
            method(module, args, more)

    def __deepcopy__(self, memo: dict[int, Any]) -> ModuleCallback:
        return ModuleCallback(None)

    def __reduce__(self) -> tuple[type[ModuleCallback], tuple[None]]:
        return (ModuleCallback, (None,))


class RootCallback(ModuleCallback):
    """The one hook that stays on a registered model.

    A step in which nothing is due costs this call and one into the engine: what runs once in milliseconds finds cold
    caches, and every further line of Python would be felt.
    """

    __slots__ = ("_gate", "is_driver")

    def __init__(self, method: Callable[..., None], gate: _core.Gate) -> None:
        super().__init__(method)
        self._gate = gate
        self.is_driver = False

    def __call__(self, module: Any, args: Any, more: Any = None) -> None:
        if is_dynamo_compiling() or self._gate.pass_step(self.is_driver):
            return
        super().__call__(module, args, more)


class ParameterCallback:
    """A hook of one parameter, which passes on the id of its gradient; in a copy it does nothing."""

    __slots__ = ("_gradient_id", "_method")

    def __init__(
        self, method: Callable[[torch.Tensor, int], None] | None, gradient_id: int
    ) -> None:
        self._method = weakref.WeakMethod(method) if method is not None else None
        self._gradient_id = gradient_id

    def __call__(self, parameter: torch.Tensor) -> None:
        method = self._method() if self._method is not None else None
        if method is not None:
            method(parameter, self._gradient_id)

    def __deepcopy__(self, memo: dict[int, Any]) -> ParameterCallback:
        return ParameterCallback(None, self._gradient_id)

    def __reduce__(self) -> tuple[type[ParameterCallback], tuple[None, int]]:
        return (ParameterCallback, (None, self._gradient_id))
