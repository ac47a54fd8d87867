"""A mask of labels that is looked for in the wrong place: every label is ignored, and the loss is no number."""

from collections.abc import Sequence
from pathlib import Path

import torch
from loop import loop
from pathology import Pathology, digits, main, mlp
from torch import nn

from tensortap.pytorch import Hook


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    model = mlp(64, 32, 10)
    images, digit_labels = digits()

    def loss_of(hook: Hook, step: int) -> torch.Tensor:
        labels = digit_labels[:200].clone()
        labels[labels >= (0 if is_sick else 5)] = -100
        hook.save_tensor("labels", labels)
        return nn.functional.cross_entropy(model(images[:200]), labels)

    return loop(model, out_dir, rules, loss_of, steps=5)


PATHOLOGY = Pathology("SupervisionMasked", r"^labels$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
