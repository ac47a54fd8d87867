"""Capture for PyTorch.

``Hook`` for scripts that want control, ``watch`` for one line. The names of smdebug's
``smdebug.pytorch`` are here too, so that ``import tensortap.pytorch as smd`` serves such scripts.
"""

from tensortap.collection import Collection, CollectionKeys
from tensortap.config import ReductionConfig, SaveConfig, SaveConfigMode
from tensortap.exceptions import StopTraining
from tensortap.modes import ModeKeys, modes
from tensortap.pytorch.hook import Hook
from tensortap.pytorch.watch import watch
from tensortap.trial import create_trial

__all__ = [
    "Collection",
    "CollectionKeys",
    "Hook",
    "ModeKeys",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "StopTraining",
    "create_trial",
    "modes",
    "watch",
]
