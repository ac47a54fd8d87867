"""Three workers of which one takes its time before every exchange."""

import time
from collections.abc import Sequence
from pathlib import Path

import torch
from loop import Workers, loop
from pathology import Pathology, digits, main, mlp
from torch import nn

from tensortap.pytorch import Hook


def train_worker(out_dir: Path, worker: int, pause: float) -> None:
    model = mlp(64, 16, 10)
    images, labels = digits()

    def loss_of(hook: Hook, step: int) -> torch.Tensor:
        start = time.perf_counter()
        loss = nn.functional.cross_entropy(model(images[:50]), labels[:50])
        time.sleep(0.01 + pause)
        hook.save_scalar("compute_time", time.perf_counter() - start)
        return loss

    loop(model, out_dir, [], loss_of, steps=16, include_workers="all", worker=f"worker_{worker}")


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Workers:
    for worker in range(3):
        train_worker(out_dir, worker, pause=0.03 if is_sick and worker == 2 else 0.0)
    return Workers(out_dir, rules)


PATHOLOGY = Pathology("StragglerRank:window=5,ratio=2", r"^scalar/compute_time$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
