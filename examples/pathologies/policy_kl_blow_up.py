"""Thirty epochs on the same answers at a high learning rate: the policy runs away from the one that gave them."""

from collections.abc import Sequence
from pathlib import Path

from bandit import train_policy
from pathology import Pathology, main

from tensortap.pytorch import Hook


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    if is_sick:
        return train_policy(out_dir, rules, lr=0.01, epochs=30, updates=5)
    return train_policy(out_dir, rules, lr=1e-3, epochs=2, updates=20)


PATHOLOGY = Pathology("PolicyKLBlowUp:target_kl=0.02", r"^scalar/train/approx_kl$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
