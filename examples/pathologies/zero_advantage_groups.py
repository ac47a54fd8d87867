"""A reward that is always zero: no group of answers has any spread, and nothing is learnt."""

from collections.abc import Sequence
from pathlib import Path

from bandit import train_policy
from pathology import Pathology, main

from tensortap.pytorch import Hook


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    return train_policy(out_dir, rules, lr=1e-3, updates=25, has_reward=not is_sick)


PATHOLOGY = Pathology("ZeroAdvantageGroups", r"^scalar/frac_reward_zero_std$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
