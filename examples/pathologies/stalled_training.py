"""A training that hangs for a while, as one does that waits for its data."""

import time
from collections.abc import Sequence
from pathlib import Path

from pathology import Pathology, fit, main, mlp

from tensortap.pytorch import Hook


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    def after_step(hook: Hook, step: int) -> None:
        if is_sick and step == 3:
            time.sleep(0.9)

    return fit(mlp(64, 32, 10), out_dir, rules, batch_size=50, after_step=after_step)


PATHOLOGY = Pathology("StalledTrainingRule:threshold=0.8", "^$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
