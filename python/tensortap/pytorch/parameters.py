"""Parameters and their gradients: which there are, under which names, and when their gradients are read."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.utils.hooks import RemovableHandle

from tensortap import _core
from tensortap.pytorch.tensors import Item, make_item
from tensortap.pytorch.wrappers import user_path


class ParameterEntry:
    """One parameter at the current step."""

    __slots__ = ("gradient_id", "parameter", "seen_gradient", "weight_id")

    def __init__(
        self, parameter: torch.nn.Parameter, weight_id: int | None, gradient_id: int | None
    ) -> None:
        self.parameter = parameter
        self.weight_id = weight_id
        self.gradient_id = gradient_id
        self.seen_gradient = _GradientStamp(parameter.grad)


class ParameterTable:
    """All parameters of the registered modules. Scanned anew at every due step, since modules change."""

    def __init__(self, session: _core.Session) -> None:
        self._session = session
        self._roots: list[tuple[weakref.ref[torch.nn.Module], str]] = []
        self._ids: dict[str, tuple[int | None, int | None]] = {}
        self._handles: dict[int, RemovableHandle] = {}
        self.entries: list[ParameterEntry] = []
        self._owned: set[int] = set()

    def add_root(self, root: torch.nn.Module, name: str) -> None:
        self._roots.append((weakref.ref(root), name))
        self._owned.update(id(parameter) for parameter in root.parameters())

    def forget_ids(self) -> None:
        """Decide anew what is wanted: collections changed."""
        self._ids.clear()

    def scan(self) -> None:
        """Look up the parameters as they are now. Tied ones appear once, under their first name."""
        self.entries.clear()
        for reference, prefix in self._roots:
            root = reference()
            if root is None:
                continue
            for path, parameter in root.named_parameters():
                if is_lazy(parameter):
                    continue
                name = f"{prefix}_{user_path(path)}"
                ids = self._ids.get(name)
                if ids is None:
                    ids = self._ids[name] = (self._wanted(name), self._wanted(f"gradient/{name}"))
                self.entries.append(ParameterEntry(parameter, *ids))
        self._owned.update(id(entry.parameter) for entry in self.entries)

    def owns_any_of(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether an optimizer updates any registered parameter."""
        return any(
            id(parameter) in self._owned
            for group in optimizer.param_groups
            for parameter in group["params"]
        )

    def weight_items(self, keep_alive: list[torch.Tensor]) -> list[Item]:
        """Parameter values that are due."""
        items = []
        for entry in self.entries:
            if entry.weight_id is not None and self._session.is_due(entry.weight_id):
                item = make_item(entry.weight_id, entry.parameter, keep_alive)
                if item is not None:
                    items.append(item)
        return items

    def gradient_items(
        self,
        keep_alive: list[torch.Tensor],
        *,
        only: set[int] | None = None,
        only_changed: bool = False,
    ) -> list[Item]:
        """Gradients that are there and due.

        Parameters
        ----------
        only
            Identities of the parameters to look at; None for all.
        only_changed
            Leave out gradients that no backward pass of this step has touched.
        """
        items = []
        for entry in self.entries:
            gradient = entry.parameter.grad
            if gradient is None or entry.gradient_id is None:
                continue
            if only is not None and id(entry.parameter) not in only:
                continue
            if only_changed and entry.seen_gradient.is_of(gradient):
                continue
            if self._session.is_due(entry.gradient_id):
                item = make_item(entry.gradient_id, gradient, keep_alive)
                if item is not None:
                    items.append(item)
        return items

    def watch_accumulation(self, callback: Callable[[torch.Tensor, int], None]) -> None:
        """Call back when autograd has accumulated into a wanted gradient: no optimizer says so."""
        for entry in self.entries:
            parameter, gradient_id = entry.parameter, entry.gradient_id
            if gradient_id is None or not parameter.requires_grad or id(parameter) in self._handles:
                continue
            self._handles[id(parameter)] = parameter.register_post_accumulate_grad_hook(
                _AccumulationCallback(callback, gradient_id)
            )

    def stop_watching_accumulation(self) -> None:
        for handle in self._handles.values():
            handle.remove()
        self._handles.clear()

    def _wanted(self, name: str) -> int | None:
        return self._session.intern(name) if self._session.is_included(name) else None


class _AccumulationCallback:
    """A parameter hook that survives copying of the model: the copy does nothing."""

    __slots__ = ("_gradient_id", "_method")

    def __init__(
        self, method: Callable[[torch.Tensor, int], None] | None, gradient_id: int
    ) -> None:
        self._method = weakref.WeakMethod(method) if method is not None else None
        self._gradient_id = gradient_id

    def __call__(self, parameter: torch.Tensor) -> None:
        method = self._method() if self._method is not None else None
        if method is not None:
            method(parameter, self._gradient_id)

    def __deepcopy__(self, memo: dict[int, Any]) -> _AccumulationCallback:
        return _AccumulationCallback(None, self._gradient_id)

    def __reduce__(self) -> tuple[type[_AccumulationCallback], tuple[None, int]]:
        return (_AccumulationCallback, (None, self._gradient_id))


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
