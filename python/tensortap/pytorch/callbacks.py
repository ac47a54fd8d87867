"""What is put onto users' modules and parameters: callbacks that keep no hook alive and survive copies of the model."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch.compiler import is_compiling

from tensortap import _core

_is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", lambda: False)

# How a callback is pickled: as a function of Python's own that takes anything and gives None. A pickled model is
# loaded where nobody has heard of Tensortap, too.
_NOTHING = (getattr, (nullcontext(), "__exit__"))


def is_real_call() -> bool:
    """Whether a module is called by the training: not traced, not repeated by checkpointing.

    Checkpointing calls modules again while a backward pass is under way.
    """
    in_backward_pass = torch._C._current_graph_task_id() != -1
    return not in_backward_pass and not is_compiling() and not torch._C._is_tracing()


class ModuleCallback:
    """A hook of modules or optimizers; in a copy of the model it does nothing."""

    __slots__ = ("_method",)

    def __init__(self, method: Callable[..., None] | None) -> None:
        self._method = weakref.WeakMethod(method) if method is not None else None

    def __call__(self, module: Any, args: Any, more: Any = None) -> None:
        # Before anything that a compiler would have to break its graph for.
        if is_compiling():
            return
        method = self._method() if self._method is not None else None
        if method is not None:
            method(module, args, more)

    def __deepcopy__(self, memo: dict[int, Any]) -> ModuleCallback:
        return ModuleCallback(None)

    def __reduce__(self) -> tuple[Any, ...]:
        return _NOTHING


class CompiledCall:
    """A message from compiled code, in which hooks cannot run: the model was called."""

    __slots__ = ("happened",)

    def __init__(self) -> None:
        self.happened = False


class _OpenGate:
    """In place of the engine's gate: no step begins here, and every call comes through."""

    def pass_step(self, driver: bool) -> bool:
        return False


class RootCallback(ModuleCallback):
    """The one hook that stays on a registered model.

    A step in which nothing is due costs this call and one into the engine: what runs once in milliseconds finds cold
    caches, and every further line of Python would be felt.
    """

    __slots__ = ("_gate", "compiled_call", "is_driver")

    def __init__(self, method: Callable[..., None], gate: _core.Gate) -> None:
        super().__init__(method)
        self._gate: _core.Gate | _OpenGate = gate
        self.is_driver = False
        self.compiled_call = CompiledCall()

    def __call__(self, module: Any, args: Any, more: Any = None) -> None:
        if is_compiling():
            # The compiled code will set this each time it has run, with no break in its graph.
            if not _is_exporting():
                self.compiled_call.happened = True
        elif torch._C._current_graph_task_id() == -1 and not self._gate.pass_step(self.is_driver):
            super().__call__(module, args, more)

    def let_lead(self) -> None:
        """Leave it to a training library to say where steps begin."""
        self._gate = _OpenGate()

    def make_up(self, module: Any) -> None:
        """Do what could not be done in a call of compiled code."""
        if not self._gate.pass_step(self.is_driver):
            super().__call__(module, (), {})


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

    def __reduce__(self) -> tuple[Any, ...]:
        return _NOTHING
