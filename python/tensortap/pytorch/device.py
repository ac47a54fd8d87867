"""Tensors that lie on a device (a GPU): statistics are computed there and fetched when the step is over.

What is recorded is copied at once into a slab of device memory, rows of equal length padded with NaN. The copy is
work of the current stream like the training's own, so it reads what the tensor holds now: whatever overwrites the
tensor later comes later in the stream. When a slab is full, or the step ends, a fixed number of operations computes
all its rows together; the rows travel to pinned memory, and an event tells when they are there. Nothing waits for
the device while the step runs. At its end the engine holds the step back (``Session.defer_step``) until the rows have
come, which is looked for at the ends of the following steps.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import torch
from torch.utils._python_dispatch import _disable_current_modes

from tensortap import _core
from tensortap.pytorch.device_slabs import Copies, Part, Slab, host_copy
from tensortap.pytorch.device_statistics import load
from tensortap.pytorch.graphs import is_capturing
from tensortap.pytorch.tensors import DTYPE_CODES, DeviceItem, HostItem, Item, to_strided

logger = logging.getLogger("tensortap")

#: (id, dtype code, shape, address of the raw value or 0, has a histogram, parts): what ``complete_step`` takes.
Computed: TypeAlias = tuple[int, int, tuple[int, ...], int, bool, list[tuple[int, int, int, int]]]

# (elements of a tensor from which on, elements of a row): long rows for long tensors, little padding for short ones.
_ROW_LENGTHS = ((1 << 20, 1 << 16), (1 << 12, 1 << 12), (0, 1 << 8))
# Steps that may wait for their device; the next one waits for the first of them.
_MAX_WAITING_STEPS = 2

_RAW, _HISTOGRAM = 2, 4  # bits of Session.due_flags
_WIDE_INTEGERS = (torch.int64, getattr(torch, "uint64", torch.int64))


@dataclass
class _Recorded:
    """One tensor of the open step."""

    dtype_code: int
    shape: tuple[int, ...]
    raw: torch.Tensor | None  # in host memory, perhaps still on its way
    parts: list[Part] = field(default_factory=list)

    def computed(self, tensor_id: int, flags: int) -> Computed:
        parts = [
            (*part.slab.addresses(part.first_row), part.row_count, part.padding)
            for part in self.parts
        ]
        # Nothing is read of an empty value, which has no address.
        address = self.raw.data_ptr() or 1 if self.raw is not None and flags & _RAW else 0
        has_histogram = bool(flags & _HISTOGRAM)
        return (tensor_id, self.dtype_code, self.shape, address, has_histogram, parts)


class _WaitingStep:
    """A step that is over, and whose results are on their way."""

    def __init__(
        self, tensors: dict[int, tuple[_Recorded, int]], events: list[Any], *, is_on_cuda: bool
    ) -> None:
        self.ticket = 0
        self.is_on_cuda = is_on_cuda
        self._tensors = tensors
        self._events = events

    def is_ready(self) -> bool:
        return all(event.query() for event in self._events)

    def results(self) -> list[Computed]:
        """Wait for the results, and describe them for the engine."""
        for event in self._events:
            event.synchronize()
        return [record.computed(id_, flags) for id_, (record, flags) in self._tensors.items()]


class DeviceCollector:
    """What a hook hands to the engine by way of devices.

    Thread safety: ``record_*`` may be called from several threads (autograd has one a device); the rest
    from the training thread.
    """

    def __init__(self, session: _core.Session, lost: set[int] | None = None) -> None:
        """`lost` receives the ids of tensors that could not be recorded."""
        self._session = session
        self._lost = set() if lost is None else lost
        self._lock = threading.Lock()
        self._tensors: dict[int, tuple[_Recorded, int]] = {}
        self._slabs: dict[tuple[Any, ...], Slab] = {}  # those that are not full
        self._streams: dict[tuple[str, int | None, int], tuple[torch.device, Any]] = {}
        self._waiting: deque[_WaitingStep] = deque()
        self._warned: set[str] = set()
        self._has_rules: bool | None = None  # known when the first step ends

    # ---------------------------------------------------------------- while a step is open

    def record_batch(self, items: Sequence[Item]) -> None:
        """Record tensors that are due, on the host or on a device."""
        if DeviceItem not in map(type, items):  # nearly always, and the quickest way to know
            self._session.record_batch(cast("Sequence[HostItem]", items))
            return
        on_host = [item for item in items if not isinstance(item, DeviceItem)]
        if on_host:
            self._session.record_batch(on_host)
        self._add_all([item for item in items if isinstance(item, DeviceItem)])

    def record_same(self, tensor_id: int, source: int) -> bool:
        """Give a tensor what this step holds of another; False when that is less than is due."""
        if source not in self._tensors:
            return self._session.record_same(tensor_id, source)
        with self._lock:
            record, source_flags = self._tensors[source]
            flags = self._session.due_flags(tensor_id)
            if flags & ~source_flags:
                return False
            self._tensors[tensor_id] = (record, flags)
            return True

    def _add_all(self, items: Sequence[DeviceItem]) -> None:
        """Read tensors in the order of the current stream."""
        if is_capturing() and any(item.tensor.is_cuda for item in items):
            self.warn_of_graph(item.tensor_id for item in items)
            return
        with self._lock:
            added: list[int] = []
            try:
                with _aside(items[0].tensor.device):
                    copies = Copies()
                    for item in items:
                        added.append(item.tensor_id)
                        self._add(item, copies)
                    copies.run()
            except RuntimeError as error:  # no memory, mostly
                for tensor_id in added:
                    self._tensors.pop(tensor_id, None)
                self._warn_of_fault(error, added)

    def _add(self, item: DeviceItem, copies: Copies) -> None:
        tensor = to_strided(item.tensor).resolve_neg()
        flags = self._session.due_flags(item.tensor_id)
        stream = _stream_for(tensor)
        self._streams.setdefault(_stream_key(tensor.device, stream), (tensor.device, stream))
        raw = _raw_copy(tensor) if flags & _RAW else None
        record = _Recorded(DTYPE_CODES[tensor.dtype], tuple(tensor.shape), raw)
        self._tensors[item.tensor_id] = (record, flags)
        self._place(_flat(tensor), record, stream, bool(flags & _HISTOGRAM), copies)

    def _place(
        self,
        numbers: torch.Tensor,
        record: _Recorded,
        stream: Any,
        has_histogram: bool,
        copies: Copies,
    ) -> None:
        count = numbers.numel()
        row_length = next(row for least, row in _ROW_LENGTHS if count >= least)
        key = (*_stream_key(numbers.device, stream), numbers.dtype, row_length)
        begin = 0
        while begin < count:
            slab = self._slabs.get(key)
            if slab is None:
                slab = Slab(numbers.device, stream, numbers.dtype, row_length)
                self._slabs[key] = slab
            slab.wants_histogram |= has_histogram
            end = min(count, begin + slab.free_elements)
            part = Part(slab, slab.row_count, 0, 0)
            copies.add(slab.take(end - begin), load(numbers[begin:end]))
            part.row_count = slab.row_count - part.first_row
            part.padding = part.row_count * row_length - (end - begin)
            record.parts.append(part)
            begin = end
            if slab.free_elements == 0:
                copies.run()
                slab.compute()
                del self._slabs[key]

    # ---------------------------------------------------------------- between steps

    def end_step(self) -> None:
        """End the engine's step: handed on at once for rules to see, else as soon as its results have come."""
        step = self._take_step() if self._tensors or self._slabs else None
        if step is None:
            self._session.end_step()
        else:
            if self._has_rules is None:
                self._has_rules = bool(self._session.rule_reports())
            step.ticket = self._session.defer_step()
            self._waiting.append(step)
        self.settle(0 if self._has_rules else _MAX_WAITING_STEPS)

    def settle(self, may_wait: int = 0) -> None:
        """Hand on the steps that are ready, and wait for others until at most ``may_wait`` are left."""
        while self._waiting:
            first = self._waiting[0]
            if first.is_on_cuda and is_capturing():
                return
            if len(self._waiting) <= may_wait and not first.is_ready():
                return
            self._waiting.popleft()
            results: list[Computed] = []
            try:
                results = first.results()
            finally:  # what the host has recorded of the step goes on in any case
                self._session.complete_step(first.ticket, results)

    def _take_step(self) -> _WaitingStep | None:
        with self._lock:
            tensors, self._tensors = self._tensors, {}
            slabs, self._slabs = self._slabs, {}
            streams, self._streams = self._streams, {}
            if not tensors:
                return None
            is_on_cuda = any(device.type == "cuda" for device, _ in streams.values())
            if is_on_cuda and is_capturing():
                self.warn_of_graph(tensors)
                return None
            try:
                for slab in slabs.values():
                    with _aside(slab.device):
                        slab.compute()
                events = [
                    stream.record_event() for _, stream in streams.values() if stream is not None
                ]
            except RuntimeError as error:
                self._warn_of_fault(error, tensors)
                return None
            return _WaitingStep(tensors, events, is_on_cuda=is_on_cuda)

    def _warn_of_fault(self, error: Exception, lost: Iterable[int]) -> None:
        self._warn("fault", f"tensors on a device were not recorded: {error}", lost)

    def warn_of_graph(self, lost: Iterable[int] = ()) -> None:
        """Say, once, why nothing is recorded now."""
        what = "nothing on its device is recorded meanwhile, nor when it is replayed"
        self._warn("graph", f"a CUDA graph is being captured: {what}", lost)

    def _warn(self, key: str, message: str, lost: Iterable[int]) -> None:
        self._lost.update(lost)
        if key not in self._warned:
            self._warned.add(key)
            logger.warning("%s", message)


@contextlib.contextmanager
def _aside(device: torch.device) -> Iterator[None]:
    """Operations of our own: unseen by autograd, autocast and the user's dispatch modes."""
    autocast: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if device.type in ("cpu", "cuda", "xpu"):  # older versions know it of no others
        autocast = torch.autocast(device.type, enabled=False)
    with torch.inference_mode(), autocast, _disable_current_modes():
        yield


def _stream_for(tensor: torch.Tensor) -> Any:
    """Stream in which a tensor is read now; None where there are none."""
    if tensor.device.type not in ("cuda", "xpu"):
        return None
    stream = getattr(torch, tensor.device.type).current_stream(tensor.device)
    tensor.record_stream(stream)  # its memory may be of another one
    return stream


def _stream_key(device: torch.device, stream: Any) -> tuple[str, int | None, int]:
    return (device.type, device.index, 0 if stream is None else stream.stream_id)


def _raw_copy(tensor: torch.Tensor) -> torch.Tensor | None:
    """Copy a tensor in C order; None when its one number is in its statistics."""
    is_plain = not tensor.is_complex() and tensor.dtype not in _WIDE_INTEGERS
    if tensor.numel() == 1 and is_plain:
        return None
    return host_copy(tensor, pin_memory=tensor.device.type in ("cuda", "xpu"))


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """All elements in one dimension, in the order of memory: without a copy wherever they are dense."""
    if not tensor.is_contiguous():
        order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
        tensor = tensor.permute(order)
    return tensor.reshape(-1)
