"""Modules that wrap a user's model without being part of it: their names stay out of a run."""

from __future__ import annotations

from collections.abc import Iterator

import torch

# Under which name a wrapper holds what it wraps. Those that no user would choose are left out of paths wherever they
# stand.
_PRIVATE_NAMES = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
_PARALLEL = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)


def entry_point(module: torch.nn.Module) -> torch.nn.Module:
    """The outermost module whose calls can be observed and stand for calls of the model.

    Data-parallel wrappers call what they hold, and it may be called without them. The others are called themselves:
    compiled code runs no hooks, checkpointing calls what it holds again, and sharding changes its parameters before.
    """
    while isinstance(module, _PARALLEL):
        module = module.module
    return module


def innermost(module: torch.nn.Module) -> torch.nn.Module:
    """The user's own module in all its wrappers."""
    inner = _wrapped(module)
    while inner is not None:
        module = inner
        inner = _wrapped(module)
    return module


def walk(root: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Path and entry point of every module below a root and of the root itself, each once, in their order."""
    seen = {id(root)}
    waiting = [("", root)]
    while waiting:
        path, module = waiting.pop()
        yield path, module
        children = []
        for name, child in innermost(module)._modules.items():
            if child is not None:
                child = entry_point(child)
                if id(child) not in seen:
                    seen.add(id(child))
                    name = readable(name)
                    children.append((f"{path}.{name}" if path else name, child))
        waiting += reversed(children)


def model_name(module: torch.nn.Module) -> str:
    """Class of the user's model, whatever is wrapped around it."""
    inner = innermost(module)
    name = type(inner).__name__
    return name.removeprefix("FSDP") if is_sharded(inner) else name


def user_path(path: str) -> str:
    """Path of a parameter without the wrappers on its way."""
    path = readable(path)
    if "_" not in path:
        return path
    return ".".join(part for part in path.split(".") if part not in _PRIVATE_NAMES)


def readable(name: str) -> str:
    """A name that UTF-8 can encode: lone surrogates, which a run cannot hold, are written out."""
    return name if name.isascii() else name.encode(errors="backslashreplace").decode()


def is_sharded(module: torch.nn.Module) -> bool:
    """Whether ``fully_shard`` has made a class of its own, FSDP<name>, of the user's."""
    return any(base.__name__ == "FSDPModule" for base in type(module).__bases__)


def is_compiled(module: torch.nn.Module) -> bool:
    """Whether a module is what ``torch.compile(model)`` gives."""
    return "_orig_mod" in module._modules


def takes_hooks(module: torch.nn.Module) -> bool:
    """Whether hooks can be put onto a module: scripted ones refuse them."""
    return not isinstance(module, torch.jit.RecursiveScriptModule)


def _wrapped(module: torch.nn.Module) -> torch.nn.Module | None:
    if len(module._modules) != 1:  # as all wrappers have
        return None
    ((name, inner),) = module._modules.items()
    is_wrapper = name in _PRIVATE_NAMES or (name == "module" and isinstance(module, _PARALLEL))
    return inner if is_wrapper else None
