"""One line beside a training loop."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import torch

from tensortap.config import ReductionConfig, SaveConfig
from tensortap.exceptions import InvalidArgumentError, InvalidTypeError
from tensortap.pytorch.hook import Hook
from tensortap.pytorch.modules import require_module

#: What is recorded when nobody says what.
DEFAULT_COLLECTIONS = ("weights", "biases", "gradients", "losses")


def default_out_dir() -> str:
    """Directory of a run that nobody named: ``tensortap_runs/<date>-<time>-<pid>``."""
    return os.path.join("tensortap_runs", f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")


def watch(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    loss: torch.nn.Module | None = None,
    out_dir: str | os.PathLike[str] | None = None,
    rules: Sequence[Any] = (),
    *,
    collections: Sequence[str] = DEFAULT_COLLECTIONS,
    save_interval: int = 1,
    save_raw_tensor: bool = False,
    **hook_arguments: Any,
) -> Hook:
    """Record a training from now on, and watch it with rules.

    Parameters
    ----------
    model
        The module that is trained.
    optimizer
        Its optimizer. Optimizers are found by themselves; giving it checks at once that it updates ``model``.
    loss
        Loss module whose output is recorded. For a loss function call ``hook.record_tensor_value("loss", value)``.
    out_dir
        Directory of the run; None makes ``tensortap_runs/<date>-<time>-<pid>``.
    rules
        As for :class:`Hook`.
    collections
        What to record: any of ``weights``, ``biases``, ``gradients``, ``losses``, ``all``.
    save_interval
        Record every n-th step of each mode.
    save_raw_tensor
        Keep raw values too, not only statistics.
    **hook_arguments
        Any other argument of :class:`Hook`.

    Returns
    -------
    Hook
        Call its ``close()`` at the end, or use it as a context manager; otherwise it closes when the process ends.

    Raises
    ------
    InvalidArgumentError
        ``optimizer`` updates no parameter of ``model``, ``loss`` is a part of it, or an argument has the wrong type.

    Examples
    --------
    >>> hook = tensortap.watch(model, optimizer, loss=criterion, out_dir="runs/1",
    ...                        rules=["VanishingGradient:actions=stop_training"])
    """
    require_module(model, "watch")
    if loss is not None:
        require_module(loss, "watch(loss=...)", "call hook.record_tensor_value for a loss function")
        if any(part is loss for part in model.modules()):
            raise InvalidArgumentError("the loss is the model or a part of it: it is seen with it")
    if optimizer is not None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise InvalidTypeError(
                f"watch takes a torch.optim.Optimizer, not {type(optimizer).__name__}"
            )
        own = {id(parameter) for parameter in model.parameters()}
        if not any(id(p) in own for group in optimizer.param_groups for p in group["params"]):
            raise InvalidArgumentError("the optimizer updates no parameter of the model")
    hook_arguments.setdefault("save_config", SaveConfig(save_interval=save_interval))
    hook_arguments.setdefault("reduction_config", ReductionConfig(save_raw_tensor=save_raw_tensor))
    hook = Hook(
        default_out_dir() if out_dir is None else out_dir,
        include_collections=collections,
        rules=rules,
        **hook_arguments,
    )
    hook.register_module(model)
    if loss is not None:
        hook.register_loss(loss)
    return hook
