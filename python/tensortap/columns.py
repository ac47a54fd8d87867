"""One statistic of many tensors as a matrix: `Columns`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Columns(NamedTuple):
    """One statistic of many tensors over steps; NaN where a tensor was not saved."""

    names: list[str]
    steps: NDArray[np.int64]  # (n,)
    values: NDArray[np.float64]  # (n, len(names))


def to_matrix(found: Mapping[str, tuple[NDArray[np.int64], NDArray[np.float64]]]) -> Columns:
    """Bring columns, each with steps of its own, to the union of their steps."""
    parts = [steps for steps, _ in found.values()]
    steps = np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)
    values = np.full((len(steps), len(found)), np.nan)
    for column, (at, numbers) in enumerate(found.values()):
        values[np.searchsorted(steps, at), column] = numbers
    return Columns(list(found), steps, values)
