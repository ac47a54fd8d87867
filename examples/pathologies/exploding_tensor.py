"""A learning rate of a million: the weights leave the range of floating point within a few steps."""

from collections.abc import Sequence
from pathlib import Path

from pathology import Pathology, fit, main, mlp

from tensortap.pytorch import Hook


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    lr, momentum = (1e6, 10.0) if is_sick else (0.01, 0.9)
    return fit(mlp(64, 32, 10), out_dir, rules, lr=lr, momentum=momentum, steps=40)


PATHOLOGY = Pathology("ExplodingTensor", r"^(gradient/)?Sequential_", train)

if __name__ == "__main__":
    main(PATHOLOGY)
