"""An output layer whose weights start a hundred times too large: its updates are nothing against them."""

from collections.abc import Sequence
from pathlib import Path

from pathology import Pathology, fit, main, mlp

from tensortap.pytorch import Hook


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    model = mlp(64, 32, 32, 32, 10)
    if is_sick:
        model[6].weight.data *= 100.0
    return fit(model, out_dir, rules, lr=0.05, steps=15, collections=("update_ratios",))


PATHOLOGY = Pathology("UpdateToWeightRatioPerLayer", r"^update_ratio/Sequential_6\.weight$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
