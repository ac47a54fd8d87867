"""CUDA graphs: while one is captured, nothing of ours may get onto the device, let alone wait for it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch

from tensortap._fence import fenced

P = ParamSpec("P")
R = TypeVar("R")
H = TypeVar("H", bound=Any)


def is_capturing() -> bool:
    """Whether the current stream records a CUDA graph. No CUDA is initialized for the question."""
    return torch.cuda.is_initialized() and bool(torch.cuda.is_current_stream_capturing())


def called_by_torch(
    method: Callable[Concatenate[H, P], R],
) -> Callable[Concatenate[H, P], R | None]:
    """A hook's method that PyTorch calls: `fenced`, and does nothing while a graph is captured but say so once."""

    @functools.wraps(method)
    def outside_graphs(self: H, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        if is_capturing():
            self._recording.note_graph()
            return None
        return method(self, *args, **kwargs)

    return fenced(outside_graphs)
