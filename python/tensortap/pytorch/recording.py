"""From PyTorch's tensors to the engine: which of them are due, each described once, in one call."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from tensortap import _core
from tensortap.pytorch.device import DeviceCollector
from tensortap.pytorch.tensors import Item, RecordedTensors, make_host_item, make_item


class Recording:
    """Hands tensors to a session.

    Attributes
    ----------
    session
        Where they go.
    unreadable : set of int
        Ids of the tensors that could not be read, in all steps so far.
    """

    def __init__(self, session: _core.Session) -> None:
        self.session = session
        self._recorded = RecordedTensors()
        self._value_indices: dict[str, int] = {}
        self._ids: dict[str, int | None] = {}
        self.unreadable: set[int] = set()
        self._device = DeviceCollector(session, self.unreadable)

    def begin_step(self) -> None:
        """Forget what the step before recorded."""
        self._recorded.clear()
        self._value_indices.clear()

    def end_step(self) -> None:
        """End the engine's step; results that are still on their way from a device follow it."""
        self._device.end_step()

    def settle(self) -> None:
        """Wait for the results that are still on their way."""
        self._device.settle()

    def note_graph(self) -> None:
        """Say, once, that nothing is recorded while a CUDA graph is captured."""
        self._device.warn_of_graph()

    def forget_ids(self) -> None:
        """Decide anew what is wanted: collections changed."""
        self._ids.clear()

    def id_of(self, name: str) -> int | None:
        """Id of a name; None when no saved collection wants it."""
        if name not in self._ids:
            is_included = self.session.is_included(name)
            self._ids[name] = self.session.intern(name) if is_included else None
        return self._ids[name]

    def record_number(self, name: str, value: float | None) -> None:
        """Record a number that is due; None is no number."""
        tensor_id = self.id_of(name)
        if tensor_id is not None and value is not None:
            self.session.record_number(tensor_id, value)

    def record(self, tensors: Iterable[tuple[int | None, torch.Tensor]]) -> None:
        """Record those of (id, tensor) that are due; None stands for an id that nobody wants."""
        is_due = self.session.is_due
        items: list[Item] = []
        keep_alive: list[torch.Tensor] = []
        for tensor_id, tensor in tensors:
            if tensor_id is None or not is_due(tensor_id):
                continue
            item = make_item(tensor_id, tensor, keep_alive)
            if item is None:
                self.unreadable.add(tensor_id)
            else:
                items.append(item)
        if items:
            self._device.record_batch(items)

    def record_shared(self, tensors: Iterable[tuple[int | None, torch.Tensor]]) -> None:
        """The same for tensors that go by several names: one module's output is the next one's input."""
        new: list[tuple[int, torch.Tensor]] = []
        for tensor_id, tensor in tensors:
            if tensor_id is None or not self.session.is_due(tensor_id):
                continue
            source = self._recorded.find(tensor)
            if source is not None and self._device.record_same(tensor_id, source):
                continue
            new.append((tensor_id, tensor))
            self._recorded.add(tensor, tensor_id)
        if new:
            self.record(new)

    def record_named(self, name: str, tensor: torch.Tensor) -> None:
        """Record a value as ``<name>_output_<i>``, i counting the calls of the step."""
        session = self.session
        index = self._value_indices.get(name, 0)
        self._value_indices[name] = index + 1
        full_name = f"{name}_output_{index}"
        if session.is_included(full_name):
            self.record_shared([(session.intern(full_name), tensor)])

    def record_raw(self, tensor_id: int, tensor: torch.Tensor) -> None:
        """Keep a tensor with its values, due or not."""
        keep_alive: list[torch.Tensor] = []
        item = make_host_item(tensor_id, tensor, keep_alive)
        if item is None:
            self.unreadable.add(tensor_id)
        else:
            self.session.record_raw(*item)

    def unreadable_names(self) -> list[str]:
        """Names of what could not be read, sorted."""
        return sorted(self.session.tensor_name(tensor_id) for tensor_id in self.unreadable)
