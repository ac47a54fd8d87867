"""Memory of a device in which tensors wait for their statistics: rows of equal length, padded with NaN."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import torch

from tensortap.pytorch.device_statistics import (
    BUCKET_COUNT,
    COLUMN_COUNT,
    Block,
    Thresholds,
    work_format,
)

# Elements of a slab. Bounds the memory that computing takes: up to 50 bytes an element.
SLAB_ELEMENTS = 1 << 21


class Slab:
    """Rows of numbers on one device, written and computed in one stream."""

    def __init__(
        self, device: torch.device, stream: Any, dtype: torch.dtype, row_length: int
    ) -> None:
        self.device = device
        self.stream = stream  # None where there are no streams
        self.row_length = row_length
        self.row_count = 0
        self.wants_histogram = False
        self._dtype = dtype
        rows = SLAB_ELEMENTS // row_length
        self._numbers: torch.Tensor | None = torch.full(
            (rows, row_length), float("nan"), dtype=work_format(dtype).dtype, device=device
        )
        self.free_elements = rows * row_length
        # In host memory, once computed.
        self._statistics: torch.Tensor | None = None
        self._histograms: torch.Tensor | None = None

    def take(self, count: int) -> torch.Tensor:
        """Begin a row; gives room for ``count`` elements."""
        assert self._numbers is not None
        begin = self.row_count * self.row_length
        rows = -(-count // self.row_length)
        self.row_count += rows
        self.free_elements -= rows * self.row_length
        return self._numbers.view(-1)[begin : begin + count]

    def compute(self) -> None:
        """Queue the computation and the way to the host, in the slab's stream."""
        if self._numbers is None:
            return
        numbers, self._numbers = self._numbers[: self.row_count], None
        accumulator = torch.float32 if self.device.type == "mps" else torch.float64
        with in_stream(self.device, self.stream):
            block = Block(numbers, work_format(self._dtype))
            rows = block.statistics(Thresholds.of(self._dtype), accumulator)
            self._statistics = (
                _to_host(rows) if rows.dtype is torch.float64 else rows.cpu().double()
            )
            if self.wants_histogram:
                self._histograms = _to_host(block.histograms())

    def addresses(self, first_row: int) -> tuple[int, int]:
        """Addresses of a row's results once they have arrived; 0 for no histogram."""
        assert self._statistics is not None
        statistics = self._statistics.data_ptr() + first_row * COLUMN_COUNT * 8
        if self._histograms is None:
            return statistics, 0
        return statistics, self._histograms.data_ptr() + first_row * BUCKET_COUNT * 4


@dataclass
class Part:
    """Rows of a slab that hold one tensor, or some of its elements."""

    slab: Slab
    first_row: int
    row_count: int
    padding: int


class Copies:
    """Copies into slabs that wait to be made in few launches."""

    def __init__(self) -> None:
        self._lists: dict[Any, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}

    def add(self, target: torch.Tensor, source: torch.Tensor) -> None:
        key = (target.device, target.dtype, source.dtype)
        targets, sources = self._lists.setdefault(key, ([], []))
        targets.append(target)
        sources.append(source)

    def run(self) -> None:
        for targets, sources in self._lists.values():
            torch._foreach_copy_(targets, sources)
        self._lists.clear()


def in_stream(device: torch.device, stream: Any) -> contextlib.AbstractContextManager[Any]:
    if stream is None:
        return contextlib.nullcontext()
    context: contextlib.AbstractContextManager[Any] = getattr(torch, device.type).stream(stream)
    return context


def _to_host(tensor: torch.Tensor) -> torch.Tensor:
    """Copy to host memory, without waiting where the device has streams; a tensor of the host stays as it is."""
    if tensor.device.type in ("cuda", "xpu"):
        return host_copy(tensor, pin_memory=True)
    return tensor.cpu()


def host_copy(tensor: torch.Tensor, *, pin_memory: bool) -> torch.Tensor:
    host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=pin_memory)
    return host.copy_(tensor, non_blocking=pin_memory)
