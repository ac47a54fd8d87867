"""Gradients before they are clipped, and their norm: seen in ``torch.nn.utils``'s functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.nn.utils import clip_grad

from tensortap.pytorch.interception import Interception, slot_of

# clip_grad_norm_ ends in the first; where PyTorch does not have it, clip_grad_norm_ does all by itself.
_HAS_NORM_STEP = hasattr(clip_grad, "_clip_grads_with_norm_")
_by_norm = Interception(
    slot_of(clip_grad, "_clip_grads_with_norm_" if _HAS_NORM_STEP else "clip_grad_norm_")
)
_by_value = Interception(slot_of(clip_grad, "clip_grad_value_"))


class ClippingWatch:
    """Tells a hook of gradients that are about to be clipped, while it is open.

    Parameters
    ----------
    before
        Called as ``before(parameters)``.
    on_norm
        Called with the norm that they had.
    """

    def __init__(
        self,
        before: Callable[[list[torch.Tensor]], None],
        on_norm: Callable[[torch.Tensor], None],
    ) -> None:
        self._before = before
        self._on_norm = on_norm

    def open(self) -> None:
        """Listen."""
        _by_norm.add(self._on_clip_by_norm)
        _by_value.add(self._on_clip_by_value)

    def close(self) -> None:
        """Leave PyTorch as it was."""
        _by_norm.remove(self._on_clip_by_norm)
        _by_value.remove(self._on_clip_by_value)

    def _on_clip_by_norm(
        self, call: Callable[..., Any], parameters: Any, *args: Any, **kwargs: Any
    ) -> Any:
        parameters = _as_list(parameters)
        self._before(parameters)
        result = call(parameters, *args, **kwargs)
        norm = kwargs.get("total_norm", args[1] if len(args) > 1 else None)
        norm = norm if _HAS_NORM_STEP else result
        if isinstance(norm, torch.Tensor):
            self._on_norm(norm)
        return result

    def _on_clip_by_value(
        self, call: Callable[..., Any], parameters: Any, *args: Any, **kwargs: Any
    ) -> Any:
        parameters = _as_list(parameters)
        self._before(parameters)
        return call(parameters, *args, **kwargs)


def _as_list(parameters: torch.Tensor | Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Parameters that can be looked at twice."""
    return [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
