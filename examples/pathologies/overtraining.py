"""Two hundred more steps after the loss has gone as low as it goes, against a training that ends in time."""

from collections.abc import Sequence
from pathlib import Path

from pathology import Pathology, fit, main, mlp

from tensortap.pytorch import Hook


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    steps = 250 if is_sick else 20
    model = mlp(64, 32, 10)
    return fit(
        model,
        out_dir,
        rules,
        lr=0.5,
        momentum=0.9,
        steps=steps,
        batch_size=1797,
        collections=("losses",),
    )


PATHOLOGY = Pathology("Overtraining:patience_train=20", "^CrossEntropyLoss_output_0$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
