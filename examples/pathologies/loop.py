"""A training loop whose losses the trainings of today's rules compute themselves, and runs of several workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

import tensortap
from tensortap.pytorch import Hook


def loop(
    model: nn.Module,
    out_dir: Path,
    rules: Sequence[str],
    loss_of: Callable[[Hook, int], torch.Tensor],
    *,
    steps: int,
    optimizer: torch.optim.Optimizer | None = None,
    collections: Sequence[str] = ("weights", "gradients", "losses"),
    after_backward: Callable[[int], object] = lambda step: None,
    **hook_arguments: Any,
) -> Hook:
    """Train on what ``loss_of(hook, step)`` gives. Gives the closed hook."""
    if optimizer is None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = tensortap.watch(
        model, optimizer, out_dir=out_dir, rules=rules, collections=collections, **hook_arguments
    )
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(hook, step)
        hook.record_tensor_value("loss", loss)
        loss.backward()
        after_backward(step)
        optimizer.step()
    hook.close()
    return hook


class Workers:
    """A run of several workers, judged when it is over: what a hook tells of itself."""

    def __init__(self, out_dir: Path, rules: Sequence[str]) -> None:
        self._result = tensortap.check(out_dir, rules)

    def findings(self) -> list[Any]:
        """All findings."""
        return list(self._result)

    def rule_reports(self) -> list[Any]:
        """The status of each rule."""
        return list(self._result.reports)
