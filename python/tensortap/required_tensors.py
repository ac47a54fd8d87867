"""`RequiredTensors`: what a custom rule says it will look at, so that it is there when the rule runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tensortap.exceptions import InvalidArgumentError

if TYPE_CHECKING:
    from tensortap.trial import Tensor, Trial


class RequiredTensors:
    """Tensors and steps that a rule needs, for each of its trials.

    Filled in by `Rule.set_required_tensors`; the steps are waited for before `Rule.invoke_at_step`.
    """

    def __init__(
        self, base_trial: Trial | None, other_trials: Iterable[Trial] | None = None
    ) -> None:
        self._base_trial = base_trial
        self._trials = [t for t in (base_trial, *(other_trials or ())) if t is not None]
        self._steps: dict[int, dict[str, set[int]]] = {}
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._steps = {id(trial): {} for trial in self._trials}

    def add(
        self,
        name: str,
        steps: Iterable[int],
        trial: Trial | None = None,
        should_match_regex: bool = False,
    ) -> None:
        """Need a tensor, or all tensors that a regular expression matches, at global steps.

        Raises
        ------
        TensorUnavailable
            There is no tensor of that name.
        """
        trial = self._of(trial)
        names = trial.tensor_names(regex=name) if should_match_regex else [trial.tensor(name).name]
        wanted = list(steps)
        for tensor in names:
            self._steps[id(trial)].setdefault(tensor, set()).update(wanted)

    def get_names(self, trial: Trial | None = None) -> list[str]:
        """List the names needed from a trial, by default the base trial."""
        return sorted(self._steps[id(self._of(trial))])

    def get_tensor_steps(self, name: str, trial: Trial | None = None) -> list[int]:
        """List the steps at which a tensor is needed."""
        return sorted(self._steps[id(self._of(trial))].get(name, ()))

    def get(self, trial: Trial | None = None) -> list[Tensor]:
        """List the tensors needed."""
        trial = self._of(trial)
        return [trial.tensor(name) for name in self.get_names(trial)]

    def fetch(self) -> None:
        """Wait until the steps are there; errors as of `Trial.wait_for_steps`."""
        for trial in self._trials:
            steps = set[int]().union(*self._steps[id(trial)].values())
            if steps:
                trial.wait_for_steps(sorted(steps))

    def _of(self, trial: Trial | None) -> Trial:
        found = self._base_trial if trial is None else trial
        if found is None or id(found) not in self._steps:
            raise InvalidArgumentError("that trial is not one of this rule's")
        return found
