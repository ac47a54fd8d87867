"""All weights start at zero: every layer outputs zeros, and no gradient ever changes that."""

from collections.abc import Sequence
from pathlib import Path

from pathology import Pathology, fit, main, mlp
from torch import nn

from tensortap.pytorch import Hook


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    initialise = nn.init.zeros_ if is_sick else nn.init.kaiming_normal_
    model = mlp(64, 32, 32, 10, initialise=initialise)
    return fit(model, out_dir, rules, collections=("relu_output",))


PATHOLOGY = Pathology("AllZero:collection_names=relu_output", r"^[13]_output_0$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
