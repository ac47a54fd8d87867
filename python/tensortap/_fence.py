"""The fence between a hook and the training it sits in."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from tensortap.exceptions import StopTraining

if TYPE_CHECKING:
    from tensortap._hook import BaseHook

P = ParamSpec("P")
R = TypeVar("R")
H = TypeVar("H", bound="BaseHook")


def fenced(method: Callable[Concatenate[H, P], R]) -> Callable[Concatenate[H, P], R | None]:
    """Keep a hook's faults away from the training.

    The wrapped method is called by the framework or in the training loop. An unexpected exception is
    logged once with its cause and switches the hook off; with ``strict=True`` it is raised.
    `StopTraining` always passes. A hook that is off, or a forked child's copy of one, does nothing.
    """

    @functools.wraps(method)
    def wrapper(self: H, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        if not self.is_active:
            return None
        try:
            return method(self, *args, **kwargs)
        except StopTraining:
            raise
        except Exception as error:
            self.fail(method.__name__, error)
            return None

    return wrapper
