"""Weights of one layer drawn from N(0, 10) among layers of the usual scale."""

from collections.abc import Sequence
from pathlib import Path

from pathology import Pathology, fit, main, mlp
from torch import nn

from tensortap.pytorch import Hook


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    model = mlp(64, 32, 32, 10)
    if is_sick:
        nn.init.normal_(model[2].weight, std=10.0)
    return fit(model, out_dir, rules, lr=1e-4, collections=("weights",))


PATHOLOGY = Pathology(
    "TensorVariance:collection_names=weights,max_threshold=10", r"^Sequential_2\.weight$", train
)

if __name__ == "__main__":
    main(PATHOLOGY)
