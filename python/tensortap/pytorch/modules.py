"""Names of modules, and the hooks on those whose inputs or outputs are wanted.

Names live in a table keyed by module identity: nothing is written onto the user's modules but the hooks themselves,
and those only while a step is due.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.modules.module import register_module_module_registration_hook
from torch.utils.hooks import RemovableHandle

from tensortap import _core
from tensortap.exceptions import InvalidArgumentError, InvalidTypeError
from tensortap.pytorch.callbacks import ModuleCallback, is_real_call
from tensortap.pytorch.module_kinds import Kinds, kinds_of
from tensortap.pytorch.wrappers import (
    entry_point,
    innermost,
    model_name,
    takes_hooks,
    user_path,
    walk,
)

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


class ModuleEntry:
    """What is known of one registered module."""

    __slots__ = (
        "_inputs",
        "_outputs",
        "_wants",
        "handles",
        "is_root",
        "is_seen",
        "is_shy",
        "kinds",
        "name",
        "next_input",
        "next_output",
        "reference",
        "seen_handle",
    )

    def __init__(self, module: torch.nn.Module, name: str) -> None:
        self.reference = weakref.ref(module)
        self.name = name
        self.kinds = kinds_of(module)
        self.handles: list[RemovableHandle] = []
        self.seen_handle: RemovableHandle | None = None
        self.is_seen = False  # called in a step that was looked at
        # Belongs to a layer that in evaluation computes all at once, but not when it has hooks.
        self.is_shy = False
        # A registered model: something else calls at each of its forward passes, so it needs no hook for its inputs.
        self.is_root = False
        self._outputs: list[int | None] = []
        self._inputs: list[int | None] = []
        self._wants: tuple[bool, bool] | None = None
        self.next_output = 0
        self.next_input = 0

    def forget_ids(self) -> None:
        self._outputs.clear()
        self._inputs.clear()
        self._wants = None

    def take_output_id(self, session: _core.Session) -> int | None:
        """Id of the step's next output; None when no saved collection wants it."""
        self.next_output += 1
        prefix = f"{self.name}_output_"
        return _indexed_id(session, self._outputs, prefix, self.next_output - 1, self.kinds.outputs)

    def take_input_id(self, session: _core.Session) -> int | None:
        """Id of the step's next input; None when no saved collection wants it."""
        self.next_input += 1
        prefix = f"{self.name}_input_"
        return _indexed_id(session, self._inputs, prefix, self.next_input - 1, self.kinds.inputs)

    def wants(self, session: _core.Session) -> tuple[bool, bool]:
        """Whether any input, and whether any output of the module is wanted at all."""
        if self._wants is None:
            self._wants = (
                _is_any_wanted(session, f"{self.name}_input_", self.kinds.inputs),
                _is_any_wanted(session, f"{self.name}_output_", self.kinds.outputs),
            )
        return self._wants


def _is_any_wanted(session: _core.Session, prefix: str, kinds: tuple[str, ...]) -> bool:
    return any(session.is_included(f"{prefix}{index}", kinds) for index in range(_PROBED_INDICES))


def _indexed_id(
    session: _core.Session, ids: list[int | None], prefix: str, index: int, kinds: tuple[str, ...]
) -> int | None:
    while len(ids) <= index:
        name = f"{prefix}{len(ids)}"
        ids.append(session.intern(name, kinds) if session.is_included(name, kinds) else None)
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
        self._shy: list[ModuleEntry] = []
        self._shy_handles: list[RemovableHandle] = []
        self._seen = ModuleCallback(self.note_call)

    def add_root(self, root: torch.nn.Module, *, is_model: bool = False) -> str:
        """Take in a module and its submodules.

        Parameters
        ----------
        root
            The module; its name is its class, made unique with a number.
        is_model
            Whether it is what is trained: then the caller will see to its inputs, and they are the model's.

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
        if is_model:
            entry = self._entries[id(root)]
            entry.is_root = True
            entry.kinds = Kinds((*entry.kinds.inputs, "model_inputs"), entry.kinds.outputs)
        self.disarm()
        return name

    def _take_in(self, root: torch.nn.Module, root_name: str) -> None:
        shy: set[int] = set()
        for path, module in walk(root):
            if isinstance(innermost(module), torch.nn.TransformerEncoderLayer):
                shy.update(id(inner) for inner in module.modules())
            if self.find(module) is not None:
                continue
            name = path or root_name
            if self._owners.setdefault(name, root_name) != root_name:
                name = f"{root_name}_{path}"
            entry = self._entries[id(module)] = ModuleEntry(module, name)
            if id(module) in shy:
                entry.is_shy = True
                self._shy.append(entry)

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

    def aliases(self) -> dict[str, str]:
        """Further names of shared modules, and the name under which each is recorded."""
        found = {}
        for reference, _ in self._roots:
            root = reference()
            if root is None:
                continue
            for path, module in root.named_modules(remove_duplicate=False):
                entry = self.find(entry_point(module))
                name = user_path(path)
                if entry is not None and name and name not in self._owners:
                    found[name] = entry.name
        return found

    def find(self, module: torch.nn.Module) -> ModuleEntry | None:
        """Entry of a registered module."""
        entry = self._entries.get(id(module))
        return entry if entry is not None and entry.reference() is module else None

    def iterate(self) -> Iterator[tuple[torch.nn.Module, ModuleEntry]]:
        """All registered modules that there are now, each once."""
        seen: set[int] = set()
        for reference, _ in self._roots:
            root = reference()
            for _, module in walk(root) if root is not None else ():
                entry = self.find(module)
                if entry is not None and id(module) not in seen:
                    seen.add(id(module))
                    yield module, entry

    def name_of(self, module: torch.nn.Module) -> str | None:
        """Name of a registered module, whatever is wrapped around it."""
        entry = self.find(module) or self.find(entry_point(module))
        return entry.name if entry is not None else None

    def begin_step(self) -> None:
        if self._is_stale:
            self._scan()
        for entry in self._entries.values():
            entry.next_output = 0
            entry.next_input = 0

    def arm(self) -> None:
        """Install hooks on the modules of which anything is wanted, and on those that were never called so far."""
        if self._is_armed:
            return
        self._is_armed = True
        for entry in self._entries.values():
            module = entry.reference()
            if module is None or not takes_hooks(module):
                continue
            wants_inputs, wants_outputs = entry.wants(self._session)
            if wants_inputs and not entry.is_root:
                entry.handles.append(
                    module.register_forward_pre_hook(self._before, with_kwargs=True)
                )
            # What a model returns may hold its loss.
            if wants_outputs or entry.is_root:
                entry.handles.append(module.register_forward_hook(self._after))
            if not entry.is_seen and not entry.is_shy:
                entry.seen_handle = module.register_forward_pre_hook(self._seen)
                entry.handles.append(entry.seen_handle)

    def watch_shy_modules(self) -> None:
        """Look for calls of modules that take another path when they have hooks: while training they do not."""
        self._forget_shy_handles()
        for entry in self._shy:
            module = entry.reference()
            if module is not None and module.training and not entry.is_seen:
                self._shy_handles.append(module.register_forward_pre_hook(self._seen))

    def _forget_shy_handles(self) -> None:
        for handle in self._shy_handles:
            handle.remove()
        self._shy_handles.clear()

    def note_call(self, module: torch.nn.Module, args: Any = None, more: Any = None) -> None:
        """Remember that a module is called. Its hook for that has done its duty."""
        if not is_real_call():
            return
        entry = self.find(module)
        if entry is None or entry.is_seen:
            return
        entry.is_seen = True
        if entry.seen_handle is not None:
            entry.seen_handle.remove()
            entry.seen_handle = None

    def wanted_within(self) -> list[str]:
        """Names of the modules inside of models of which inputs or outputs are wanted."""
        return [
            entry.name
            for entry in self._entries.values()
            if not entry.is_root and any(entry.wants(self._session))
        ]

    def disarm(self) -> bool:
        """Remove every hook. Whether there were any."""
        self._forget_shy_handles()
        if not self._is_armed:
            return False
        self._is_armed = False
        for entry in self._entries.values():
            for handle in entry.handles:
                handle.remove()
            entry.handles.clear()
            entry.seen_handle = None
        return True

    def detach(self) -> None:
        """Remove every hook, for good."""
        self.disarm()
        self._registration.remove()

    def forget_ids(self) -> None:
        """Decide anew what is wanted: collections changed."""
        self.disarm()
        for entry in self._entries.values():
            entry.forget_ids()
