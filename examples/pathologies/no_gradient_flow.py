"""A low-rank adapter whose output is detached: it is listed as trainable and never gets a gradient."""

from collections.abc import Sequence
from pathlib import Path

import torch
from loop import loop
from pathology import Pathology, digits, main
from torch import nn

from tensortap.pytorch import Hook


class Adapted(nn.Module):
    """A frozen layer with an adapter beside it, and a head."""

    def __init__(self, is_detached: bool) -> None:
        super().__init__()
        self.base = nn.Linear(64, 32).requires_grad_(False)
        self.lora_A = nn.Linear(64, 4, bias=False)
        self.lora_B = nn.Linear(4, 32, bias=False)
        nn.init.zeros_(self.lora_B.weight)
        self.head = nn.Linear(32, 10)
        self.is_detached = is_detached

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        change = self.lora_B(self.lora_A(x))
        scores: torch.Tensor = self.head(
            self.base(x) + (change.detach() if self.is_detached else change)
        )
        return scores


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    torch.manual_seed(0)
    model = Adapted(is_detached=is_sick)
    images, labels = digits()

    def loss_of(hook: Hook, step: int) -> torch.Tensor:
        return nn.functional.cross_entropy(model(images[:200]), labels[:200])

    return loop(model, out_dir, rules, loss_of, steps=6)


PATHOLOGY = Pathology("NoGradientFlow", r"^Adapted_lora_A\.weight$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
