"""Modes: what a training step was for."""

from __future__ import annotations

from enum import Enum, IntEnum


class ModeKeys(IntEnum):
    """Steps are counted within each of the first three; GLOBAL counts all of them together."""

    TRAIN = 1
    EVAL = 2
    PREDICT = 3
    GLOBAL = 4

    # "ModeKeys.TRAIN" in messages, on every Python version.
    __str__ = Enum.__str__


modes = ModeKeys

ALLOWED_MODES = list(ModeKeys)
ALLOWED_MODE_NAMES = [mode.name for mode in ModeKeys]


def str_to_mode_keys(text: str) -> ModeKeys:
    """Give the mode of a name in any case; ValueError for another word."""
    try:
        return ModeKeys[text.upper()]
    except KeyError:
        raise ValueError(f"no mode is called '{text}': {', '.join(ALLOWED_MODE_NAMES)}") from None


class StepState(Enum):
    """Whether a step can be asked for."""

    UNAVAILABLE = 0
    AVAILABLE = 1
    NOT_YET_AVAILABLE = 2
