"""Biases that start far below zero: no rectified unit ever outputs anything, so none ever learns."""

from collections.abc import Sequence
from pathlib import Path

from pathology import Pathology, fit, main, mlp
from torch import nn

from tensortap.pytorch import Hook


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    model = mlp(64, 32, 32, 10)
    if is_sick:
        nn.init.constant_(model[2].bias, -10.0)
    return fit(model, out_dir, rules, collections=("relu_output",), save_raw_tensor=True)


PATHOLOGY = Pathology("DeadRelu", r"^3_output_0$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
