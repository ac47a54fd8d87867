"""Training data in which one digit hardly occurs, against all digits alike."""

from collections.abc import Sequence
from pathlib import Path

import torch
from pathology import Pathology, digits, fit, main, mlp

from tensortap.pytorch import Hook


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    images, labels = digits()
    if is_sick:
        nines = torch.nonzero(labels == 9).flatten()
        keep = torch.ones(len(labels), dtype=torch.bool)
        keep[nines[5:]] = False
        images, labels = images[keep], labels[keep]

    def after_step(hook: Hook, step: int) -> None:
        start = step * 100
        hook.record_tensor_value("labels", labels[start : start + 100])

    return fit(
        mlp(64, 32, 10),
        out_dir,
        rules,
        steps=15,
        batch_size=100,
        inputs=images,
        labels=labels,
        collections=("all",),
        save_raw_tensor=True,
        after_step=after_step,
    )


PATHOLOGY = Pathology("ClassImbalance", "^labels_output_0$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
