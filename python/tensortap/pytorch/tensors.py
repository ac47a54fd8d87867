"""How PyTorch tensors are handed to the engine: an address, a dtype code, a shape and strides. Nothing is copied."""

from __future__ import annotations

import dataclasses
import logging
import os
import weakref
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import torch
from torch.nn.utils.rnn import PackedSequence
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from tensortap import _core
from tensortap.pytorch.graphs import is_capturing

logger = logging.getLogger("tensortap")

#: (tensor id, address, dtype code, shape, strides in elements): what ``Session.record_batch`` takes.
HostItem: TypeAlias = tuple[int, int, int, tuple[int, ...], tuple[int, ...]]


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceItem:
    """A tensor whose statistics are computed where it lies."""

    tensor_id: int
    tensor: torch.Tensor


Item: TypeAlias = HostItem | DeviceItem

#: Set to 1, the environment variable sends tensors of the host the way of those on a device: for tests.
FORCE_VARIABLE = "TENSORTAP_DEVICE_STATISTICS"
_forces_device = os.environ.get(FORCE_VARIABLE, "").lower() in ("1", "true", "yes")

_DTYPE_NAMES = [
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "complex64",
    "complex128",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
]

# Elements from which on a tensor is suspected to be an expansion of a smaller one.
_LARGE_COUNT = 1 << 28

_PLAIN_TYPES = frozenset({torch.Tensor, torch.nn.Parameter})

# What says that there is nothing to read.
_UNREADABLE = (RuntimeError, NotImplementedError, ValueError, TypeError, AttributeError)

DTYPE_CODES: dict[torch.dtype, int] = {
    getattr(torch, name): _core.dtype_code(name) for name in _DTYPE_NAMES if hasattr(torch, name)
}


def make_item(tensor_id: int, tensor: torch.Tensor, keep_alive: list[torch.Tensor]) -> Item | None:
    """Describe a tensor for the engine.

    Parameters
    ----------
    tensor_id
        Id that ``Session.intern`` gave.
    tensor
        Any shape, strides and device; sparse tensors stand for their stored values, quantized ones for
        the numbers they mean, a DTensor for this rank's shard.
    keep_alive
        Receives the tensor whose memory the item points to; keep it until the engine has read the item.

    Returns
    -------
    Item or None
        None for what cannot be read: a dtype that the engine does not know, a
        tensor without memory of its own (meta, fake, wrapped, freed), an expansion of a few
        elements to more than anybody could read.
    """
    try:
        if type(tensor) not in _PLAIN_TYPES:
            tensor = _own_tensor(tensor)
        if (_forces_device or not tensor.is_cpu) and _has_device_statistics(tensor):
            return _make_device_item(tensor_id, tensor)
        return _make_host_item(tensor_id, tensor, keep_alive)
    except _UNREADABLE:
        return None


def make_host_item(
    tensor_id: int, tensor: torch.Tensor, keep_alive: list[torch.Tensor]
) -> HostItem | None:
    """Describe a tensor as `make_item` does, but copied to the host when it is elsewhere."""
    if tensor.is_cuda and is_capturing():  # a graph is no place for copies to the host
        return None
    try:
        if type(tensor) not in _PLAIN_TYPES:
            tensor = _own_tensor(tensor)
        return _make_host_item(tensor_id, tensor, keep_alive)
    except _UNREADABLE:
        return None


def _has_device_statistics(tensor: torch.Tensor) -> bool:
    if tensor.dtype not in DTYPE_CODES:
        return False
    if tensor.is_mps:  # which has no float64
        return not tensor.is_complex() and tensor.dtype not in (torch.int32, torch.int64)
    return tensor.device.type in ("cuda", "xpu", "cpu")


def _make_device_item(tensor_id: int, tensor: torch.Tensor) -> DeviceItem | None:
    tensor = tensor.detach()
    if tensor.layout is torch.strided:
        count = tensor.numel()
        if count > 0 and tensor.data_ptr() == 0:
            return None
        if count > _LARGE_COUNT and tensor.untyped_storage().nbytes() < count:
            return None
    return DeviceItem(tensor_id, tensor)


def _make_host_item(
    tensor_id: int, tensor: torch.Tensor, keep_alive: list[torch.Tensor]
) -> HostItem | None:
    if not tensor.is_cpu or tensor.layout is not torch.strided or tensor.is_neg():
        tensor = _to_plain(tensor)
    elif tensor.is_complex() and tensor.is_conj():
        tensor = tensor.detach().resolve_conj()
    code = DTYPE_CODES.get(tensor.dtype)
    if code is None and tensor.is_quantized:
        tensor = tensor.detach().dequantize()
        code = DTYPE_CODES.get(tensor.dtype)
    if code is None:
        return None
    address = tensor.data_ptr()
    count = tensor.numel()
    if address == 0 and count > 0:
        return None
    if count > _LARGE_COUNT and tensor.untyped_storage().nbytes() < count:
        return None
    keep_alive.append(tensor)
    return (tensor_id, address, code, tensor.shape, tensor.stride())


def _own_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """What an object of a tensor's subclass holds in this process.

    A wrapper has no memory; what it says about its address may be any number.

    Raises
    ------
    TypeError
        A wrapper that does not say what it holds.
    """
    with torch.no_grad():
        if hasattr(tensor, "to_local"):  # DTensor: this rank's shard
            tensor = tensor.to_local()
        if hasattr(tensor, "wait"):  # the result of a collective that may still be on its way
            tensor = tensor.wait()
        if tensor.layout is torch.jagged:
            tensor = tensor.values()
    if type(tensor) not in _PLAIN_TYPES and is_traceable_wrapper_subclass(tensor):
        raise TypeError(f"{type(tensor).__name__} wraps other tensors")
    return tensor.as_subclass(torch.Tensor)


def _to_plain(tensor: torch.Tensor) -> torch.Tensor:
    return to_strided(tensor.detach()).cpu().resolve_neg()


def to_strided(tensor: torch.Tensor) -> torch.Tensor:
    """Stored values of a sparse tensor; others as they are."""
    if tensor.layout is torch.strided:
        return tensor
    return tensor.coalesce().values() if tensor.layout is torch.sparse_coo else tensor.values()


class RecordedTensors:
    """The tensor objects that this step has recorded: one module's output is the next one's input.

    Holds none of them alive.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[torch.Tensor], int, int]] = {}

    def clear(self) -> None:
        """Start a step."""
        self._known.clear()

    def add(self, tensor: torch.Tensor, tensor_id: int) -> None:
        """Remember that a tensor, as it is now, is recorded under an id."""
        if not tensor.is_inference():  # those do not count their versions
            self._known[id(tensor)] = (weakref.ref(tensor), tensor._version, tensor_id)

    def find(self, tensor: torch.Tensor) -> int | None:
        """Id under which the same tensor was recorded, unless somebody has written to it since."""
        known = self._known.get(id(tensor))
        if known is None:
            return None
        reference, version, tensor_id = known
        is_same = reference() is tensor
        return tensor_id if is_same and version == tensor._version else None


def tensors_in(value: Any) -> Iterable[torch.Tensor]:
    """Tensors inside tuples, lists, mappings and dataclasses, depth first in their own order.

    A packed sequence stands for its data: its batch sizes are no values of the training. Of what does not let itself
    be looked into, as users' own classes may do, there are those that were found until then.
    """
    # What nearly all modules take and return.
    if isinstance(value, torch.Tensor):
        return (value,)
    if type(value) is tuple and len(value) == 1 and isinstance(value[0], torch.Tensor):
        return value
    found: list[torch.Tensor] = []
    try:
        _collect(value, found, set())
    except Exception:  # their code, not ours: any
        logger.debug("a %s does not let itself be looked into", type(value).__name__, exc_info=True)
    return found


def _collect(value: Any, found: list[torch.Tensor], outer: set[int]) -> None:
    """Add the tensors in a value; `outer` are the ids of what it lies in: something may hold itself."""
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, PackedSequence):
        found.append(value.data)
    elif id(value) not in outer:
        outer.add(id(value))
        for part in _parts(value):
            _collect(part, found, outer)
        outer.remove(id(value))


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, Mapping):
        return value.values()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return (getattr(value, field.name, None) for field in dataclasses.fields(value))
    return ()


def returned_losses(output: Any) -> list[tuple[str, torch.Tensor]]:
    """Losses that a model computed itself: ``output.loss``, and entries of a dictionary with ``loss`` in their key."""
    if isinstance(output, torch.Tensor):
        return []
    try:
        named = output.items() if isinstance(output, Mapping) else [("loss", output.loss)]
        return [
            (key, value)
            for key, value in named
            if isinstance(key, str) and "loss" in key.lower() and isinstance(value, torch.Tensor)
        ]
    except Exception:  # no such attribute, or whatever their code raises
        return []
