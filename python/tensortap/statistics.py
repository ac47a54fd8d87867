"""The statistics of any array in memory, by the engine that hooks use."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensortap import _core
from tensortap.exceptions import InvalidTypeError, NotFoundError


def statistics(x: Any, histogram: bool = False) -> _core.Statistics:
    """Compute all statistics of an array in one pass.

    Parameters
    ----------
    x : array
        A NumPy array, a CPU tensor of PyTorch, anything with ``__array_interface__`` or ``__dlpack__`` on
        the CPU, or numbers in lists. Of any shape and strides; floats of 64, 32, 16 and 8 bits, bfloat16,
        complex, integers, bool.
    histogram : bool, optional
        With a histogram.

    Returns
    -------
    Statistics
        Over the finite elements, in the unit of the elements; complex ones by magnitude.

    Raises
    ------
    InvalidTypeError
        A dtype without statistics, such as text, or memory that is not the CPU's.
    """
    # PyTorch's own description first: NumPy cannot hold all of its dtypes.
    if hasattr(x, "data_ptr") and hasattr(x, "stride"):
        if x.device.type != "cpu":
            raise InvalidTypeError(f"statistics takes memory of the CPU, not of {x.device}")
        code = _code(str(x.dtype).removeprefix("torch."))
        return _core.compute_statistics(
            x.data_ptr(), code, tuple(x.shape), tuple(x.stride()), histogram
        )
    return _of_array(_to_array(x), histogram)


def _to_array(x: Any) -> np.ndarray[Any, Any]:
    if isinstance(x, np.ndarray) or hasattr(x, "__array_interface__"):
        return np.asarray(x)
    if hasattr(x, "__dlpack__"):
        try:
            return np.from_dlpack(x)
        except (BufferError, RuntimeError, TypeError) as error:
            raise InvalidTypeError(f"statistics cannot read {type(x).__name__}: {error}") from None
    return np.asarray(x)


def _of_array(array: np.ndarray[Any, Any], histogram: bool) -> _core.Statistics:
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    code = _code(array.dtype.name)
    size = array.dtype.itemsize
    if any(stride % size for stride in array.strides):
        array = np.ascontiguousarray(array)  # a field of a structured array, for example
    return _core.compute_statistics(
        array.__array_interface__["data"][0],
        code,
        array.shape,
        tuple(stride // size for stride in array.strides),
        histogram,
    )


def _code(dtype: str) -> int:
    try:
        return _core.dtype_code(dtype)
    except NotFoundError:
        raise InvalidTypeError(f"there are no statistics of dtype {dtype}") from None
