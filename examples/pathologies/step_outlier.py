"""A training that stalls every 16 steps, as one does that writes checkpoints in its loop."""

import time
from collections.abc import Sequence
from pathlib import Path

import torch
from pathology import Pathology, fit, main, mlp

from tensortap.pytorch import Hook


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    torch.set_num_threads(1)  # threads that wait for a core are outliers, too

    def after_step(hook: Hook, step: int) -> None:
        time.sleep(0.3 if is_sick and step % 16 == 0 else 0.004)

    return fit(
        mlp(64, 32, 10),
        out_dir,
        rules,
        steps=170,
        batch_size=50,
        collections=("losses",),
        after_step=after_step,
    )


PATHOLOGY = Pathology("StepOutlier:n_outliers=6,min_ratio=5", "^$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
