"""Attention whose queries are its keys, neither normalised, at a learning rate far too high: its logits explode."""

from collections.abc import Sequence
from pathlib import Path

import torch
from loop import loop
from pathology import Pathology, digits, main
from torch import nn

from tensortap.pytorch import Hook


class Attention(nn.Module):
    """One head over the eight rows of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(8, 16)
        self.key = self.query  # shared: a row attends to itself, and its logit is a square
        self.value = nn.Linear(8, 16)
        self.head = nn.Linear(16, 10)
        self.logits = torch.zeros(())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, 8, 8)
        self.logits = self.query(rows) @ self.key(rows).transpose(1, 2) / 4.0
        scores: torch.Tensor = self.head((self.logits.softmax(-1) @ self.value(rows)).mean(1))
        return scores


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    torch.manual_seed(0)
    model = Attention()
    images, labels = digits()

    def loss_of(hook: Hook, step: int) -> torch.Tensor:
        loss = nn.functional.cross_entropy(model(images[:500]), labels[:500])
        hook.save_tensor("attention_logits/0", model.logits[:64], "attention_logits")
        return loss

    optimizer = torch.optim.Adam(model.parameters(), lr=1.0 if is_sick else 0.003)
    return loop(model, out_dir, rules, loss_of, steps=30, optimizer=optimizer)


PATHOLOGY = Pathology("AttentionLogitGrowth", r"^attention_logits/0$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
