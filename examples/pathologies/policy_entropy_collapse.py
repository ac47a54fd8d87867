"""A policy with a learning rate far too high and no bonus for entropy: it soon gives one answer to everything."""

from collections.abc import Sequence
from pathlib import Path

from bandit import train_policy
from pathology import Pathology, main

from tensortap.pytorch import Hook


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    if is_sick:
        return train_policy(out_dir, rules, lr=0.1, epochs=2)
    return train_policy(out_dir, rules, lr=1e-3, entropy_bonus=0.05)


PATHOLOGY = Pathology("PolicyEntropyCollapse", r"^scalar/train/entropy$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
