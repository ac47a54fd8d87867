"""The registered models: which of them says where a step begins, and how its calls are noticed."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable

import torch
from torch.utils.hooks import RemovableHandle

from tensortap import _core
from tensortap.pytorch.callbacks import RootCallback
from tensortap.pytorch.modules import ModuleTable
from tensortap.pytorch.wrappers import is_sharded, takes_hooks

# Steps of optimizers without a forward pass from which on it is clear that none will be seen. One may be the rest of
# a step in which the hook was attached.
_CERTAINLY_BLIND = 2


class RootTable:
    """The models with a hook that stays on them.

    One of them, the driver, begins the steps: the first that is called, and when it is gone the next.

    Attributes
    ----------
    compiled
        Models that run as compiled code: their calls are noticed when something else happens after them.
    """

    def __init__(self, session: _core.Session) -> None:
        self._session = session
        self._callbacks: list[tuple[weakref.ref[torch.nn.Module], RootCallback]] = []
        self._handles: list[RemovableHandle] = []
        self._driver: weakref.ref[torch.nn.Module] | None = None
        self._blind_steps = 0
        self._is_led = False
        self.compiled: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()

    def let_lead(self) -> None:
        """Leave it to a training library to say where steps begin."""
        self._is_led = True
        for _, callback in self._callbacks:
            callback.let_lead()

    def add(self, module: torch.nn.Module, method: Callable[..., None]) -> None:
        """Let a method hear of a model's calls."""
        callback = RootCallback(method, self._session.gate())
        self._callbacks.append((weakref.ref(module), callback))
        if takes_hooks(module):
            self._put_hook(module, callback)
        else:
            self._blind_steps = _CERTAINLY_BLIND

    def _put_hook(self, module: torch.nn.Module, callback: RootCallback) -> None:
        # Before what fully_shard does then: it puts whole parameters in place of the shards.
        handle = module.register_forward_pre_hook(
            callback, with_kwargs=True, prepend=is_sharded(module)
        )
        self._handles.append(handle)

    def put_hooks(self) -> None:
        """Put back what `remove_hooks` took off."""
        for reference, callback in self._callbacks:
            module = reference()
            if module is not None and takes_hooks(module):
                self._put_hook(module, callback)

    def restore_hooks(self) -> bool:
        """Put back what somebody else has taken off. Whether there was anything."""
        if not self._handles:  # we did that ourselves
            return False
        lost = [
            (module, callback)
            for reference, callback in self._callbacks
            if (module := reference()) is not None
            and takes_hooks(module)
            and callback not in module._forward_pre_hooks.values()
        ]
        for module, callback in lost:
            self._put_hook(module, callback)
        return bool(lost)

    def remove_hooks(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    @property
    def driver(self) -> torch.nn.Module | None:
        return self._driver() if self._driver is not None else None

    @property
    def is_driven(self) -> bool:
        """Whether the driver itself tells of its calls, so that nothing else need be listened to in idle steps."""
        return self._is_led or (self._driver is not None and not self.compiled)

    def make_driver(self, module: torch.nn.Module) -> None:
        """Let a model say where steps begin."""
        self._driver = weakref.ref(module, functools.partial(_lose_driver, weakref.ref(self)))
        for reference, callback in self._callbacks:
            callback.is_driver = reference() is module

    def take_compiled_calls(self) -> None:
        """Begin the step of a forward pass that ran as compiled code. No weight has changed since."""
        for reference, callback in self._callbacks:
            if not callback.compiled_call.happened:
                continue
            callback.compiled_call.happened = False
            module = reference()
            if module is not None:
                self.compiled.add(module)
                callback.make_up(module)

    def is_blind(self) -> bool:
        """Note a step of an optimizer. Whether the models are called in a way that no hook ever sees."""
        if self._is_led or self._driver is not None or not self._callbacks:
            return False
        self._blind_steps += 1
        return self._blind_steps >= _CERTAINLY_BLIND


def _lose_driver(table: weakref.ref[RootTable], _: object) -> None:
    alive = table()
    if alive is not None:
        alive._driver = None
        # So that the next forward pass of any model comes through.
        alive._session.invalidate_plan()


def take_off_when_dead(
    hook: object, roots: RootTable, modules: ModuleTable, others: list[RemovableHandle]
) -> None:
    """Take everything off the models when a hook goes away that nobody has closed."""
    weakref.finalize(hook, _take_off, roots, modules, others).atexit = False


def _take_off(roots: RootTable, modules: ModuleTable, others: list[RemovableHandle]) -> None:
    roots.remove_hooks()
    modules.detach()
    for handle in others:
        handle.remove()
