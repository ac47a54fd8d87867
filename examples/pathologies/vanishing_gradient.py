"""A stack of twelve sigmoid layers: each one scales the gradient by a quarter at most."""

from collections.abc import Sequence
from pathlib import Path

from pathology import Pathology, fit, main, mlp
from torch import nn

from tensortap.pytorch import Hook


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    depth, activation = (12, nn.Sigmoid) if is_sick else (2, nn.Tanh)
    model = mlp(64, *[32] * depth, 10, activation=activation)
    return fit(model, out_dir, rules)


PATHOLOGY = Pathology("VanishingGradient", r"^gradient/Sequential_0\.", train)

if __name__ == "__main__":
    main(PATHOLOGY)
