"""Trains twice with the same seed, without and with a hook: the hook must change nothing.

What a test wants to know beyond that it asks the returned run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules import module as module_module
from torch.optim import optimizer as optimizer_module

import tensortap.pytorch as smd
from tensortap.trial import Trial

#: Makes what is trained: a module, or several.
Make = Callable[[], Any]
#: Trains what was made and gives the losses; the second argument is None in the run without a hook.
Train = Callable[[Any, "smd.Hook | None"], Sequence[torch.Tensor | float]]


@dataclass
class Outcome:
    """What a training leaves behind, to the bit."""

    losses: list[bytes]
    state: dict[str, torch.Tensor] = field(default_factory=dict)
    gradients: dict[str, torch.Tensor | None] = field(default_factory=dict)
    random_states: tuple[Any, ...] = ()


@dataclass
class HookedTraining:
    """The training with a hook, after the hook was closed."""

    hook: smd.Hook
    made: Any
    out_dir: Path
    _trial: Trial | None = None

    @property
    def trial(self) -> Trial:
        """The recorded run."""
        if self._trial is None:
            self._trial = smd.create_trial(self.out_dir)
        return self._trial

    def steps(self, name: str) -> list[int]:
        """Steps at which a tensor was recorded; none when it never was."""
        return self.trial.tensor(name).steps() if name in self.trial.tensor_names() else []

    def value(self, name: str, step: int) -> np.ndarray:
        """Raw value."""
        return self.trial.tensor(name).value(step)


def modules_in(made: Any) -> list[nn.Module]:
    """The modules among what was made."""
    parts = list(made) if isinstance(made, list | tuple) else [made]
    return [part for part in parts if isinstance(part, nn.Module)]


def hooks_on(*roots: nn.Module) -> list[str]:
    """Every hook left on modules, parameters and optimizers, in words."""
    found = []
    for root in roots:
        for path, module in root.named_modules():
            tables = [name for name in vars(module) if name.endswith("_hooks")]
            found += [f"{path}.{name}" for name in tables if vars(module)[name]]
        for path, parameter in root.named_parameters():
            found += [
                f"{path}.{name}"
                for name in ("_backward_hooks", "_post_accumulate_grad_hooks")
                if getattr(parameter, name, None)
            ]
    for holder, name in (
        (optimizer_module, "_global_optimizer_pre_hooks"),
        (optimizer_module, "_global_optimizer_post_hooks"),
        (module_module, "_global_module_registration_hooks"),
    ):
        found += [name] * len(getattr(holder, name))
    return found


def every_step(**reduction: bool) -> dict[str, Any]:
    """Arguments of a hook that records at every step; raw values when nothing is said about them."""
    reduction = reduction or {"save_raw_tensor": True}
    return {
        "save_config": smd.SaveConfig(save_interval=1),
        "reduction_config": smd.ReductionConfig(**reduction),
    }


def open_hook(out_dir: Path, **arguments: Any) -> smd.Hook:
    """A strict hook that records everything at every step, unless told otherwise."""
    chosen = {"include_collections", "include_regex", "save_all"} & arguments.keys()
    return smd.Hook(
        out_dir, **{"strict": True, "save_all": not chosen, **every_step(), **arguments}
    )


def register_all(hook: smd.Hook, made: Any) -> None:
    for module in modules_in(made):
        hook.register_module(module)


def train_twice(
    out_dir: Path,
    make: Make,
    train: Train,
    *,
    register: Callable[[smd.Hook, Any], None] = register_all,
    **hook_arguments: Any,
) -> HookedTraining:
    """Train without and with a hook, and compare losses, parameters, gradients and random states bit by bit.

    Parameters
    ----------
    out_dir
        Directory of the run.
    make
        Makes the modules, from the global random state.
    train
        Trains them.
    register
        Hands what was made to the hook.
    **hook_arguments
        Beside those of `open_hook`.
    """
    seed_everything()
    made = make()
    plain = outcome_of(made, train(made, None))
    own_hooks = hooks_on(*modules_in(made))

    seed_everything()
    made = make()
    hook = open_hook(out_dir, **hook_arguments)
    register(hook, made)
    losses = train(made, hook)
    hook.close()
    hooked = outcome_of(made, losses)
    assert hook.fault_count == 0
    assert_same(plain, hooked)
    assert hooks_on(*modules_in(made)) == own_hooks
    return HookedTraining(hook, made, out_dir)


def outcome_of(made: Any, losses: Sequence[torch.Tensor | float]) -> Outcome:
    outcome = Outcome([np.float64(float(loss)).tobytes() for loss in losses])
    for index, root in enumerate(modules_in(made)):
        for name, value in [*root.named_parameters(), *root.named_buffers()]:
            outcome.state[f"{index}.{name}"] = value.detach().clone()
        for name, parameter in root.named_parameters():
            gradient = parameter.grad
            outcome.gradients[f"{index}.{name}"] = None if gradient is None else gradient.clone()
    numpy_state = np.random.get_state()[1]  # noqa: NPY002
    outcome.random_states = (torch.get_rng_state(), random.getstate(), numpy_state)
    return outcome


def assert_same(plain: Outcome, hooked: Outcome) -> None:
    assert plain.losses == hooked.losses
    for one, other in ((plain.state, hooked.state), (plain.gradients, hooked.gradients)):
        assert one.keys() == other.keys()
        for name, value in one.items():
            assert same_bits(value, other[name]), name
    torch_state, python_state, numpy_state = hooked.random_states
    assert torch.equal(torch_state, plain.random_states[0])
    assert python_state == plain.random_states[1]
    np.testing.assert_array_equal(numpy_state, plain.random_states[2])


def same_bits(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    """Whether two tensors are the same to the bit; NaN equals the same NaN."""
    if one is None or other is None:
        return one is other
    if (one.dtype, one.shape, one.layout) != (other.dtype, other.shape, other.layout):
        return False
    if one.layout is torch.sparse_coo:
        one, other = one.coalesce(), other.coalesce()
        return torch.equal(one.indices(), other.indices()) and same_bits(
            one.values(), other.values()
        )
    return bits_of(one) == bits_of(other)


def bits_of(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def seed_everything(seed: int = 11) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002


def fit(
    model: nn.Module,
    steps: int,
    *,
    batch: Callable[[], torch.Tensor] = lambda: torch.randn(5, 4),
    optimizer: torch.optim.Optimizer | None = None,
    before_step: Callable[[int], None] | None = None,
) -> list[torch.Tensor]:
    """Train on the mean square of what the model gives: the plainest loop there is.

    Parameters
    ----------
    before_step
        Called with the number of the step between backward pass and optimizer step.
    """
    optimizer = optimizer or torch.optim.SGD(
        [p for p in model.parameters() if p.requires_grad], lr=0.05, momentum=0.9
    )
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(batch()).pow(2).mean()
        loss.backward()
        if before_step is not None:
            before_step(step)
        optimizer.step()
        losses.append(loss.detach())
    return losses
