"""A scheduler that every one of four processes steps: warm-up is over after a quarter of its steps."""

from collections.abc import Sequence
from pathlib import Path

import torch
from loop import loop
from pathology import Pathology, digits, main, mlp
from torch import nn

from tensortap.pytorch import Hook


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    model = mlp(64, 32, 10)
    images, labels = digits()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step / 40, 1.0))

    def loss_of(hook: Hook, step: int) -> torch.Tensor:
        for _ in range((4 if is_sick else 1) if step > 0 else 0):
            scheduler.step()
        return nn.functional.cross_entropy(model(images[:200]), labels[:200])

    return loop(model, out_dir, rules, loss_of, steps=50, optimizer=optimizer)


PATHOLOGY = Pathology("LRScheduleFault:peak=0.1,warmup_steps=40", r"^learning_rate/SGD/0$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
