"""Ten layers with weights drawn from N(0, 1): the signal grows from layer to layer. He's scale keeps it level."""

from collections.abc import Sequence
from pathlib import Path

from pathology import Pathology, fit, main, mlp
from torch import nn

from tensortap.pytorch import Hook


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    initialise = nn.init.normal_ if is_sick else nn.init.kaiming_normal_
    model = mlp(64, *[64] * 9, 10, initialise=initialise)
    collections = ("relu_input", "gradients", "losses")
    return fit(model, out_dir, rules, lr=0.01, batch_size=1797, collections=collections)


PATHOLOGY = Pathology(
    "PoorWeightInitialization:check_gradients=relative", r"^(17|15)_input_0|oss_", train
)

if __name__ == "__main__":
    main(PATHOLOGY)
