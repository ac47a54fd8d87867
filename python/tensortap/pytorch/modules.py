"""Names of modules, and the hooks on those whose inputs or outputs are wanted.

Names live in a table keyed by module identity: nothing is written onto the user's modules but the hooks themselves,
and those only while a step is due.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.compiler import is_compiling
from torch.nn.modules.module import register_module_module_registration_hook
from torch.utils.hooks import RemovableHandle

from tensortap import _core
from tensortap.exceptions import InvalidArgumentError, InvalidTypeError
from tensortap.pytorch.wrappers import model_name, walk

# A module called more often than this within one step is looked at for the first calls when deciding whether anything
# of it is wanted; names with higher indices are then recorded like any other.
_PROBED_INDICES = 4


def require_module(module: object, method: str, hint: str = "") -> None:
    """Raise InvalidTypeError, with a hint, unless ``module`` is a ``torch.nn.Module``."""
    if not isinstance(module, torch.nn.Module):
        advice = f" ({hint})" if hint else ""
        raise InvalidTypeError(
            f"{method} takes a torch.nn.Module, not {type(module).__name__}{advice}"
        )


def is_real_call() -> bool:
    """Whether a module is called by the training: not traced by a compiler, not repeated by checkpointing.

    Checkpointing calls modules again while a backward pass is under way.
    """
    return not is_compiling() and bool(torch._C._current_graph_task_id() == -1)


class ModuleCallback:
    """A module hook that survives copying and pickling of the model: the copy does nothing."""

    __slots__ = ("_method",)

    def __init__(self, method: Callable[..., None] | None) -> None:
        self._method = weakref.WeakMethod(method) if method is not None else None

    def __call__(self, module: torch.nn.Module, args: Any, more: Any) -> None:
        method = self._method() if self._method is not None else None
        if method is not None:
            method(module, args, more)

    def __deepcopy__(self, memo: dict[int, Any]) -> ModuleCallback:
        return ModuleCallback(None)

    def __reduce__(self) -> tuple[type[ModuleCallback], tuple[None]]:
        return (ModuleCallback, (None,))


class ModuleEntry:
    """What is known of one registered module."""

    __slots__ = (
        "_inputs",
        "_outputs",
        "handles",
        "is_watched",
        "name",
        "next_input",
        "next_output",
        "reference",
    )

    def __init__(self, module: torch.nn.Module, name: str) -> None:
        self.reference = weakref.ref(module)
        self.name = name
        self.handles: list[RemovableHandle] = []
        # Something else calls at each of its forward passes: it needs no hook for its inputs.
        self.is_watched = False
        self._outputs: list[int | None] = []
        self._inputs: list[int | None] = []
        self.next_output = 0
        self.next_input = 0

    def forget_ids(self) -> None:
        self._outputs.clear()
        self._inputs.clear()

    def take_output_id(self, session: _core.Session) -> int | None:
        """Id of the step's next output; None when no saved collection wants it."""
        self.next_output += 1
        return _indexed_id(session, self._outputs, f"{self.name}_output_", self.next_output - 1)

    def take_input_id(self, session: _core.Session) -> int | None:
        """Id of the step's next input; None when no saved collection wants it."""
        self.next_input += 1
        return _indexed_id(session, self._inputs, f"{self.name}_input_", self.next_input - 1)

    def is_wanted(self, session: _core.Session, kind: str) -> bool:
        """Whether any ``input`` or ``output`` of the module is wanted at all."""
        return any(
            session.is_included(f"{self.name}_{kind}_{index}") for index in range(_PROBED_INDICES)
        )


def _indexed_id(
    session: _core.Session, ids: list[int | None], prefix: str, index: int
) -> int | None:
    while len(ids) <= index:
        name = f"{prefix}{len(ids)}"
        ids.append(session.intern(name) if session.is_included(name) else None)
    return ids[index]


class ModuleTable:
    """All registered modules by identity, and their hooks.

    Inputs are looked at before the forward pass: an in-place module overwrites them.
    """

    def __init__(
        self, session: _core.Session, before: ModuleCallback, after: ModuleCallback
    ) -> None:
        self._session = session
        self._before = before
        self._after = after
        self._entries: dict[int, ModuleEntry] = {}
        self._roots: list[tuple[weakref.ref[torch.nn.Module], str]] = []
        self._root_names: set[str] = set()
        self._is_stale = False
        self._registration = register_module_module_registration_hook(
            ModuleCallback(self._on_registration)
        )
        self._owners: dict[str, str] = {}  # which root's module has a name
        self._is_armed = False

    def add_root(self, root: torch.nn.Module, *, is_watched: bool = False) -> str:
        """Take in a module and its submodules.

        Parameters
        ----------
        root
            The module; its name is its class, made unique with a number.
        is_watched
            Whether the caller will see to the root's inputs itself.

        Returns
        -------
        str
            The root's name.

        Raises
        ------
        InvalidArgumentError
            It is registered already.
        """
        if self.find(root) is not None:
            raise InvalidArgumentError(f"this {type(root).__name__} is registered already")
        base = name = model_name(root)
        number = 0
        while name in self._root_names:
            number += 1
            name = f"{base}_{number}"
        self._root_names.add(name)
        self._roots.append((weakref.ref(root), name))
        self._take_in(root, name)
        self._entries[id(root)].is_watched = is_watched
        self.disarm()
        return name

    def _take_in(self, root: torch.nn.Module, root_name: str) -> None:
        for path, module in walk(root):
            if self.find(module) is not None:
                continue
            name = path or root_name
            if self._owners.setdefault(name, root_name) != root_name:
                name = f"{root_name}_{path}"
            self._entries[id(module)] = ModuleEntry(module, name)

    def _on_registration(self, module: torch.nn.Module, name: str, child: object) -> None:
        self._is_stale = True

    def _scan(self) -> None:
        """Take in modules that the user has added since."""
        self._is_stale = False
        self.disarm()
        for reference, name in self._roots:
            root = reference()
            if root is not None:
                self._take_in(root, name)

    def find(self, module: torch.nn.Module) -> ModuleEntry | None:
        """Entry of a registered module."""
        entry = self._entries.get(id(module))
        return entry if entry is not None and entry.reference() is module else None

    def begin_step(self) -> None:
        if self._is_stale:
            self._scan()
        for entry in self._entries.values():
            entry.next_output = 0
            entry.next_input = 0

    def arm(self) -> None:
        """Install hooks on the modules of which anything is wanted."""
        if self._is_armed:
            return
        self._is_armed = True
        for entry in self._entries.values():
            module = entry.reference()
            if module is None:
                continue
            if not entry.is_watched and entry.is_wanted(self._session, "input"):
                entry.handles.append(
                    module.register_forward_pre_hook(self._before, with_kwargs=True)
                )
            if entry.is_wanted(self._session, "output"):
                entry.handles.append(module.register_forward_hook(self._after))

    def disarm(self) -> None:
        """Remove every hook."""
        if not self._is_armed:
            return
        self._is_armed = False
        for entry in self._entries.values():
            for handle in entry.handles:
                handle.remove()
            entry.handles.clear()

    def detach(self) -> None:
        """Remove every hook, for good."""
        self.disarm()
        self._registration.remove()

    def forget_ids(self) -> None:
        """Decide anew what is wanted: collections changed."""
        self.disarm()
        for entry in self._entries.values():
            entry.forget_ids()
