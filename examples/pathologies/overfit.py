"""Sixty images and a network that learns them by heart, against a small one on fifteen hundred."""

from collections.abc import Sequence
from pathlib import Path

from pathology import Pathology, digits, evaluate, fit, main, mlp

from tensortap.pytorch import Hook


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    images, labels = digits()
    model = mlp(64, 256, 256, 10) if is_sick else mlp(64, 10)
    count = 60 if is_sick else 1500

    def after_step(hook: Hook, step: int) -> None:
        if step % 5 == 4:
            evaluate(model, hook, images[1500:], labels[1500:])

    return fit(
        model,
        out_dir,
        rules,
        lr=0.3,
        steps=60,
        batch_size=count,
        inputs=images[:count],
        labels=labels[:count],
        collections=("losses",),
        after_step=after_step,
    )


PATHOLOGY = Pathology("Overfit:patience=3", "^CrossEntropyLoss_output_0$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
