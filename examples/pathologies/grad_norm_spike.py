"""One batch whose pixels were not scaled: its gradient is many times the usual one."""

from collections.abc import Sequence
from pathlib import Path

import torch
from pathology import Pathology, digits, fit, main, mlp

from tensortap.pytorch import Hook


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    images, labels = (torch.cat([part[:1700]] * 3) for part in digits())
    if is_sick:
        images[4000:4100] *= 16.0
    return fit(
        mlp(64, 32, 10), out_dir, rules, steps=45, batch_size=100, inputs=images, labels=labels
    )


PATHOLOGY = Pathology("GradNormSpike", r"^gradient/Sequential_0\.weight$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
