"""What a trial says of one tensor: `Tensor` gives its values, statistics and reductions, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tensortap import _core
from tensortap.exceptions import (
    InvalidArgumentError,
    InvalidWorker,
    NotFoundError,
    ShapeUnavailableForStep,
    StepNotYetAvailable,
    StepUnavailable,
    TensorUnavailableForStep,
)
from tensortap.modes import ModeKeys, StepState
from tensortap.statistics import statistics

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensortap.trial import Trial

_GLOBAL = ModeKeys.GLOBAL
_REDUCTIONS = ("min", "max", "mean", "std", "variance", "sum", "l1", "l2")
# Reductions that do not follow from the recorded statistics.
_FROM_VALUES: dict[str, Any] = {"prod": np.prod, "median": np.median}
# |x| under these names is another row of the table.
_OF_MAGNITUDES = {"sum": "l1", "l1": "l1", "l2": "l2"}


class Histogram(NamedTuple):
    """A histogram as `numpy.histogram` gives it: 64 counts, 65 ascending edges, on a logarithmic grid."""

    counts: NDArray[np.int64]
    edges: NDArray[np.float64]


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
        core, name = self.trial._core, self._worker(worker)
        found = self.trial._ask(lambda: core.value(self.name, step_num, mode, name))
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
            attribute of `Statistics` (``abs_mean`` ...). prod and median too, where the raw value was saved.
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
        core, name = self.trial._core, self._worker(worker)
        return self.trial._ask(lambda: core.row(self.name, step, mode, name))

    def _layout(self, step: int, mode: ModeKeys, worker: str | None) -> tuple[str, tuple[int, ...]]:
        core, name = self.trial._core, self._worker(worker)
        found = self.trial._ask(lambda: core.layout(self.name, step, mode, name))
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
