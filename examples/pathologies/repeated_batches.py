"""A loader that does not shuffle: every epoch brings the same batches in the same order."""

from collections.abc import Sequence
from pathlib import Path

import torch
from pathology import Pathology, digits, fit, main, mlp

from tensortap.pytorch import Hook


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    images, labels = digits()
    generator = torch.Generator().manual_seed(0)
    orders = [torch.randperm(1700, generator=generator) for _ in range(3)]
    order = torch.cat([orders[0]] * 3 if is_sick else orders)
    return fit(
        mlp(64, 32, 10),
        out_dir,
        rules,
        steps=45,
        batch_size=100,
        inputs=images[order],
        labels=labels[order],
        collections=("losses", "model_inputs"),
    )


# A finding about batches names no tensor.
PATHOLOGY = Pathology("RepeatedBatches", r"^$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
