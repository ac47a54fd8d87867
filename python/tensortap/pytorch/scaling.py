"""Loss scaling of mixed precision: the scale, and the optimizer steps that a ``GradScaler`` skips."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch

from tensortap.pytorch.interception import AttributeSlot, Interception

_step = Interception(AttributeSlot(torch.amp.GradScaler, "step"))
_scale_by_class: dict[type, Interception] = {}

# FSDP's scaler scales in a way of its own; importing it takes a while, and who uses it has it.
_SHARDED_SCALER = ("torch.distributed.fsdp.sharded_grad_scaler", "ShardedGradScaler")


def _scale_interceptions() -> list[Interception]:
    classes = [torch.amp.GradScaler]
    sharded = getattr(sys.modules.get(_SHARDED_SCALER[0]), _SHARDED_SCALER[1], None)
    if sharded is not None and "scale" in vars(sharded):
        classes.append(sharded)
    for scaler_class in classes:
        if scaler_class not in _scale_by_class:
            slot = AttributeSlot(scaler_class, "scale")
            _scale_by_class[scaler_class] = Interception(slot)
    return list(_scale_by_class.values())


class ScalingWatch:
    """Follows the gradient scalers of a training while a hook is open.

    Parameters
    ----------
    on_scale
        Called as ``on_scale(scaler)`` when a loss was scaled.
    on_step
        Called as ``on_step(scaler, optimizer)`` after a scaler's step.
    """

    def __init__(
        self,
        on_scale: Callable[[torch.amp.GradScaler], None],
        on_step: Callable[[torch.amp.GradScaler, torch.optim.Optimizer], None],
    ) -> None:
        self._on_scale = on_scale
        self._on_step = on_step
        self._scaler: weakref.ref[torch.amp.GradScaler] | None = None
        self._skipped = 0
        self._skipped_unseen: torch.Tensor | None = None  # on the device; nobody waited for it

    def open(self) -> None:
        """Listen."""
        for interception in _scale_interceptions():
            interception.add(self._around_scale)
        _step.add(self._around_step)

    def close(self) -> None:
        """Leave PyTorch as it was."""
        for interception in _scale_by_class.values():
            interception.remove(self._around_scale)
        _step.remove(self._around_step)

    def begin_step(self) -> None:
        """Forget the step before."""
        self._scaler = None

    @property
    def is_in_use(self) -> bool:
        """Whether a loss of this step was scaled."""
        return self._scaler is not None

    def skipped_steps(self) -> int:
        """How many optimizer steps were left out."""
        unseen = self._skipped_unseen
        return self._skipped + (0 if unseen is None else int(unseen.item()))

    def has_skipped(
        self, scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer, *, is_due: bool
    ) -> bool:
        """Count whether a scaler's step left out the optimizer's, and say so.

        Parameters
        ----------
        is_due
            False: do not wait for a device to know; it is counted all the same.
        """
        found = _found_infs(scaler, optimizer)
        asynchronous = getattr(optimizer, "_step_supports_amp_scaling", False)
        if not is_due and asynchronous and any(not tensor.is_cpu for tensor in found):
            skipped = (sum(tensor.detach() for tensor in found) > 0).to(torch.int64)
            unseen = self._skipped_unseen
            self._skipped_unseen = skipped if unseen is None else unseen + skipped
            return False
        has_skipped = any(bool(tensor.item()) for tensor in found)
        self._skipped += has_skipped
        return has_skipped

    def has_overflow(self) -> bool:
        """Whether gradients of this step that were unscaled are known to be infinite or NaN."""
        scaler = self._scaler() if self._scaler is not None else None
        return scaler is not None and any(bool(tensor.item()) for tensor in _found_infs(scaler))

    def unscaled(self, gradient: torch.Tensor) -> torch.Tensor | None:
        """What a gradient is without the scale of the loss; None when it is infinite or NaN.

        Parameters
        ----------
        gradient
            As the backward pass has left it.
        """
        scaler = self._scaler() if self._scaler is not None else None
        if scaler is None:
            return gradient
        is_scaled = not _found_infs(scaler)  # else unscale_ has been there
        plain = gradient.detach() / (scaler.get_scale() if is_scaled else 1.0)
        values = plain.coalesce().values() if plain.layout is torch.sparse_coo else plain
        return plain if bool(torch.isfinite(values).all()) else None

    def _around_scale(
        self, call: Callable[..., Any], scaler: torch.amp.GradScaler, *args: Any, **kwargs: Any
    ) -> Any:
        result = call(scaler, *args, **kwargs)
        if scaler.is_enabled():
            self._scaler = weakref.ref(scaler)
            self._on_scale(scaler)
        return result

    def _around_step(
        self,
        call: Callable[..., Any],
        scaler: torch.amp.GradScaler,
        optimizer: torch.optim.Optimizer,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        result = call(scaler, optimizer, *args, **kwargs)
        if scaler.is_enabled():
            self._on_step(scaler, optimizer)
        return result


def _found_infs(
    scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer | None = None
) -> list[torch.Tensor]:
    """The flags, one a device, that a scaler sets when it unscales: of one optimizer or of all."""
    states = getattr(scaler, "_per_optimizer_states", {})
    chosen = list(states.values()) if optimizer is None else [states.get(id(optimizer), {})]
    return [flag for state in chosen for flag in state.get("found_inf_per_device", {}).values()]
