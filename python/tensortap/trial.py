"""Questions to a run: `create_trial` opens one, `Trial` and `Tensor` answer.

Steps are those of the mode that is asked for; in mode GLOBAL, the default, they are global steps. Everything
also works while the run is being written: a query looks for new steps first, unless the run is over or
`Trial.dynamic_refresh` is False.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tensortap import _core
from tensortap.collection import Collection
from tensortap.exceptions import (
    InvalidArgumentError,
    InvalidTypeError,
    InvalidWorker,
    NoMoreData,
    NotFoundError,
    RunNotFoundError,
    ShapeUnavailableForStep,
    StepNotYetAvailable,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)
from tensortap.modes import ModeKeys
from tensortap.statistics import statistics

if TYPE_CHECKING:
    from numpy.typing import NDArray

_GLOBAL = ModeKeys.GLOBAL
_REDUCTIONS = ("min", "max", "mean", "std", "variance", "sum", "l1", "l2")
# Reductions that do not follow from the recorded statistics.
_FROM_VALUES: dict[str, Any] = {"prod": np.prod, "median": np.median}
# |x| under these names is another row of the table.
_OF_MAGNITUDES = {"sum": "l1", "l1": "l1", "l2": "l2"}


class StepState(Enum):
    """Whether a step can be asked for."""

    UNAVAILABLE = 0
    AVAILABLE = 1
    NOT_YET_AVAILABLE = 2


class Histogram(NamedTuple):
    """A histogram as `numpy.histogram` gives it: 64 counts, 65 ascending edges, on a logarithmic grid."""

    counts: NDArray[np.int64]
    edges: NDArray[np.float64]


class Columns(NamedTuple):
    """One statistic of many tensors over steps; NaN where a tensor was not saved."""

    names: list[str]
    steps: NDArray[np.int64]  # (n,)
    values: NDArray[np.float64]  # (n, len(names))


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
    if (path is None) == (out_dir is None):
        raise InvalidArgumentError("create_trial takes the path of a run")
    where = os.fspath(path if path is not None else out_dir)  # type: ignore[arg-type]
    return Trial(where, name, range_steps=range_steps)


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
        """Give a tensor by name; TensorUnavailable for an unknown one, with names that look like it."""
        known = self._tensors.get(tname)
        if known is not None:
            return known
        if not self.has_tensor(tname):
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
        info = self._core.step_info(global_step)
        if info is None:
            self.maybe_refresh()
            info = self._core.step_info(global_step)
        return (None, None) if info is None else (ModeKeys(info.mode), info.mode_step)

    def mode(self, global_step: int) -> ModeKeys | None:
        """Give the mode of a global step, None for an unknown one."""
        return self.mode_modestep(global_step)[0]

    def mode_step(self, global_step: int) -> int | None:
        """Give the step within its mode of a global step, None for an unknown one."""
        return self.mode_modestep(global_step)[1]

    def global_step(self, mode: ModeKeys, mode_step: int) -> int | None:
        """Give the global step of a step within a mode, None for an unknown one."""
        step = self._core.global_step(mode, mode_step)
        if step is None:
            self.maybe_refresh()
            step = self._core.global_step(mode, mode_step)
        return step

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
            A name of `_core.statistic_table()` or a smdebug reduction ("abs_mean", "l2_norm").

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
        found = self.columns(tensors, statistic, mode=mode, worker=worker)
        parts = [steps for steps, _ in found.values()]
        steps = np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)
        values = np.full((len(steps), len(found)), np.nan)
        for column, (at, numbers) in enumerate(found.values()):
            values[np.searchsorted(steps, at), column] = numbers
        return Columns(list(found), steps, values)

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


class Tensor:
    """One tensor of a trial, over all steps.

    Methods that take a step raise StepUnavailable when it was not saved, StepNotYetAvailable when it may
    still come, TensorUnavailableForStep when the step is there without what was asked for, and InvalidWorker
    when that worker has nothing for it. ``worker=None`` is the first that has something.
    """

    def __init__(self, trial: Trial, name: str) -> None:
        self.trial = trial
        self.name = name
        self.original_name: str | None = name

    def steps(self, mode: ModeKeys = _GLOBAL, show_incomplete_steps: bool = False) -> list[int]:
        """List the steps at which it was saved, ascending."""
        self.trial.maybe_refresh()
        return self.trial._core.tensor_steps(self.name, mode)

    def prev_steps(self, step: int, n: int | None = None, mode: ModeKeys = _GLOBAL) -> list[int]:
        """List the last `n` (default: all) of its steps up to `step`, which is one of them if saved."""
        before = [s for s in self.steps(mode) if s <= step]
        return before if n is None else before[max(0, len(before) - n) :]

    def workers(self, step_num: int, mode: ModeKeys = _GLOBAL) -> list[str]:
        """List the workers that saved it at a step."""
        names = self.trial._core.tensor_workers(self.name, step_num, mode)
        if not names:
            raise self._miss(step_num, mode, None)
        return names

    def value(
        self, step_num: int, mode: ModeKeys = _GLOBAL, worker: str | None = None
    ) -> NDArray[Any]:
        """Give the raw value at a step.

        Returns
        -------
        array of the tensor's shape and dtype, read-only
            bfloat16 and float8, which NumPy lacks, as float32, which holds their values exactly.
        """
        core = self.trial._core
        found = core.value(self.name, step_num, mode, self._worker(worker))
        if found is None:
            self.trial.maybe_refresh()
            found = core.value(self.name, step_num, mode, self._worker(worker))
        if found is None:
            raise self._miss(step_num, mode, worker)
        return found

    def values(
        self, mode: ModeKeys = _GLOBAL, worker: str | None = None
    ) -> dict[int, NDArray[Any]]:
        """Give step -> raw value, of all steps that have one.

        Raises
        ------
        TensorUnavailableForStep
            It was saved, but its raw value at no step.
        """
        core = self.trial._core
        steps = self.steps(mode)
        found = {}
        for step in steps:
            value = core.value(self.name, step, mode, self._worker(worker))
            if value is not None:
                found[step] = value
        if steps and not found:
            raise self._miss(steps[0], mode, worker)
        return found

    def shape(
        self, step_num: int, mode: ModeKeys = _GLOBAL, worker: str | None = None
    ) -> tuple[int, ...]:
        """Give its shape at a step; ShapeUnavailableForStep when the step has it without one."""
        return self._layout(step_num, mode, worker)[1]

    def shapes(
        self, mode: ModeKeys = _GLOBAL, worker: str | None = None
    ) -> dict[int, tuple[int, ...]]:
        """Give step -> shape."""
        return {step: self.shape(step, mode, worker) for step in self.steps(mode)}

    def dtype(self, step_num: int, mode: ModeKeys = _GLOBAL, worker: str | None = None) -> str:
        """Give its dtype at a step, by PyTorch's name: "float32", "bfloat16"."""
        return self._layout(step_num, mode, worker)[0]

    def statistics(
        self, step_num: int, mode: ModeKeys = _GLOBAL, worker: str | None = None
    ) -> _core.Statistics:
        """Give all recorded statistics at a step."""
        row = self._row(step_num, mode, worker)
        if row is None:
            raise self._miss(step_num, mode, worker)
        return row

    def histogram(
        self, step_num: int, mode: ModeKeys = _GLOBAL, worker: str | None = None
    ) -> Histogram:
        """Give the histogram at a step; zeros and non-finite elements are not in it."""
        arrays = self.statistics(step_num, mode, worker).histogram
        if arrays is None:
            raise TensorUnavailableForStep(f"histogram of {self.name}", step_num, mode)
        return Histogram(arrays[1], arrays[0])

    def text(
        self, step_num: int, mode: ModeKeys = _GLOBAL, worker: str | None = None
    ) -> str | None:
        """Give the text recorded under its name at a step, None when there is none."""
        return self.trial._core.text(self.name, step_num, mode, self._worker(worker))

    def column(
        self, statistic: str = "mean", mode: ModeKeys = _GLOBAL, worker: str | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Give one statistic over all steps: (steps, values), both of shape (n,), ascending."""
        self.trial.maybe_refresh()
        return self.trial._core.column(self.name, statistic, mode, self._worker(worker))

    def reduction_value(
        self,
        step_num: int,
        reduction_name: str,
        mode: ModeKeys = _GLOBAL,
        worker: str | None = None,
        abs: bool = False,
    ) -> np.float64:
        """Give a reduction at a step, as NumPy computes it in float64 (NaN and infinities propagate).

        Parameters
        ----------
        reduction_name : str
            min, max, mean, std, variance, sum, l1, l2 (entrywise; std and variance divide by n), or any
            statistic of `_core.statistic_table()`. prod and median too, where the raw value was saved.
        abs : bool, optional
            Of the magnitudes of the elements.

        Raises
        ------
        InvalidArgumentError
            An unknown name; the message lists the valid ones.
        """
        if reduction_name in _FROM_VALUES:
            numbers = np.asarray(self._value_for(reduction_name, step_num, mode, worker))
            numbers = np.abs(numbers) if abs else numbers
            wide = np.complex128 if numbers.dtype.kind == "c" else np.float64
            computed: np.float64 = _FROM_VALUES[reduction_name](numbers.astype(wide))
            return computed
        statistic = _statistic_of(reduction_name, abs)
        row = self._row(step_num, mode, worker)
        if row is None:
            row = statistics(self._value_for(reduction_name, step_num, mode, worker))
        recorded: np.float64 = np.float64(row.numpy_value(statistic))
        return recorded

    def reduction_values(
        self, step_num: int, mode: ModeKeys = _GLOBAL, worker: str | None = None
    ) -> dict[tuple[str, bool], np.float64]:
        """Give all reductions at a step: (name, abs) -> value."""
        row = self.statistics(step_num, mode, worker)
        return {
            (name, is_abs): np.float64(row.numpy_value(_statistic_of(name, is_abs)))
            for name in _REDUCTIONS
            for is_abs in (False, True)
        }

    def _worker(self, worker: str | None) -> str:
        """The engine's word for a worker; InvalidWorker for one that the run does not have."""
        if worker is None:
            return ""
        if worker not in self.trial._core.workers():
            self.trial.maybe_refresh()
            if worker not in self.trial._core.workers():
                raise InvalidWorker(worker)
        return worker

    def _value_for(
        self, reduction: str, step: int, mode: ModeKeys, worker: str | None
    ) -> NDArray[Any]:
        try:
            return self.value(step, mode, worker)
        except TensorUnavailableForStep:
            raise TensorUnavailableForStep(reduction, step, mode, True) from None

    def _row(self, step: int, mode: ModeKeys, worker: str | None) -> _core.Statistics | None:
        row = self.trial._core.row(self.name, step, mode, self._worker(worker))
        if row is None:
            self.trial.maybe_refresh()
            row = self.trial._core.row(self.name, step, mode, self._worker(worker))
        return row

    def _layout(self, step: int, mode: ModeKeys, worker: str | None) -> tuple[str, tuple[int, ...]]:
        core = self.trial._core
        found = core.layout(self.name, step, mode, self._worker(worker))
        if found is None:
            self.trial.maybe_refresh()
            found = core.layout(self.name, step, mode, self._worker(worker))
        if found is None:
            miss = self._miss(step, mode, worker)
            if isinstance(miss, TensorUnavailableForStep):
                miss = ShapeUnavailableForStep(self.name, step, mode)
            raise miss
        return found

    def _miss(self, step: int, mode: ModeKeys, worker: str | None) -> Exception:
        """Why there is nothing at that step."""
        state = self.trial.has_passed_step(step, mode)
        if state is StepState.UNAVAILABLE:
            return StepUnavailable(step, mode)
        if state is StepState.NOT_YET_AVAILABLE:
            return StepNotYetAvailable(step, mode)
        core = self.trial._core
        workers = core.tensor_workers(self.name, step, mode)
        if worker is not None and worker not in workers:
            return InvalidWorker(worker)
        return TensorUnavailableForStep(self.name, step, mode, has_reductions=bool(workers))

    def __repr__(self) -> str:
        return f"Tensor({self.name!r})"


def _statistic_of(reduction: str, is_abs: bool) -> str:
    try:
        name = _core.statistic_name(reduction)
    except NotFoundError:
        valid = ", ".join((*_REDUCTIONS, *_FROM_VALUES))
        raise InvalidArgumentError(f"no reduction is called '{reduction}': {valid}") from None
    if not is_abs or name.startswith("abs_"):
        return name
    if name in _OF_MAGNITUDES:
        return _OF_MAGNITUDES[name]
    if f"abs_{name}" in _statistic_names():
        return f"abs_{name}"
    raise InvalidArgumentError(f"'{reduction}' has no form for magnitudes (abs=True)")


def _statistic_names() -> set[str]:
    return {row["name"] for row in _core.statistic_table()}


__all__ = [
    "Columns",
    "Histogram",
    "RunNotFoundError",
    "StepState",
    "Tensor",
    "Trial",
    "create_trial",
]
