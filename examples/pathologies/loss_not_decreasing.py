"""A learning rate of zero, as a broken schedule gives it: the loss stays where it is."""

from collections.abc import Sequence
from pathlib import Path

from pathology import Pathology, fit, main, mlp

from tensortap.pytorch import Hook


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    lr = 0.0 if is_sick else 0.1
    return fit(mlp(64, 32, 10), out_dir, rules, lr=lr, steps=31, batch_size=1797)


PATHOLOGY = Pathology("LossNotDecreasing", "^CrossEntropyLoss_output_0$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
