"""A training whose own process makes its batches, so that most of the time is spent waiting for them."""

import time
from collections.abc import Sequence
from pathlib import Path

import torch
from pathology import Pathology, digits, main, mlp

import tensortap
from tensortap.pytorch import Hook


def augment(seconds: float) -> None:
    """Keep a core busy, as slow preprocessing in Python does."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    torch.set_num_threads(1)  # the cores are for the data
    model = mlp(64, 32, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    images, labels = digits()
    hook = tensortap.watch(
        model,
        optimizer,
        out_dir=out_dir,
        rules=rules,
        collections=("losses",),
        system_interval=0.1,
    )
    for step in range(45):
        if is_sick:
            augment(0.05)
        batch = images[step * 30 : step * 30 + 30]
        loss = torch.nn.functional.cross_entropy(model(batch), labels[step * 30 : step * 30 + 30])
        if not is_sick:
            augment(0.05)  # a model that is worth waiting for
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    hook.close()
    return hook


PATHOLOGY = Pathology(
    "Dataloader:patience=1", "^system/worker_processes$", train, samples_machine=True
)

if __name__ == "__main__":
    main(PATHOLOGY)
