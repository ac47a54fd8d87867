"""An optimizer that was given the last layer only: the others stay as they were initialised."""

from collections.abc import Sequence
from pathlib import Path

from pathology import Pathology, fit, main, mlp

from tensortap.pytorch import Hook


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    model = mlp(64, 32, 10)
    parameters = list(model[2].parameters()) if is_sick else list(model.parameters())
    return fit(model, out_dir, rules, collections=("weights",), parameters=parameters)


PATHOLOGY = Pathology("UnchangedTensor:collection_names=weights", r"^Sequential_0\.weight$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
