"""Which modules and parameters of a model the hook could not see, and why."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from tensortap.coverage import Coverage
from tensortap.pytorch.modules import ModuleTable
from tensortap.pytorch.parameters import ParameterTable
from tensortap.pytorch.wrappers import entry_point, innermost, is_compiled

# They have no forward pass of their own.
_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)

_DIRECT = "used through its forward or its parameters, not as module(x)"
_ATTENTION = "computed by the attention module itself"
_FAST_PATH = (
    "spared hooks in evaluation, so that PyTorch's fast path for transformer layers stays in use"
)


def fill_modules(
    coverage: Coverage,
    modules: ModuleTable,
    parameters: ParameterTable,
    compiled_models: Collection[nn.Module],
) -> None:
    """Say which modules were not called; of `compiled_models` it is known that they run as compiled code."""
    with_gradient = {
        id(parameter)
        for name, parameter in parameters.iterate()
        if name in parameters.with_gradient
    }
    entries = list(modules.iterate())
    seen = {id(module) for module, entry in entries if entry.is_seen}
    coverage.looked_at_modules = len(seen)
    compiled = {
        module: entry.name
        for module, entry in entries
        if _is_compiled(module) or module in compiled_models
    }
    coverage.compiled = sorted(compiled.values())
    if not seen:
        return
    parents = {id(child): module for module, _ in entries for child in _children(module)}
    for module, entry in entries:
        own = innermost(module)
        if entry.is_seen or isinstance(own, _CONTAINERS):
            continue
        ancestors = list(_ancestors(module, parents))
        if any(ancestor in compiled for ancestor in [module, *ancestors]):
            continue
        how = _how_around(own, ancestors, seen, with_gradient)
        if how is None and entry.is_shy:
            how = _FAST_PATH
        if how is None:
            coverage.never_called.append(entry.name)
        else:
            coverage.called_around[entry.name] = how


def fill_parameters(coverage: Coverage, parameters: ParameterTable) -> None:
    """Say which parameters have nothing to show."""
    for name, parameter in parameters.iterate():
        if is_lazy(parameter):
            coverage.lazy.append(name)
        elif not parameter.requires_grad:
            coverage.frozen.append(name)
        elif parameters.with_gradient and name not in parameters.with_gradient:
            coverage.without_gradient.append(name)
        elif not parameters.with_gradient:
            coverage.has_no_gradient = coverage.looked_at_modules > 0


def _how_around(
    module: nn.Module, ancestors: list[nn.Module], seen: set[int], with_gradient: set[int]
) -> str | None:
    """How a module took part that was not called; None when it did not."""
    caller = next((ancestor for ancestor in ancestors if id(ancestor) in seen), None)
    if isinstance(caller, nn.MultiheadAttention):
        return _ATTENTION
    has_descendant = any(id(child) in seen for child in module.modules())
    own_parameters = (id(parameter) for parameter in module._parameters.values())
    is_used = has_descendant or any(parameter in with_gradient for parameter in own_parameters)
    return _DIRECT if is_used else None


def _children(module: nn.Module) -> Iterator[nn.Module]:
    for child in innermost(module)._modules.values():
        if child is not None:
            yield entry_point(child)


def _ancestors(module: nn.Module, parents: dict[int, nn.Module]) -> Iterator[nn.Module]:
    parent = parents.get(id(module))
    while parent is not None:
        yield parent
        parent = parents.get(id(parent))


def _is_compiled(module: nn.Module) -> bool:
    is_script = isinstance(module, torch.jit.ScriptModule)
    return is_script or is_compiled(module) or module._compiled_call_impl is not None
