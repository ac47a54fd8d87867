"""Statistics of a block of numbers where it lies, in PyTorch's operations: one row of results for a row of numbers.

What an element counts as is decided on its bits, so that a device that flushes subnormal numbers to zero counts as
the engine does. Nothing here waits for a device.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import torch

#: Columns of a row, in the order of the engine's ``PartColumn``.
COLUMN_COUNT = 15
BUCKET_COUNT = 64

_UNDERFLOW = 2.0**-25  # this and less becomes zero in a cast to float16
_OVERFLOW = 65520.0  # this and more becomes infinite
_TINY_SHIFT = 100  # octaves by which subnormal numbers are lifted to read their logarithm
_SCALE = 2.0**-64  # keeps sums of float64 within float64

# Elements that are compared with all buckets at once: 64 bytes each.
_HISTOGRAM_ELEMENTS = 1 << 20


@dataclass(frozen=True)
class WorkFormat:
    """The format that numbers are brought to on the device."""

    dtype: torch.dtype
    bits: torch.dtype
    magnitude: int  # mask of all bits but the sign
    infinity: int  # bits of infinity
    mantissa_bits: int
    bias: int

    def bits_of(self, number: float) -> int:
        """Bits of a number that is not negative; in their order, bits are ordered as numbers are."""
        wide = self.bits is torch.int64
        return int.from_bytes(struct.pack("<d" if wide else "<f", number), "little")


FLOAT32 = WorkFormat(torch.float32, torch.int32, 0x7FFFFFFF, 0x7F800000, 23, 127)
FLOAT64 = WorkFormat(torch.float64, torch.int64, (1 << 63) - 1, 0x7FF << 52, 52, 1023)

# As the engine decodes: exact, but for 64-bit integers beyond 2^53.
_WIDE = (
    torch.float64,
    torch.complex64,
    torch.complex128,
    torch.int32,
    torch.int64,
    *(getattr(torch, name) for name in ("uint32", "uint64") if hasattr(torch, name)),
)


def work_format(dtype: torch.dtype) -> WorkFormat:
    """Format in which numbers of a dtype are looked at."""
    return FLOAT64 if dtype in _WIDE else FLOAT32


def load(source: torch.Tensor) -> torch.Tensor:
    """Real numbers of a tensor: magnitudes, in float64, when it is complex."""
    if not source.is_complex():
        return source
    parts = torch.view_as_real(source.resolve_conj()).double()
    return torch.hypot(parts[..., 0], parts[..., 1])


@dataclass(frozen=True)
class Thresholds:
    """Bits that divide the numbers of one dtype into what is counted."""

    smallest_normal: int
    first_above_underflow: int
    overflow: int

    @classmethod
    def of(cls, dtype: torch.dtype) -> Thresholds:
        """Those of a dtype; integers have no subnormal numbers."""
        work = work_format(dtype)
        is_float = dtype.is_floating_point or dtype.is_complex
        normal = torch.finfo(dtype).tiny if is_float else 0.0
        return cls(
            smallest_normal=work.bits_of(normal),
            first_above_underflow=work.bits_of(_UNDERFLOW) + 1,
            overflow=work.bits_of(_OVERFLOW),
        )


class Block:
    """Rows of numbers in a work format, padded with NaN."""

    def __init__(self, numbers: torch.Tensor, work: WorkFormat) -> None:
        """
        Parameters
        ----------
        numbers
            Contiguous, of ``work.dtype``, (rows, elements).
        work
            Their format.
        """
        self._numbers = numbers
        self._work = work
        self._signed_bits = numbers.view(work.bits)
        self._bits = self._signed_bits & work.magnitude
        self._is_irregular = self._bits >= work.infinity  # NaN or infinite
        #: The finite numbers, and 0 for the others.
        self._finite = numbers.masked_fill(self._is_irregular, 0.0)

    def statistics(self, thresholds: Thresholds, accumulator: torch.dtype) -> torch.Tensor:
        """Rows of results.

        Parameters
        ----------
        thresholds
            Those of the dtype that the numbers came from.
        accumulator
            float64; float32 on a device that has no other.

        Returns
        -------
        torch.Tensor
            (rows, COLUMN_COUNT) of ``accumulator``, on the numbers' device.
        """
        below_infinity = _count(self._bits < self._work.infinity)
        finite = below_infinity.to(accumulator)
        infinity = float("inf")
        lowest = self._numbers.masked_fill(self._is_irregular, infinity).amin(1)
        highest = self._numbers.masked_fill(self._is_irregular, -infinity).amax(1)
        nearest = self._bits.masked_fill(self._is_irregular, self._work.infinity).amin(1)
        values = self._finite.to(accumulator, copy=True)
        mean, deviation = self._moments(values, finite, lowest, highest)
        magnitudes = self._finite.to(accumulator, copy=True).abs_()
        abs_lowest = nearest.view(self._work.dtype)
        abs_highest = torch.maximum(-lowest, highest)
        abs_mean, abs_deviation = self._moments(magnitudes, finite, abs_lowest, abs_highest)
        counts = torch.stack(self._counts(below_infinity, thresholds), dim=1)
        bounds = torch.stack([lowest, highest, abs_lowest], dim=1)
        moments = torch.stack([mean, deviation, abs_mean, abs_deviation], dim=1)
        return torch.cat([part.to(accumulator) for part in (counts, bounds, moments)], dim=1)

    def _counts(self, below_infinity: torch.Tensor, thresholds: Thresholds) -> list[torch.Tensor]:
        """Rows' counts, the first eight columns. Each is a difference of "how many are below"."""
        bits, work = self._bits, self._work
        zero = _count(bits == 0)
        below_normal = _count(bits < max(1, thresholds.smallest_normal))
        below_underflow_end = _count(bits < thresholds.first_above_underflow)
        below_overflow = _count(bits < thresholds.overflow)
        positive_infinite = _count(self._signed_bits == work.infinity)
        infinite = _count(bits == work.infinity)
        nan = _count(bits > work.infinity)
        return [
            below_infinity,
            nan,
            positive_infinite,
            infinite - positive_infinite,
            zero,
            below_normal - zero,
            below_infinity - below_overflow,
            below_underflow_end - zero,
        ]

    def _moments(
        self,
        values: torch.Tensor,
        count: torch.Tensor,
        lowest: torch.Tensor,
        highest: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and sum of squared deviations of each row; overwrites ``values``, whose other elements are 0."""
        divisor = count.clamp(min=1.0)
        mean = values.sum(1) / divisor
        if values.dtype is torch.float64 and self._work is FLOAT64:
            scaled = (values * _SCALE).sum(1) / divisor / _SCALE
            mean = torch.where(mean.isfinite(), mean, scaled)
        # About a pivot near the mean, in a second pass: sums of squares would cancel. Rounding may put
        # a mean of nearly equal numbers outside of them.
        pivot = mean.clamp(lowest.to(mean.dtype), highest.to(mean.dtype))
        values.sub_(pivot.unsqueeze(1)).masked_fill_(self._is_irregular, 0.0)
        rest = values.sum(1) / divisor
        squares = values.square_().sum(1)
        deviation = (squares - rest * rest * count).clamp(min=0.0)
        is_regular = squares.isfinite()
        infinite = torch.full_like(squares, float("inf"))
        return (
            torch.where(is_regular, pivot + rest, pivot),
            torch.where(is_regular, deviation, infinite),
        )

    def histograms(self) -> torch.Tensor:
        """Rows of histograms, in the engine's order of buckets and the window of the row's largest magnitude.

        Returns
        -------
        torch.Tensor
            (rows, BUCKET_COUNT) of int32, on the numbers' device.
        """
        per_sign = BUCKET_COUNT // 2
        octaves = self._half_octaves()
        is_left_out = self._is_irregular | (self._bits == 0)
        top = octaves.masked_fill(is_left_out, torch.iinfo(octaves.dtype).min).amax(1, keepdim=True)
        depth = (top - octaves).clamp_(0, per_sign - 1)
        bucket = torch.where(self._signed_bits < 0, depth, BUCKET_COUNT - 1 - depth)
        bucket = bucket.masked_fill_(is_left_out, BUCKET_COUNT).to(torch.uint8)
        buckets = torch.arange(BUCKET_COUNT, dtype=torch.uint8, device=bucket.device)
        rows = max(1, _HISTOGRAM_ELEMENTS // bucket.shape[1])
        return torch.cat(
            [
                (part.unsqueeze(-1) == buckets).sum(1, dtype=torch.int32)
                for part in bucket.split(rows)
            ]
        )

    def _half_octaves(self) -> torch.Tensor:
        """Half-octave of every magnitude: exponent and first bit of the mantissa are its number."""
        work = self._work
        shift, offset = work.mantissa_bits - 1, 2 * work.bias
        normal = (self._bits >> shift) - offset
        lifted = (self._finite * 2.0**_TINY_SHIFT).view(work.bits) & work.magnitude
        tiny = (lifted >> shift) - (offset + 2 * _TINY_SHIFT)
        return torch.where(self._bits < 1 << work.mantissa_bits, tiny, normal)


def _count(mask: torch.Tensor) -> torch.Tensor:
    return mask.sum(1)
