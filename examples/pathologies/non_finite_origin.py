"""A layer that divides by the spread of each pixel: one pixel is always white, and zero by zero is no number."""

from collections.abc import Sequence
from pathlib import Path

import torch
from pathology import Pathology, fit, main, mlp
from torch import nn

from tensortap.pytorch import Hook


class Standardise(nn.Module):
    """Subtract the mean, divide by the standard deviation, which is at least ``least``."""

    def __init__(self, least: float) -> None:
        super().__init__()
        self.least = least

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - x.mean(0)) / x.std(0).clamp_min(self.least)


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    model = nn.Sequential(
        nn.Identity(), Standardise(0.0 if is_sick else 1e-3), *mlp(64, 32, 10).children()
    )
    return fit(model, out_dir, rules, steps=5, collections=("all",))


PATHOLOGY = Pathology("NonFiniteOrigin", r"^1_output_0$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
