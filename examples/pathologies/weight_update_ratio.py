"""A learning rate of 1e-13: the updates are lost in the rounding of the weights."""

from collections.abc import Sequence
from pathlib import Path

from pathology import Pathology, fit, main, mlp

from tensortap.pytorch import Hook


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    lr = 1e-13 if is_sick else 1e-2
    return fit(
        mlp(64, 32, 10), out_dir, rules, lr=lr, collections=("weights",), save_raw_tensor=True
    )


PATHOLOGY = Pathology("WeightUpdateRatio", r"^Sequential_[02]\.weight$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
