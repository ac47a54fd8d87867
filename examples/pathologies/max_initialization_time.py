"""A training that reads its data set for long after everything else is ready."""

import time
from collections.abc import Sequence
from pathlib import Path

import torch
from pathology import Pathology, digits, main, mlp

import tensortap
from tensortap.pytorch import Hook


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    model = mlp(64, 32, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = tensortap.watch(model, optimizer, out_dir=out_dir, rules=rules, system_interval=0.1)
    if is_sick:
        time.sleep(1.0)  # a download
    images, labels = digits()
    for _ in range(20):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images[:50]), labels[:50]).backward()
        optimizer.step()
        time.sleep(0.02)
    hook.close()
    return hook


PATHOLOGY = Pathology("MaxInitializationTime:threshold=0.01", "^$", train, samples_machine=True)

if __name__ == "__main__":
    main(PATHOLOGY)
