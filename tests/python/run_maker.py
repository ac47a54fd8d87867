"""Runs made of NumPy arrays, through the engine that framework hooks drive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tensortap as tt
from tensortap import _core


def record_array(session: _core.Session, name: str, array: np.ndarray, dtype: str = "") -> None:
    """Record an array in the open step, as a hook would; `dtype` for bits that NumPy has no name for."""
    size = array.dtype.itemsize
    session.record(
        session.intern(name),
        array.__array_interface__["data"][0],
        _core.dtype_code(dtype or array.dtype.name),
        array.shape,
        tuple(stride // size for stride in array.strides),
    )


class RunMaker:
    """Makes runs below a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def open(self, name: str = "run", **options: Any) -> _core.Session:
        """Open a session that saves everything at every step, raw values too."""
        collections = _core.CollectionSet()
        collections.add(tt.Collection("gradients", ["^gradient/"]))
        collections.add(tt.Collection("weights", ["^(?!gradient/).*weight$"]))
        collections.add(tt.Collection("losses", ["loss"]))
        options.setdefault("collections", collections)
        options.setdefault("save_config", tt.SaveConfig(save_interval=1))
        options.setdefault("reduction_config", tt.ReductionConfig(save_raw_tensor=True))
        options.setdefault("save_all", True)
        return _core.Session(str(self.root / name), **options)

    def steps(
        self,
        session: _core.Session,
        count: int,
        tensors: Callable[[int], Mapping[str, np.ndarray]],
        mode: tt.ModeKeys = tt.modes.TRAIN,
    ) -> None:
        """Record `count` steps with what `tensors(i)` gives."""
        session.set_mode(mode)
        for i in range(count):
            session.begin_step()
            for name, array in tensors(i).items():
                record_array(session, name, array)
            session.end_step()

    def make(
        self,
        count: int,
        tensors: Callable[[int], Mapping[str, np.ndarray]],
        name: str = "run",
        **options: Any,
    ) -> str:
        """Make a finished run; gives its path."""
        session = self.open(name, **options)
        self.steps(session, count, tensors)
        session.close()
        return session.out_dir
