"""Functions of PyTorch that tell nobody they were called: replaced while a hook is open, put back when the last closes.

Where PyTorch wraps a function, the function inside the wrapper is replaced: then a name that a script imported before
leads to the replacement too.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any, Protocol

from torch.compiler import is_compiling


class Slot(Protocol):
    """A place where a function is looked up each time it is called."""

    def get(self) -> Any:
        """The function that is there."""

    def put(self, function: Any) -> None:
        """Replace it."""


class AttributeSlot:
    """An attribute of a class or module."""

    def __init__(self, owner: Any, name: str) -> None:
        self._owner = owner
        self._name = name

    def get(self) -> Any:
        return vars(self._owner)[self._name]

    def put(self, function: Any) -> None:
        setattr(self._owner, self._name, function)


class CellSlot:
    """The function that a wrapper made by a decorator calls."""

    def __init__(self, cell: CellType) -> None:
        self._cell = cell

    def get(self) -> Any:
        return self._cell.cell_contents

    def put(self, function: Any) -> None:
        self._cell.cell_contents = function


def slot_of(owner: Any, name: str) -> Slot | None:
    """Where to intercept a function; None when this PyTorch has no such function."""
    function = vars(owner).get(name)
    if function is None:
        return None
    if isinstance(function, FunctionType) and function.__closure__ is not None:
        cells = dict(zip(function.__code__.co_freevars, function.__closure__, strict=True))
        if isinstance(getattr(cells.get("func"), "cell_contents", None), FunctionType):
            return CellSlot(cells["func"])
    return AttributeSlot(owner, name)


class Interception:
    """One function with listeners, which are called around it as ``listener(call, *args, **kwargs)``.

    ``call`` goes on to the next listener and in the end to the function itself; a listener returns what it gives.
    A listener must not raise of its own accord.
    """

    def __init__(self, slot: Slot | None) -> None:
        self._slot = slot
        self._listeners: list[weakref.WeakMethod[Callable[..., Any]]] = []
        self._original: Any = None
        self._replacement: Any = None

    def add(self, listener: Callable[..., Any]) -> None:
        """Let a method hear of the calls."""
        if self._slot is None:
            return
        self._listeners.append(weakref.WeakMethod(listener, self._forget_dead))
        if self._slot.get() is not self._replacement or self._replacement is None:
            self._original = self._slot.get()
            self._replacement = self._make_replacement(self._original)
            self._slot.put(self._replacement)

    def remove(self, listener: Callable[..., Any] | None) -> None:
        """Stop telling a method (None: those that are gone); after the last one the function is back in its place."""
        self._listeners = [known for known in self._listeners if known() not in (None, listener)]
        if self._listeners or self._replacement is None or self._slot is None:
            return
        # Somebody else may have wrapped ours meanwhile: then it stays and passes everything on.
        if self._slot.get() is self._replacement:
            self._slot.put(self._original)
            self._replacement = None

    def _forget_dead(self, _: object) -> None:
        self.remove(None)

    def _make_replacement(self, original: Any) -> Any:
        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return original(*args, **kwargs)
            call = original
            for reference in self._listeners:
                listener = reference()
                if listener is not None:
                    call = functools.partial(listener, call)
            return call(*args, **kwargs)

        return replacement
