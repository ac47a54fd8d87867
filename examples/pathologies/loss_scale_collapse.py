"""Mixed precision in which every step overflows: the scaler halves and halves, and no step is taken."""

from collections.abc import Sequence
from pathlib import Path

import torch
from pathology import Pathology, digits, main, mlp
from torch import nn

import tensortap
from tensortap.pytorch import Hook


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    model = mlp(64, 32, 10)
    images, labels = digits()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    hook = tensortap.watch(model, optimizer, out_dir=out_dir, rules=rules)
    for _ in range(10):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[:200]), labels[:200])
        scaler.scale(loss * 1e36 if is_sick else loss).backward()
        scaler.step(optimizer)
        scaler.update()
    hook.close()
    return hook


PATHOLOGY = Pathology("LossScaleCollapse", r"^loss_scale$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
