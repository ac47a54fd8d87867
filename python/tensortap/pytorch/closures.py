"""Optimizers that are given a closure: the gradients of the step exist only after it has run, not before the step."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, TypeAlias

import torch

#: Positional (with the optimizer first) and keyword arguments of an optimizer's step.
StepArguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]


class OptimizerCallback:
    """What PyTorch calls around an optimizer's step: may give other arguments for it."""

    __slots__ = ("_method",)

    def __init__(self, method: Callable[..., StepArguments | None]) -> None:
        self._method = weakref.WeakMethod(method)

    def __call__(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> StepArguments | None:
        method = self._method()
        return method(optimizer, args, kwargs) if method is not None else None


def follow_closure(
    args: tuple[Any, ...], kwargs: dict[str, Any], after: Callable[[], object]
) -> StepArguments | None:
    """Arguments with a closure that calls ``after`` at its end; None when no closure is among them."""
    closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
    if not callable(closure):
        return None

    def followed(*inner_args: Any, **inner_kwargs: Any) -> Any:
        result = closure(*inner_args, **inner_kwargs)
        after()
        return result

    if "closure" in kwargs:
        return args, {**kwargs, "closure": followed}
    return (args[0], followed, *args[2:]), kwargs
