"""Two replicas of one model of which one was touched: from then on they are two models."""

from collections.abc import Sequence
from pathlib import Path

import torch
from loop import Workers, loop
from pathology import Pathology, digits, main, mlp
from torch import nn

from tensortap.pytorch import Hook


def train_replica(out_dir: Path, worker: int, is_touched: bool) -> None:
    model = mlp(64, 32, 10)
    images, labels = digits()

    def loss_of(hook: Hook, step: int) -> torch.Tensor:
        if is_touched and step == 5:
            model[0].weight.data[0, 0] += 1e-3
        # Each sees its own loss, and both the gradient of all images, as after an exchange.
        own = slice(500 * worker, 500 * (worker + 1))
        loss = nn.functional.cross_entropy(model(images[own]), labels[own])
        whole = nn.functional.cross_entropy(model(images[:1000]), labels[:1000])
        return loss.detach() + whole - whole.detach()

    loop(
        model,
        out_dir,
        [],
        loss_of,
        steps=8,
        include_workers="all",
        worker=f"worker_{worker}",
    )


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Workers:
    for worker in range(2):
        train_replica(out_dir, worker, is_touched=is_sick and worker == 1)
    return Workers(out_dir, rules)


PATHOLOGY = Pathology("RankDivergence", r"^Sequential_0\.weight$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
