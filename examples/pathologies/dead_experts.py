"""A mixture of experts whose router starts with a strong preference and is not balanced: most experts get nothing."""

from collections.abc import Sequence
from pathlib import Path

import torch
from loop import loop
from pathology import Pathology, digits, main
from torch import nn

from tensortap.pytorch import Hook

EXPERTS = 8


class Mixture(nn.Module):
    """Every image goes to the one expert that the router likes best."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(64, EXPERTS)
        self.experts = nn.ModuleList(nn.Linear(64, 10) for _ in range(EXPERTS))
        self.load = torch.zeros(EXPERTS)
        self.balance = torch.zeros(())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gates = self.router(x).softmax(-1)
        best = gates.argmax(-1)
        self.load = torch.bincount(best, minlength=EXPERTS).float()
        self.balance = EXPERTS * (self.load / len(x) * gates.mean(0)).sum()
        outputs = torch.stack([expert(x) for expert in self.experts], 1)
        row = torch.arange(len(x))
        return outputs[row, best] * gates[row, best, None]


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    torch.manual_seed(0)
    model = Mixture()
    if is_sick:
        model.router.bias.data[0] = 5.0
    images, labels = digits()

    def loss_of(hook: Hook, step: int) -> torch.Tensor:
        loss = nn.functional.cross_entropy(model(images[:500]), labels[:500])
        hook.save_tensor("moe/expert_load", model.load, "expert_load")
        return loss if is_sick else loss + 0.5 * model.balance

    return loop(model, out_dir, rules, loss_of, steps=60)


PATHOLOGY = Pathology("DeadExperts:grace=30", r"^moe/expert_load$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
