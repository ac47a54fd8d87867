"""The scaling of the images changes in mid-training: Adam's second moment does not know such gradients yet."""

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

    def loss_of(hook: Hook, step: int) -> torch.Tensor:
        scale = 16.0 if is_sick and step >= 30 else 1.0
        start = step % 8 * 200
        batch = images[start : start + 200] * scale
        return nn.functional.cross_entropy(model(batch), labels[start : start + 200])

    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    return loop(
        model,
        out_dir,
        rules,
        loss_of,
        steps=35,
        optimizer=optimizer,
        collections=("gradients", "optimizer_variables"),
    )


PATHOLOGY = Pathology("AdamSecondMoment", r"^optimizer/Sequential_0\.weight/exp_avg_sq$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
