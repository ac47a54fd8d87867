"""TorchScript compiles a module's hooks with it, and cannot compile ours: they step aside meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tensortap.pytorch.interception import Interception, slot_of
from tensortap.pytorch.modules import ModuleTable
from tensortap.pytorch.roots import RootTable

_creation = Interception(slot_of(torch.jit._recursive, "create_script_module"))


class ScriptingWatch:
    """Takes the hooks off the models while ``torch.jit.script`` or ``torch.jit.trace`` makes a script module."""

    def __init__(self, roots: RootTable, modules: ModuleTable) -> None:
        self._roots = roots
        self._modules = modules

    def open(self) -> None:
        _creation.remove(self._around_creation)  # once is enough, whatever the number of models
        _creation.add(self._around_creation)

    def close(self) -> None:
        _creation.remove(self._around_creation)

    def _around_creation(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        was_armed = self._modules.disarm()
        self._roots.remove_hooks()
        try:
            return call(*args, **kwargs)
        finally:
            self._roots.put_hooks()
            if was_armed:
                self._modules.arm()
