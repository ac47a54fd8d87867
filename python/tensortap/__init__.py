"""Tensortap: a flight recorder and debugger for model training.

In a training, ``tensortap.watch(model, ...)`` or ``tensortap.pytorch.Hook`` records; afterwards or meanwhile,
``create_trial(path)`` answers questions and ``check(path, rules=[...])`` looks for what went wrong. Importing this
imports neither a framework nor a plotting library.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tensortap import _core, actions, exceptions, rules
from tensortap.collection import Collection, CollectionKeys
from tensortap.config import ReductionConfig, SaveConfig, SaveConfigMode
from tensortap.exceptions import StopTraining, TensortapError
from tensortap.modes import ModeKeys
from tensortap.modes import ModeKeys as modes  # noqa: N813  # the name that scripts know
from tensortap.rules import Rule, check, invoke_rule
from tensortap.statistics import statistics
from tensortap.trial import Trial, create_trial

if TYPE_CHECKING:
    from tensortap.pytorch import watch

__version__ = _core.__version__

__all__ = [
    "Collection",
    "CollectionKeys",
    "ModeKeys",
    "ReductionConfig",
    "Rule",
    "SaveConfig",
    "SaveConfigMode",
    "StopTraining",
    "TensortapError",
    "Trial",
    "__version__",
    "actions",
    "check",
    "create_trial",
    "exceptions",
    "invoke_rule",
    "modes",
    "rules",
    "statistics",
    "watch",
]

_core.set_log_callback(logging.getLogger("tensortap").log)


def __getattr__(name: str) -> Any:
    # Only now: it needs PyTorch.
    if name == "watch":
        from tensortap.pytorch import watch

        return watch
    raise AttributeError(f"module 'tensortap' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
