"""What the trainings in this folder share: real handwritten digits, a training loop, and a command line.

Each of them shows one illness, which one rule finds, and its healthy twin, at which the same rule is silent:
``python examples/pathologies/dead_relu.py``.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn

import tensortap
from tensortap import modes
from tensortap.pytorch import Hook


@dataclass(frozen=True)
class Pathology:
    """An illness: ``train(out_dir, is_sick, rules)`` trains and gives the closed hook."""

    rule: str  # with its parameters, as on the command line
    tensor: str  # a regex: where the illness shows
    train: Callable[[Path, bool, Sequence[str]], Hook]
    samples_machine: bool = False  # the rule looks at system metrics

    def run(self, out_dir: Path, is_sick: bool) -> Hook:
        """Train with the rule watching."""
        return self.train(out_dir, is_sick, [self.rule])


@functools.cache
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """1,797 images as rows of 64 pixels in 0..1, and their digits, shuffled."""
    data = load_digits()
    order = torch.randperm(len(data.data), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(data.data, dtype=torch.float32) / 16.0
    return images[order], torch.tensor(data.target)[order]


def mlp(
    *sizes: int,
    activation: type[nn.Module] = nn.ReLU,
    initialise: Callable[[torch.Tensor], object] | None = None,
) -> nn.Sequential:
    """Linear layers of these sizes with activations in between, the same every time."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), activation()]
    model = nn.Sequential(*layers[:-1])
    for module in model:
        if isinstance(module, nn.Linear) and initialise is not None:
            initialise(module.weight)
            nn.init.zeros_(module.bias)
    return model


def fit(
    model: nn.Module,
    out_dir: Path,
    rules: Sequence[str],
    *,
    lr: float = 0.1,
    momentum: float = 0.0,
    steps: int = 10,
    batch_size: int = 1000,
    inputs: torch.Tensor | None = None,
    labels: torch.Tensor | None = None,
    collections: Sequence[str] = ("weights", "gradients", "losses"),
    save_raw_tensor: bool = False,
    parameters: Sequence[nn.Parameter] | None = None,
    after_step: Callable[[Hook, int], object] = lambda hook, step: None,
) -> Hook:
    """Train a classifier with SGD for some steps; ``after_step`` may do more."""
    if inputs is None or labels is None:
        images, targets = digits()
        inputs = images if inputs is None else inputs
        labels = targets[: len(inputs)] if labels is None else labels
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(parameters or list(model.parameters()), lr=lr, momentum=momentum)
    hook = tensortap.watch(
        model,
        optimizer,
        loss=criterion,
        out_dir=out_dir,
        rules=rules,
        collections=collections,
        save_raw_tensor=save_raw_tensor,
    )
    batch_count = len(inputs) // batch_size or 1
    for step in range(steps):
        hook.set_mode(modes.TRAIN)
        start = step % batch_count * batch_size
        optimizer.zero_grad()
        outputs = model(inputs[start : start + batch_size])
        criterion(outputs, labels[start : start + batch_size]).backward()
        optimizer.step()
        after_step(hook, step)
    hook.close()
    return hook


def evaluate(
    model: nn.Module, hook: Hook, inputs: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    """One step of mode EVAL, with a loss of the training's name. Gives the scores."""
    hook.set_mode(modes.EVAL)
    with torch.no_grad():
        scores: torch.Tensor = model(inputs)
        loss = nn.functional.cross_entropy(scores, labels)
    hook.record_tensor_value("CrossEntropyLoss", loss)
    return scores


def main(pathology: Pathology) -> None:
    """Run both twins and print what the rule says."""
    parser = argparse.ArgumentParser(description=f"The illness that {pathology.rule} finds.")
    parser.add_argument("--out", type=Path, help="where the runs go; default: a temporary folder")
    out = parser.parse_args().out or Path(tempfile.mkdtemp())
    for title, is_sick in (("Healthy", False), ("Sick", True)):
        findings = pathology.run(out / title.lower(), is_sick).findings()
        print(f"{title}: {len(findings)} findings of {pathology.rule.partition(':')[0]}")
        for finding in findings[:3]:
            print(f"  step {finding.step}: {finding.message}")
    print(f"Runs: {out}")
