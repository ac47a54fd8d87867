"""Parameters and their gradients: which there are, under which names, and when their gradients are read."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

import torch
from torch.nn.parameter import is_lazy
from torch.utils.hooks import RemovableHandle

from tensortap import _core
from tensortap.pytorch.callbacks import ParameterCallback
from tensortap.pytorch.wrappers import user_path

#: A tensor and the id it is recorded under; None when nobody wants it.
Named: TypeAlias = tuple[int | None, torch.Tensor]


class ParameterIds:
    """Ids of what is recorded of a parameter; None for what no saved collection wants."""

    __slots__ = ("before_clipping", "gradient", "update_ratio", "weight")

    def __init__(self, session: _core.Session, name: str, extras: Collection[str]) -> None:
        def wanted(full_name: str) -> int | None:
            return session.intern(full_name) if session.is_included(full_name) else None

        def asked(collection: str, full_name: str) -> int | None:
            return wanted(full_name) if collection in extras else None

        self.weight = wanted(name)
        self.gradient = wanted(f"gradient/{name}")
        self.before_clipping = asked(
            "gradients_before_clipping", f"gradient_before_clipping/{name}"
        )
        self.update_ratio = asked("update_ratios", f"update_ratio/{name}")


class ParameterEntry:
    """One parameter at the current step."""

    __slots__ = ("ids", "name", "parameter", "seen_gradient")

    def __init__(self, parameter: torch.nn.Parameter, name: str, ids: ParameterIds) -> None:
        self.parameter = parameter
        self.name = name
        self.ids = ids
        self.seen_gradient = _GradientStamp(parameter.grad)


class _Structure:
    """Which modules and parameters there were, for a quick look at whether they still are all there is."""

    def __init__(self, roots: Iterable[torch.nn.Module]) -> None:
        self._modules = [
            (weakref.ref(module), _identities(module._parameters), _identities(module._modules))
            for root in roots
            for module in root.modules()
        ]

    def is_current(self) -> bool:
        """Whether nothing was added, removed or replaced since. Asks each module, not each name."""
        for reference, parameters, children in self._modules:
            module = reference()
            if module is None or _identities(module._parameters) != parameters:
                return False
            if _identities(module._modules) != children:
                return False
        return True


class ParameterTable:
    """All parameters of the registered modules. Looked over at every due step, since modules change."""

    def __init__(self, session: _core.Session) -> None:
        self._session = session
        self._extras: Collection[str] = ()
        self._roots: list[tuple[weakref.ref[torch.nn.Module], str]] = []
        self._ids: dict[str, ParameterIds] = {}
        self._handles: dict[int, RemovableHandle] = {}
        self._owned: set[int] = set()
        self._foreign: set[int] = set()  # updated by the same optimizers, but not registered
        self.entries: list[ParameterEntry] = []
        self._structure: _Structure | None = None  # of what `entries` holds; None: scan anew
        self.with_gradient: set[str] = set()  # names of those that ever had one

    def add_root(self, root: torch.nn.Module, name: str) -> None:
        self._roots.append((weakref.ref(root), name))
        self._structure = None
        self._owned.update(id(parameter) for parameter in root.parameters())

    def forget_ids(self, extras: Collection[str]) -> None:
        """Decide anew what is wanted: collections changed.

        Parameters
        ----------
        extras
            Collections of derived tensors that were asked for.
        """
        self._extras = extras
        self._ids.clear()
        self._structure = None

    def scan(self) -> None:
        """Look up the parameters as they are now. Tied ones appear once, under their first name."""
        if self._structure is not None and self._structure.is_current():
            for entry in self.entries:  # which keep the parameters alive, so that ids stay theirs
                entry.seen_gradient = _GradientStamp(entry.parameter.grad)
            return
        self.entries.clear()
        roots = [root for reference, _ in self._roots if (root := reference()) is not None]
        can_change_unseen = any(_names_parameters_itself(root) for root in roots)
        for name, parameter in self.iterate():
            if is_lazy(parameter):
                can_change_unseen = True
                continue
            ids = self._ids.get(name)
            if ids is None:
                ids = self._ids[name] = ParameterIds(self._session, name, self._extras)
            self.entries.append(ParameterEntry(parameter, name, ids))
        self._owned.update(id(entry.parameter) for entry in self.entries)
        self._structure = None if can_change_unseen else _Structure(roots)

    def iterate(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """All parameters that there are now, lazy ones too, by their names in the run."""
        for reference, prefix in self._roots:
            root = reference()
            if root is not None:
                for path, parameter in root.named_parameters():
                    yield f"{prefix}_{user_path(path)}", parameter

    def aliases(self) -> dict[str, str]:
        """Further names of tied parameters, and the name under which each is recorded."""
        found = {}
        for reference, prefix in self._roots:
            root = reference()
            if root is None:
                continue
            first: dict[int, str] = {}
            for path, parameter in root.named_parameters(remove_duplicate=False):
                name = f"{prefix}_{user_path(path)}"
                recorded = first.setdefault(id(parameter), name)
                if recorded != name:
                    found[name] = recorded
        return found

    def owns_any_of(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether an optimizer updates any registered parameter."""
        updated = {
            id(parameter) for group in optimizer.param_groups for parameter in group["params"]
        }
        if self._owned.isdisjoint(updated):
            # Parameters may have been replaced since, as sharding does.
            self._owned.update(id(parameter) for _, parameter in self.iterate())
        return not self._owned.isdisjoint(updated)

    def entries_of(self, optimizer: torch.optim.Optimizer) -> list[ParameterEntry]:
        """The registered parameters that an optimizer updates."""
        updated = {
            id(parameter) for group in optimizer.param_groups for parameter in group["params"]
        }
        missing = updated.difference(id(entry.parameter) for entry in self.entries)
        if not missing <= self._foreign:
            # During the forward pass a sharded model may have others in their place.
            self.scan()
            self._foreign |= missing.difference(id(entry.parameter) for entry in self.entries)
        return [entry for entry in self.entries if id(entry.parameter) in updated]

    def weights(self) -> Iterator[Named]:
        """Values of the parameters."""
        return ((entry.ids.weight, entry.parameter) for entry in self.entries)

    def changed_gradients(self) -> Iterator[Named]:
        """Gradients that a backward pass of this step has touched."""
        for entry in self.entries:
            gradient = entry.parameter.grad
            if gradient is not None and not entry.seen_gradient.is_of(gradient):
                yield entry.ids.gradient, gradient

    def note_gradients(self) -> None:
        """Remember which parameters have a gradient now; next to nothing once all had one."""
        if len(self.with_gradient) < len(self.entries):
            self.with_gradient.update(
                entry.name for entry in self.entries if entry.parameter.grad is not None
            )

    def note_gradient(self, gradient_id: int) -> None:
        """Remember that one has a gradient now."""
        self.with_gradient.add(self._session.tensor_name(gradient_id).removeprefix("gradient/"))

    def watch_accumulation(self, callback: Callable[[torch.Tensor, int], None]) -> None:
        """Call back when autograd has accumulated into a wanted gradient: no optimizer says so."""
        for entry in self.entries:
            parameter, gradient_id = entry.parameter, entry.ids.gradient
            # A sharded model may have views in place of its parameters.
            is_parameter = parameter.requires_grad and parameter.is_leaf
            if gradient_id is None or not is_parameter or id(parameter) in self._handles:
                continue
            self._handles[id(parameter)] = parameter.register_post_accumulate_grad_hook(
                ParameterCallback(callback, gradient_id)
            )

    def stop_watching_accumulation(self) -> None:
        for handle in self._handles.values():
            handle.remove()
        self._handles.clear()


def _identities(named: Mapping[str, object]) -> list[tuple[str, int]]:
    return [(name, id(thing)) for name, thing in named.items()]


def _names_parameters_itself(root: torch.nn.Module) -> bool:
    """Whether a module says by itself which parameters there are, as those that shard them do."""
    return any(
        type(module).named_parameters is not torch.nn.Module.named_parameters
        for module in root.modules()
    )


def gradients_of(entries: list[ParameterEntry]) -> Iterator[Named]:
    """Gradients that are there."""
    for entry in entries:
        gradient = entry.parameter.grad
        if gradient is not None:
            yield entry.ids.gradient, gradient


class _GradientStamp:
    """A gradient as it was. Holds it weakly: a new one may lie at the very place of the old one."""

    __slots__ = ("_reference", "_version")

    def __init__(self, gradient: torch.Tensor | None) -> None:
        self._reference: weakref.ref[torch.Tensor] | None = None
        self._version: int = getattr(gradient, "_version", 0)
        if gradient is not None:
            self._reference = weakref.ref(gradient)

    def is_of(self, gradient: torch.Tensor) -> bool:
        """Whether nobody has written to the gradient or replaced it since."""
        known = self._reference() if self._reference is not None else None
        return known is gradient and self._version == getattr(gradient, "_version", 0)
