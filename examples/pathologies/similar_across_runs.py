"""A training that is run again: with another seed it differs from its first step, with the same one it does not."""

from collections.abc import Sequence
from pathlib import Path

import torch
from pathology import Pathology, fit, main, mlp
from torch import nn

from tensortap.pytorch import Hook


def model_of(seed: int) -> nn.Sequential:
    model = mlp(64, 32, 10)
    torch.manual_seed(seed)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.1)
    return model


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    first = out_dir / "first"
    fit(model_of(seed=0), first, [])
    rules = [f"{rule},other_trials={first}" for rule in rules]
    return fit(model_of(seed=1 if is_sick else 0), out_dir / "second", rules)


PATHOLOGY = Pathology("SimilarAcrossRuns:tensor_regex=weight", r"^Sequential_0\.weight$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
