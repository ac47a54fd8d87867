"""Weights far too large in front of tanh: every unit sits in its flat region for every sample."""

from collections.abc import Sequence
from pathlib import Path

from pathology import Pathology, fit, main, mlp
from torch import nn

from tensortap.pytorch import Hook


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    def initialise(weight):
        return nn.init.normal_(weight, std=3000.0) if is_sick else nn.init.xavier_normal_(weight)

    model = mlp(64, 32, 32, 10, activation=nn.Tanh, initialise=initialise)
    return fit(
        model, out_dir, rules, lr=0.01, steps=3, collections=("tanh_input",), save_raw_tensor=True
    )


PATHOLOGY = Pathology("SaturatedActivation", r"^[13]_input_0$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
