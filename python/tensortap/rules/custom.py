"""Rules of one's own: the base class `Rule`, what binds one to a trial, and `invoke_rule`, which runs one."""

from __future__ import annotations

import bisect
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tensortap import _core
from tensortap.actions import parse_actions
from tensortap.exceptions import (
    InvalidArgumentError,
    InvalidTypeError,
    NoMoreData,
    RuleEvaluationConditionMet,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)
from tensortap.required_tensors import RequiredTensors
from tensortap.trial import Trial

_logger = logging.getLogger("tensortap")
_POLL_INTERVAL_S = 0.05


class Rule(ABC):
    """The base of custom rules: override `invoke_at_step`.

    ::

        class CustomGradientRule(Rule):
            def __init__(self, base_trial, threshold=10.0):
                super().__init__(base_trial)
                self.threshold = float(threshold)

            def invoke_at_step(self, step):
                for name in self.base_trial.tensor_names(collection="gradients"):
                    if self.base_trial.tensor(name).reduction_value(step, "mean", abs=True) > self.threshold:
                        return True
                return False

    Run it over a run with `invoke_rule` or `check`, or while training with ``watch(rules=[CustomGradientRule])``:
    the class, or anything that makes an instance of a trial (``lambda trial: CustomGradientRule(trial, 5.0)``).

    Parameters
    ----------
    base_trial : Trial or None
        The run it looks at. None: it is bound to one later, by `bind_rule`.
    action_str : str or list of str, optional
        Actions that a hook triggers when it fires: names, or smdebug's JSON.
    other_trials : list of Trial, optional
        More runs, to compare with.

    Attributes
    ----------
    base_trial, other_trials, trials, req_tensors, logger, rule_name, actions, report
    """

    def __init__(
        self,
        base_trial: Trial | None,
        action_str: str | Iterable[str] | None = None,
        other_trials: Iterable[Trial] | None = None,
    ) -> None:
        self.rule_name = type(self).__name__
        self.logger = _logger
        self.other_trials = list(other_trials or ())
        self.actions = parse_actions(action_str)
        self.report: dict[str, Any] = {
            "RuleTriggered": 0,
            "Violations": 0,
            "Details": {},
            "Datapoints": 0,
            "RuleParameters": "",
        }
        self._runner: _core.ActionRunner | None = None
        self._bind(base_trial)

    def _bind(self, base_trial: Trial | None) -> None:
        # Typed as always there: a rule is asked only after it was bound.
        self.base_trial: Trial = base_trial  # type: ignore[assignment]
        self.trials = [t for t in (base_trial, *self.other_trials) if t is not None]
        self.req_tensors = RequiredTensors(base_trial, self.other_trials)

    @abstractmethod
    def invoke_at_step(self, step: int) -> Any:
        """Judge a global step; anything true means that the rule fires.

        In a training and in `check` it may also return a `Finding`-like dict, or a list of them, to say what it
        saw: keys tensor, statistic, observed, threshold, message.
        """

    def set_required_tensors(self, step: int) -> None:  # noqa: B027  # may be overridden
        """Add to `req_tensors` what `invoke_at_step` will look at; by default nothing is waited for."""

    def evaluate(self, step: int) -> Any:
        """Give what `invoke_at_step` says of a step that is there, with the trials standing still."""
        with no_refresh(self.trials):
            self.req_tensors.clear()
            self.set_required_tensors(step)
            self.req_tensors.fetch()
            return self.invoke_at_step(step)

    def invoke(self, step: int) -> None:
        """Wait for a global step and judge it; when it fires, run its actions first.

        Actions run at the first firing and again after their cool-down. What they ask of a training that still
        runs (stop_training, capture_more) goes through the run's ``control/``.

        Raises
        ------
        RuleEvaluationConditionMet
            It fires.
        StepUnavailable, NoMoreData
            The step was not saved, or the run ended before it.
        """
        self.base_trial.wait_for_steps([step])
        if self.evaluate(step):
            self.report["RuleTriggered"] += 1
            self.report["Violations"] += 1
            self._act(step)
            raise RuleEvaluationConditionMet(self.rule_name, step)

    def _act(self, step: int) -> None:
        if not self.actions:
            return
        if self._runner is None:
            trial = self.base_trial
            self._runner = _core.ActionRunner(trial.path, self.actions, trial.loaded_all_steps)
        message = f"rule {self.rule_name} fired at step {step}"
        self._runner.run(_core.Finding(message=message, rule=self.rule_name, step=step))

    def finish_actions(self) -> None:
        """Wait, at most 10 s, for actions that are under way. `invoke_rule` does it at its end."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None


@dataclass(frozen=True)
class CustomRule:
    """A rule of the user's own that is not bound to a trial yet, and the actions that came with it."""

    rule: type[Rule] | Rule | Callable[[Trial], Rule]
    actions: tuple[str, ...] = ()


def bind_rule(rule: object, trial: Trial) -> Rule:
    """Make a custom rule look at a trial.

    Parameters
    ----------
    rule
        A `Rule` subclass or a function that takes the trial; or an instance made with ``base_trial=None`` (or
        with this very trial), which is bound here.
    trial : Trial

    Raises
    ------
    InvalidArgumentError
        An instance that looks at another trial already.
    InvalidTypeError
        What was made is no `Rule`.
    """
    if isinstance(rule, CustomRule):
        rule = rule.rule
    if not isinstance(rule, Rule):
        if not callable(rule):
            raise InvalidTypeError(f"expected a Rule or a function that makes one, not {rule!r}")
        made = rule(trial)
        if not isinstance(made, Rule):
            raise InvalidTypeError(f"{rule!r} made no Rule but {made!r}")
        rule = made
    if rule.base_trial is None:
        rule._bind(trial)
    elif rule.base_trial is not trial:
        raise InvalidArgumentError(
            f"{rule.rule_name} looks at {rule.base_trial!r} already; give the class instead, or "
            f"lambda trial: {rule.rule_name}(trial, ...)"
        )
    return rule


@contextmanager
def no_refresh(trials: Trial | Sequence[Trial]) -> Iterator[None]:
    """Let trials stand still: no query looks for new steps."""
    yield from _refreshing(trials, False)


@contextmanager
def refresh(trials: Trial | Sequence[Trial]) -> Iterator[None]:
    """Let queries of the trials look for new steps."""
    yield from _refreshing(trials, True)


def _refreshing(trials: Trial | Sequence[Trial], value: bool) -> Iterator[None]:
    listed = [trials] if isinstance(trials, Trial) else list(trials)
    before = [trial.dynamic_refresh for trial in listed]
    for trial in listed:
        trial.dynamic_refresh = value
    try:
        yield
    finally:
        for trial, was in zip(listed, before, strict=True):
            trial.dynamic_refresh = was


def make_checker(rule: Rule) -> Callable[[int, int, int], Any]:
    """Give the engine a bound custom rule: called as (step, mode, mode step), it answers for a step.

    A tensor that is not there at the step means that there is nothing to find.
    """

    def check(step: int, mode: int, mode_step: int) -> Any:
        del mode, mode_step
        try:
            return rule.evaluate(step)
        except RuleEvaluationConditionMet:
            return True

    return check


def _follow_steps(trial: Trial, start_step: int, end_step: int | None) -> Iterator[int]:
    """Give the saved global steps in [start, end) as they come, until the run is over."""
    step = start_step
    while end_step is None or step < end_step:
        # Asked before the steps are: what was written before the end is then among them.
        has_ended = trial.loaded_all_steps
        trial.refresh_data()
        steps = trial._core.steps()
        at = bisect.bisect_left(steps, step)
        if at == len(steps):
            if has_ended:
                return
            time.sleep(_POLL_INTERVAL_S)
            continue
        for found in steps[at:]:
            if end_step is not None and found >= end_step:
                return
            yield found
        step = steps[-1] + 1


def invoke_rule(
    rule_obj: Rule,
    start_step: int = 0,
    end_step: int | None = None,
    raise_eval_cond: bool = False,
) -> None:
    """Let a custom rule judge the saved steps of its base trial, following a run that still goes on.

    Parameters
    ----------
    rule_obj : Rule
    start_step, end_step : int, optional
        Global steps from `start_step` up to, but not including, `end_step`; None: to the end of the run.
    raise_eval_cond : bool, optional
        Raise when the rule fires; otherwise it is logged and the next step follows.

    Raises
    ------
    RuleEvaluationConditionMet
        It fired, with `raise_eval_cond`.
    """
    try:
        _invoke_at_steps(rule_obj, start_step, end_step, raise_eval_cond)
    finally:
        rule_obj.finish_actions()


def _invoke_at_steps(
    rule_obj: Rule, start_step: int, end_step: int | None, raise_eval_cond: bool
) -> None:
    for step in _follow_steps(rule_obj.base_trial, start_step, end_step):
        try:
            rule_obj.invoke(step)
        except (TensorUnavailableForStep, StepUnavailable, TensorUnavailable) as error:
            rule_obj.logger.debug("%s at step %d: %s", rule_obj.rule_name, step, error)
        except NoMoreData:
            return
        except RuleEvaluationConditionMet as fired:
            if raise_eval_cond:
                raise
            rule_obj.logger.info("%s", fired)
            if fired.end_of_rule:
                return
