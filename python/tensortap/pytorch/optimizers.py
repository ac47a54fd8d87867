"""What optimizers hold: learning rates, state, and how far a step moves the weights."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterator

import torch

from tensortap.pytorch.parameters import (
    Named,
    ParameterEntry,
    ParameterTable,
    gradients_of,
)
from tensortap.pytorch.recording import Recording

# A count of steps, the same for every parameter.
_UNINTERESTING_STATE = frozenset({"step"})


class OptimizerTable:
    """The optimizers that update registered parameters, and the names of what they hold."""

    def __init__(self, recording: Recording, parameters: ParameterTable) -> None:
        self._session = recording.session
        self._recording = recording
        self._parameters = parameters
        self._ours: weakref.WeakKeyDictionary[torch.optim.Optimizer, bool] = (
            weakref.WeakKeyDictionary()
        )
        self._names: weakref.WeakKeyDictionary[torch.optim.Optimizer, str] = (
            weakref.WeakKeyDictionary()
        )
        self._asks_for_state = False
        self._state_is_wanted: dict[str, bool] = {}  # by optimizer; until collections change
        self._before: list[tuple[int, ParameterEntry, torch.Tensor]] = []

    def is_ours(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether it updates any registered parameter."""
        if not self._ours.get(optimizer, False):
            self._ours[optimizer] = self._parameters.owns_any_of(optimizer)
        return self._ours[optimizer]

    def forget_ids(self, extras: Collection[str]) -> None:
        """Decide anew what is wanted: collections changed; `extras` are those asked for."""
        self._asks_for_state = "optimizer_variables" in extras
        self._state_is_wanted.clear()

    def name_of(self, optimizer: torch.optim.Optimizer) -> str:
        """Name of its class, the second of a class with ``_1``; one that is made anew takes over its predecessor's."""
        name = self._names.get(optimizer)
        if name is None:
            base = name = type(optimizer).__name__
            taken = set(self._names.values())
            number = 0
            while name in taken:
                number += 1
                name = f"{base}_{number}"
            self._names[optimizer] = name
        return name

    def record_learning_rates(self, optimizer: torch.optim.Optimizer) -> None:
        """Record the learning rate of every parameter group."""
        prefix = f"learning_rate/{self.name_of(optimizer)}/"
        for index, group in enumerate(optimizer.param_groups):
            rate = group.get("lr")
            if isinstance(rate, torch.Tensor) and rate.numel() == 1:
                rate = rate.item()
            if isinstance(rate, int | float):
                self._recording.record_number(f"{prefix}{index}", float(rate))

    def state(self, optimizer: torch.optim.Optimizer) -> Iterator[Named]:
        """Tensors of an optimizer's state that are wanted."""
        name = self.name_of(optimizer)
        if not self._asks_for_state or not self._state_is_wanted.get(name, True):
            return
        is_wanted = is_known = False
        for entry in self._parameters.entries_of(optimizer):
            state = optimizer.state.get(entry.parameter)
            if not isinstance(state, dict):
                continue
            for key, value in state.items():
                if not isinstance(value, torch.Tensor) or key in _UNINTERESTING_STATE:
                    continue
                is_known = True
                state_id = self._recording.id_of(f"optimizer/{entry.name}/{key}")
                if state_id is not None:
                    is_wanted = True
                    yield state_id, value
        # State appears with the first step; from then on one answer holds for all.
        if is_known:
            self._state_is_wanted[name] = is_wanted

    def remember_weights(self, entries: list[ParameterEntry]) -> None:
        """Copy the weights whose update is to be measured; without a wish for it nothing is copied."""
        self._before.clear()
        for entry in entries:
            ratio_id = entry.ids.update_ratio
            if ratio_id is None or not self._session.is_due(ratio_id):
                continue
            weight = entry.parameter.detach()
            if weight.layout is torch.strided and (
                weight.is_floating_point() or weight.is_complex()
            ):
                self._before.append((ratio_id, entry, weight.clone()))

    def record_update_ratios(self) -> None:
        """Record l2 norm of the update / l2 norm of the weight before it; a weight of norm 0 has none."""
        for ratio_id, entry, before in self._before:
            if entry.parameter.shape != before.shape:
                continue
            norm = _l2(before)
            if norm > 0.0:
                wide = _wide(before.dtype)
                update = entry.parameter.detach().to(wide) - before.to(wide)
                self._session.record_number(ratio_id, _l2(update) / norm)
        self._before.clear()


def unscaled_gradients(
    optimizer: torch.optim.Optimizer, entries: list[ParameterEntry]
) -> Iterator[Named]:
    """Gradients that an optimizer is about to use; a fused one may be told to take out the scale itself."""
    scale = getattr(optimizer, "grad_scale", None)
    if not isinstance(scale, torch.Tensor):
        return gradients_of(entries)
    return ((tensor_id, gradient.detach() / scale) for tensor_id, gradient in gradients_of(entries))


def _l2(tensor: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor, dtype=_wide(tensor.dtype)))


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.complex128 if dtype.is_complex else torch.float64
