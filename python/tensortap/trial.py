"""Questions to a run: `create_trial` opens one, `Trial` and `Tensor` answer.

Steps are those of the mode that is asked for; in mode GLOBAL, the default, they are global steps. Everything
also works while the run is being written: a query looks for new steps first, unless the run is over or
`Trial.dynamic_refresh` is False.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tensortap import _core
from tensortap._aliases import recorded_name
from tensortap.collection import Collection
from tensortap.columns import Columns, to_matrix
from tensortap.exceptions import (
    InvalidArgumentError,
    InvalidTypeError,
    NoMoreData,
    NotFoundError,
    RunNotFoundError,
    StepUnavailable,
    TensorUnavailable,
)
from tensortap.modes import ModeKeys, StepState
from tensortap.tensor import Histogram, Tensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_GLOBAL = ModeKeys.GLOBAL

T = TypeVar("T")


def create_trial(
    path: str | os.PathLike[str] | None = None,
    name: str | None = None,
    *,
    out_dir: str | os.PathLike[str] | None = None,
    range_steps: tuple[int | None, int | None] | None = None,
) -> Trial:
    """Open a run for reading.

    Parameters
    ----------
    path : str or path
        The directory that the hook wrote to.
    name : str, optional
        By default the last part of the path.
    out_dir : str or path, optional
        Another word for `path`.
    range_steps : (int or None, int or None), optional
        Global steps [first, last) outside which the trial sees nothing.

    Raises
    ------
    RunNotFoundError
        There is no run.
    CorruptTraceError, UnsupportedError
        There is something, but not one that can be read.
    """
    where = out_dir if path is None else path
    if where is None or (path is not None and out_dir is not None):
        raise InvalidArgumentError("create_trial takes the path of a run: path or out_dir")
    return Trial(os.fspath(where), name, range_steps=range_steps)


class Trial:
    """A run, opened for reading. Not to be used by several threads at once.

    Attributes
    ----------
    path, name : str
    range_steps : tuple or None
    dynamic_refresh : bool
        False: queries answer from what the trial has already seen.
    """

    def __init__(
        self,
        path: str,
        name: str | None = None,
        *,
        range_steps: tuple[int | None, int | None] | None = None,
    ) -> None:
        path = os.path.expanduser(path.strip())
        first, last = range_steps if range_steps is not None else (None, None)
        self._open(_core.Trial.open(path, first, last), path, name, range_steps)

    def _open(
        self,
        core: _core.Trial,
        path: str,
        name: str | None,
        range_steps: tuple[int | None, int | None] | None,
    ) -> None:
        self._core = core
        self.path = path
        self.name = name or os.path.basename(path.rstrip("/")) or path
        self.range_steps = range_steps
        self.dynamic_refresh = True
        self._tensors: dict[str, Tensor] = {}

    @classmethod
    def _from_core(cls, core: _core.Trial, name: str | None = None) -> Trial:
        """Speak for a trial of the engine's, such as `Session.live_trial()`."""
        trial = cls.__new__(cls)
        trial._open(core, core.uri, name, None)
        return trial

    # What there is.

    def tensor_names(
        self,
        show_prefixed_tensors: bool = False,
        *,
        step: int | None = None,
        mode: ModeKeys = _GLOBAL,
        regex: str | Sequence[str] | None = None,
        collection: str | Collection | None = None,
    ) -> list[str]:
        """List the names of tensors, sorted.

        Parameters
        ----------
        show_prefixed_tensors : bool, optional
            Accepted; no tensor is hidden.
        step : int, optional
            Only those that were saved at this step of `mode`.
        mode : ModeKeys, optional
            Only those that were saved in this mode; GLOBAL is all.
        regex : str or list of str, optional
            Only those that one of these matches anywhere.
        collection : str or Collection, optional
            Only those of this collection. Not together with `regex`.

        Raises
        ------
        InvalidArgumentError
            `regex` and `collection` together, an expression that does not compile.
        """
        if regex is not None and collection is not None:
            raise InvalidArgumentError("tensor_names takes a regex or a collection, not both")
        if isinstance(collection, _core.Collection):
            names = self.tensor_names(step=step, mode=mode)
            return [name for name in names if collection.matches(name)]
        if collection is not None and not isinstance(collection, str):
            raise InvalidTypeError(f"collection takes a name or a Collection, not {collection!r}")
        self.maybe_refresh()
        patterns = [regex] if isinstance(regex, str) else list(regex or ())
        return self._core.tensor_names(patterns, collection, step, mode)

    def tensor(self, tname: str) -> Tensor:
        """Give a tensor by name, what is tied or shared by any of its names; else raise TensorUnavailable."""
        known = self._tensors.get(tname)
        if known is not None:
            return known
        if not self.has_tensor(tname):
            if other := recorded_name(self.path, tname, self._core.has_tensor):
                return self.tensor(other)
            try:
                self._core.tensor_steps(tname)
            except NotFoundError as error:
                raise TensorUnavailable(tname, str(error)) from None
            raise TensorUnavailable(tname)
        return self._tensors.setdefault(tname, Tensor(self, tname))

    def has_tensor(self, tname: str) -> bool:
        """Tell whether there is a tensor of that name."""
        if self._core.has_tensor(tname):
            return True
        self.maybe_refresh()
        return self._core.has_tensor(tname)

    def steps(self, mode: ModeKeys = _GLOBAL, show_incomplete_steps: bool = False) -> list[int]:
        """List the steps of a mode that every worker has finished, ascending."""
        self.maybe_refresh()
        return self._core.steps(mode, show_incomplete_steps)

    def modes(self) -> list[ModeKeys]:
        """List the modes that occurred."""
        self.maybe_refresh()
        return [ModeKeys(mode) for mode in self._core.modes()]

    def mode_modestep(self, global_step: int) -> tuple[ModeKeys | None, int | None]:
        """Give mode and mode step of a global step; (None, None) for an unknown one."""
        info = self._ask(lambda: self._core.step_info(global_step))
        return (None, None) if info is None else (ModeKeys(info.mode), info.mode_step)

    def mode(self, global_step: int) -> ModeKeys | None:
        """Give the mode of a global step, None for an unknown one."""
        return self.mode_modestep(global_step)[0]

    def mode_step(self, global_step: int) -> int | None:
        """Give the step within its mode of a global step, None for an unknown one."""
        return self.mode_modestep(global_step)[1]

    def global_step(self, mode: ModeKeys, mode_step: int) -> int | None:
        """Give the global step of a step within a mode, None for an unknown one."""
        return self._ask(lambda: self._core.global_step(mode, mode_step))

    def step_info(self, global_step: int) -> _core.StepInfo | None:
        """Give mode, mode step, times and session of a global step, None for an unknown one."""
        self.maybe_refresh()
        return self._core.step_info(global_step)

    def workers(self) -> list[str]:
        """List the workers that wrote to the run, sorted."""
        self.maybe_refresh()
        return self._core.workers()

    def collections(self) -> dict[str, Collection]:
        """Give the collections as the hook had them, by name. Changing them changes nothing."""
        self.maybe_refresh()
        found = self._core.collections()
        return {name: Collection.from_core(found.get_or_create(name)) for name in found.names()}

    def collection(self, name: str) -> Collection:
        """Give one collection; an empty one when the run has none of that name."""
        return Collection.from_core(self._core.collections().get_or_create(name))

    @property
    def run(self) -> dict[str, Any]:
        """What run.json says: id, creation time, framework, host, configuration."""
        text = self._core.run_json()
        return dict(json.loads(text)) if text else {}

    # Following.

    @property
    def loaded_all_steps(self) -> bool:
        """Whether every worker has said that nothing more will come."""
        return self._core.has_ended()

    @property
    def last_complete_step(self) -> int:
        """The newest global step that every worker has finished, -1 before the first."""
        return max(self._core.steps(_GLOBAL), default=-1)

    @property
    def num_workers(self) -> int:
        """How many workers wrote to the run."""
        return len(self._core.workers())

    def maybe_refresh(self, name: str | None = None) -> None:
        """Look for new steps, unless the run is over or `dynamic_refresh` is off."""
        if self.dynamic_refresh and not self._core.has_ended():
            self._core.refresh()

    def refresh_data(self) -> None:
        """Look for new steps in any case."""
        self._core.refresh()

    def refresh_tensor(self, tname: str, steps: Iterable[int] | None = None) -> None:
        """Look for new steps; a trial has no state of single tensors."""
        self.refresh_data()

    def has_passed_step(self, step: int, mode: ModeKeys = _GLOBAL) -> StepState:
        """Tell whether the step can be asked for, may still come, or never will."""
        self.maybe_refresh()
        return StepState(self._core.has_passed_step(step, mode))

    def wait_for_steps(
        self,
        required_steps: Iterable[int],
        mode: ModeKeys = _GLOBAL,
        timeout: float | None = None,
    ) -> None:
        """Wait until all the steps are there. Ctrl-C works, other threads go on.

        Parameters
        ----------
        required_steps : iterable of int
            Steps of `mode`.
        timeout : float, optional
            Seconds; by default as long as the run goes on.

        Raises
        ------
        StepUnavailable
            One of them was not saved.
        NoMoreData
            The run ended before one of them.
        UnavailableError
            The time was up.
        """
        missing = self._core.wait_for_steps(list(required_steps), mode, timeout)
        if missing is None:
            return
        last = max(self._core.steps(mode), default=None)
        if self._core.has_ended() and (last is None or missing > last):
            raise NoMoreData(missing, mode, last)
        raise StepUnavailable(missing, mode)

    # Many tensors at once.

    def columns(
        self,
        tensors: str | Sequence[str],
        statistic: str = "mean",
        *,
        mode: ModeKeys = _GLOBAL,
        worker: str | None = None,
    ) -> dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Give one statistic of many tensors over all their steps.

        Parameters
        ----------
        tensors : str or list of str
            A regular expression, or names.
        statistic : str
            An attribute of `Statistics` ("abs_mean", "zero_count") or a smdebug reduction ("abs_mean", "l2_norm").

        Returns
        -------
        dict of str to (int64 array of shape (n,), float64 array of shape (n,))
            Steps, ascending, and values over the finite elements.

        Raises
        ------
        TensorUnavailable
            A name that the run does not have.
        """
        self.maybe_refresh()
        if isinstance(tensors, str):
            names = self._core.tensor_names([tensors], None, None, mode)
        else:
            names = [self.tensor(name).name for name in tensors]
        found = self._core.columns(names, statistic, mode, worker or "")
        return dict(zip(names, found, strict=True))

    def matrix(
        self,
        tensors: str | Sequence[str],
        statistic: str = "mean",
        *,
        mode: ModeKeys = _GLOBAL,
        worker: str | None = None,
    ) -> Columns:
        """Give the same as `columns`, as one matrix: a row for each step, a column for each tensor."""
        return to_matrix(self.columns(tensors, statistic, mode=mode, worker=worker))

    # Shortcuts of smdebug.

    def inputs(self, step: int, mode: ModeKeys = _GLOBAL) -> list[NDArray[Any]]:
        """Give the values of collection `inputs` at a step."""
        return self._values_of(self.tensor_names(collection="inputs"), step, mode)

    def labels(self, step: int, mode: ModeKeys = _GLOBAL) -> list[NDArray[Any]]:
        """Give the values of the tensors called labels... at a step."""
        return self._values_of(self.tensor_names(regex="labels*"), step, mode)

    def predictions(self, step: int, mode: ModeKeys = _GLOBAL) -> list[NDArray[Any]]:
        """Give the values of the tensors called predictions... at a step."""
        return self._values_of(self.tensor_names(regex="predictions*"), step, mode)

    def _ask(self, question: Callable[[], T | None]) -> T | None:
        """Answer from what the trial has seen; where that is nothing, look for new steps first."""
        found = question()
        if found is None:
            self.maybe_refresh()
            found = question()
        return found

    def _values_of(self, names: list[str], step: int, mode: ModeKeys) -> list[NDArray[Any]]:
        def suffix(name: str) -> tuple[int, str]:
            number = re.search(r"\d+$", name)
            return (int(number.group()) if number else -1, name)

        return [self.tensor(name).value(step, mode) for name in sorted(names, key=suffix)]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trial):
            return NotImplemented
        return (self.name, self.path) == (other.name, other.path)

    def __hash__(self) -> int:
        return hash((self.name, self.path))

    def __repr__(self) -> str:
        return f"Trial({self.path!r}, {len(self._core.steps(_GLOBAL))} steps)"


__all__ = [
    "Columns",
    "Histogram",
    "RunNotFoundError",
    "StepState",
    "Tensor",
    "Trial",
    "create_trial",
]
