"""How each peer is attached to a training: it records all weights, biases and gradients, and losses where it can.

An adapter opens the peer on a training and gives two functions: what the loop calls after each step,
and what ends the recording. Each library is imported only here, since each lives in its own environment.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

import models

AfterStep = Callable[[], object]
Close = Callable[[], object]
Adapter = Callable[[models.Training, str, int], tuple[AfterStep, Close]]

COLLECTIONS = ["weights", "biases", "gradients", "losses"]


def _nothing() -> None:
    pass


def _register(hook: Any, training: models.Training) -> tuple[AfterStep, Close]:
    hook.register_module(training.model)
    hook.register_loss(training.criterion)
    return _nothing, hook.close


def tensortap_statistics(training: models.Training, directory: str, interval: int) -> Any:
    """All statistics with histograms."""
    from tensortap.pytorch import Hook, ReductionConfig, SaveConfig

    config = SaveConfig(save_interval=interval)
    return _register(
        Hook(
            f"{directory}/run",
            save_config=config,
            reduction_config=ReductionConfig(),
            include_collections=COLLECTIONS,
        ),
        training,
    )


def tensortap_raw(training: models.Training, directory: str, interval: int) -> Any:
    """The same, and raw values."""
    from tensortap.pytorch import Hook, SaveConfig

    config = SaveConfig(save_interval=interval)
    return _register(
        Hook(f"{directory}/run", save_config=config, include_collections=COLLECTIONS), training
    )


def _smdebug(training: models.Training, directory: str, interval: int, **arguments: Any) -> Any:
    logging.getLogger("smdebug").setLevel(logging.ERROR)
    import smdebug.pytorch as smd

    config = smd.SaveConfig(save_interval=interval)
    return _register(
        smd.Hook(
            out_dir=f"{directory}/run",
            save_config=config,
            include_collections=COLLECTIONS,
            **arguments,
        ),
        training,
    )


def smdebug_raw(training: models.Training, directory: str, interval: int) -> Any:
    """Raw values: what smdebug does unless told otherwise."""
    return _smdebug(training, directory, interval)


def smdebug_reductions(training: models.Training, directory: str, interval: int) -> Any:
    """Every reduction that smdebug has, but for those of absolute values."""
    import smdebug.pytorch as smd

    reductions = smd.ReductionConfig(
        reductions=["min", "max", "mean", "std", "variance", "sum", "prod"], norms=["l1", "l2"]
    )
    return _smdebug(training, directory, interval, reduction_config=reductions)


def tensorboard(training: models.Training, directory: str, interval: int) -> Any:
    """``add_histogram`` of every parameter and gradient."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(f"{directory}/run")
    step = -1

    def after_step() -> None:
        nonlocal step
        step += 1
        if step % interval == 0:
            for name, parameter in training.model.named_parameters():
                writer.add_histogram(name, parameter, step)
                writer.add_histogram(f"gradient/{name}", parameter.grad, step)

    return after_step, writer.close


def wandb(training: models.Training, directory: str, interval: int) -> Any:
    """``watch(log="all")``, offline."""
    os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": directory}
    import wandb

    run = wandb.init(project="peers", dir=directory)
    run.watch(training.model, log="all", log_freq=interval)
    step = -1

    def after_step() -> None:
        nonlocal step
        step += 1
        run.log({"step": step})

    return after_step, run.finish


ADAPTERS: dict[str, Adapter] = {
    adapter.__name__: adapter
    for adapter in (
        tensortap_statistics,
        tensortap_raw,
        smdebug_reductions,
        smdebug_raw,
        tensorboard,
        wandb,
    )
}
