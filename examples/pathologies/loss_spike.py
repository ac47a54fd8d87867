"""One corrupt batch: labels that do not belong to their images make the loss jump."""

from collections.abc import Sequence
from pathlib import Path

import torch
from pathology import Pathology, digits, fit, main, mlp

from tensortap.pytorch import Hook


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    images, labels = (torch.cat([part[:1700]] * 10) for part in digits())
    if is_sick:
        labels[15000:15100] = (labels[15000:15100] + 5) % 10
    return fit(
        mlp(64, 32, 10),
        out_dir,
        rules,
        lr=0.1,
        momentum=0.9,
        steps=155,
        batch_size=100,
        inputs=images,
        labels=labels,
    )


PATHOLOGY = Pathology("LossSpike", r"^CrossEntropyLoss_output_0$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
