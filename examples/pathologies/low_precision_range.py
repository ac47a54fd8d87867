"""A deep sigmoid network in float16 without loss scaling: its first gradients fall out of the format's range."""

from collections.abc import Sequence
from pathlib import Path

import torch
from loop import loop
from pathology import Pathology, digits, main, mlp
from torch import nn

from tensortap.pytorch import Hook


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    model = mlp(64, 32, 32, 32, 10, activation=nn.Sigmoid).half()
    images, labels = digits()
    scale = 1.0 if is_sick else 4096.0

    def loss_of(hook: Hook, step: int) -> torch.Tensor:
        scores = model(images[:200].half()).float()
        return nn.functional.cross_entropy(scores, labels[:200]) * scale

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 / scale)
    return loop(model, out_dir, rules, loss_of, steps=5, optimizer=optimizer)


PATHOLOGY = Pathology("LowPrecisionRange", r"^gradient/Sequential_0\.weight$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
