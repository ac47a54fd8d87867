"""Rules: the built-in ones, and `Rule` to write one's own.

A built-in rule is an attribute of this module, made from the engine's own description of it:
``rules.VanishingGradient(threshold=1e-7, actions=["stop_training"])`` gives a `RuleSpec`, for ``watch(rules=[...])``,
``Hook(rules=[...])`` and `check`. As text it is ``"VanishingGradient:threshold=1e-7,actions=stop_training"``.
"""

from __future__ import annotations

import bisect
import inspect
import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
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
from tensortap.trial import Trial, create_trial

_logger = logging.getLogger("tensortap")
_DESCRIPTORS: dict[str, dict[str, Any]] = {d["name"]: d for d in _core.rule_descriptors()}
_POLL_INTERVAL_S = 0.05


@dataclass(frozen=True)
class RuleSpec:
    """A built-in rule with its parameters (as text) and the actions it triggers.

    Made by the constructors of this module, which check the parameters.
    """

    name: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    actions: tuple[str, ...] = ()

    @classmethod
    def make(
        cls, name: str, actions: str | Iterable[str] | None = None, **parameters: Any
    ) -> RuleSpec:
        """Check and make one.

        Parameters
        ----------
        name : str
            In any spelling: VanishingGradient, vanishing_gradient.
        actions : list of str, optional
            Names of `tensortap.actions`.
        **parameters
            Numbers, booleans, text or lists. None leaves the default.

        Raises
        ------
        NotFoundError
            No such rule; the message lists what there is.
        InvalidArgumentError
            An unknown parameter or a value that does not fit; the message lists the valid ones.
        """
        given = {key: _to_text(value) for key, value in parameters.items() if value is not None}
        registered, _ = _core.validate_rule(name, given)
        return cls(registered, given, tuple(parse_actions(actions)))

    @classmethod
    def parse(cls, text: str) -> RuleSpec:
        """Take "NAME:key=value,key=value", where ``actions=`` names actions."""
        name, parameters = _core.parse_rule_spec(text)
        return cls.make(name, **parameters)

    def to_core(self) -> _core.RuleSpec:
        """Give the engine's form."""
        return self.name, dict(self.parameters), list(self.actions)

    def __str__(self) -> str:
        options = [f"{key}={value}" for key, value in self.parameters.items()]
        if self.actions:
            options.append(f"actions={','.join(self.actions)}")
        return f"{self.name}:{','.join(options)}" if options else self.name


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
        """Wait for a global step and judge it.

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
            raise RuleEvaluationConditionMet(self.rule_name, step)


@dataclass(frozen=True)
class CustomRule:
    """A rule of the user's own that is not bound to a trial yet, and the actions that came with it."""

    rule: type[Rule] | Rule | Callable[[Trial], Rule]
    actions: tuple[str, ...] = ()


def parse_rule(rule: object) -> RuleSpec | CustomRule:
    """Take anything that a list of rules may hold.

    Parameters
    ----------
    rule
        A `RuleSpec`, its text, a `Rule` subclass, a function that makes a rule of a trial, a rule made with
        ``base_trial=None``, or a pair of one of the last three and a list of actions.

    Raises
    ------
    InvalidTypeError
        Something else.
    NotFoundError, InvalidArgumentError
        As `RuleSpec.make`.
    """
    if isinstance(rule, (RuleSpec, CustomRule)):
        return rule
    if isinstance(rule, str):
        return RuleSpec.parse(rule)
    if isinstance(rule, tuple) and len(rule) == 2 and not isinstance(rule[0], str):
        parsed = parse_rule(rule[0])
        actions = tuple(dict.fromkeys((*parsed.actions, *parse_actions(rule[1]))))
        if isinstance(parsed, CustomRule):
            return CustomRule(parsed.rule, actions)
        return RuleSpec(parsed.name, parsed.parameters, actions)
    if isinstance(rule, Rule):
        return CustomRule(rule, tuple(rule.actions))
    name = getattr(rule, "__name__", "")
    if name in _DESCRIPTORS and rule is globals().get("_constructors", {}).get(name):
        return RuleSpec.make(name)  # rules.VanishingGradient, without the brackets
    if callable(rule):
        return CustomRule(rule)
    raise InvalidTypeError(
        "a rule is a built-in one (rules.VanishingGradient(), 'VanishingGradient:threshold=1e-7'), a subclass of "
        f"Rule, or a function that makes one of a trial; not {rule!r}"
    )


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


class CheckResult(list[_core.Finding]):
    """What `check` found, in the order of steps; `reports` says how each rule fared."""

    def __init__(self, findings: Iterable[_core.Finding], reports: list[_core.RuleReport]) -> None:
        super().__init__(findings)
        self.reports = reports


def check(
    run: str | os.PathLike[str] | Trial,
    rules: Iterable[object],
    start_step: int | None = None,
    end_step: int | None = None,
) -> CheckResult:
    """Look through a recorded run with rules, as they would have judged it while it was trained.

    Parameters
    ----------
    run : str, path or Trial
    rules : list
        Built-in ones, their text, custom ones: what `parse_rule` takes.
    start_step, end_step : int, optional
        Global steps [start, end).

    Returns
    -------
    CheckResult
        A list of `Finding`; its `reports` has the status of the built-in rules. A rule that matched no tensor is
        logged as a warning: silence would look like health.

    Raises
    ------
    RunNotFoundError, NotFoundError, InvalidArgumentError
        No run; an unknown rule; an unknown or unparsable parameter.
    """
    if isinstance(rules, str):
        rules = [rules]
    parsed = [parse_rule(rule) for rule in rules]
    trial = run if isinstance(run, Trial) else create_trial(run)
    trial.maybe_refresh()
    specs = [rule.to_core() for rule in parsed if isinstance(rule, RuleSpec)]
    findings, reports = _core.check_trial(trial._core, specs, start_step, end_step)
    for report in reports:
        if report.status in ("NoData", "Error"):
            _logger.warning("rule %s: %s", report.name, report.message)
    for rule in parsed:
        if isinstance(rule, CustomRule):
            findings.extend(_check_custom(bind_rule(rule, trial), trial, start_step, end_step))
    return CheckResult(sorted(findings, key=lambda finding: finding.step), reports)


def _check_custom(
    rule: Rule, trial: Trial, start_step: int | None, end_step: int | None
) -> Iterator[_core.Finding]:
    for step in trial._core.steps():
        if (start_step is not None and step < start_step) or (
            end_step is not None and step >= end_step
        ):
            continue
        answer = ask_rule(rule, step)
        if not answer:
            continue
        for details in answer if isinstance(answer, (list, tuple)) else [answer]:
            yield _to_finding(details, rule, step)


def ask_rule(rule: Rule, step: int) -> Any:
    """What a bound custom rule says at a step; False where its tensors are not there."""
    try:
        return rule.evaluate(step)
    except (TensorUnavailableForStep, StepUnavailable, TensorUnavailable) as error:
        rule.logger.debug("%s at step %d: %s", rule.rule_name, step, error)
        return False
    except RuleEvaluationConditionMet:
        return True


def _to_finding(details: object, rule: Rule, step: int) -> _core.Finding:
    if isinstance(details, _core.Finding):
        details.rule = rule.rule_name
        return details
    mode, mode_step = rule.base_trial.mode_modestep(step)
    values: dict[str, Any] = {
        "message": f"{rule.rule_name} fired at step {step}",
        "step": step,
        "mode": 4 if mode is None else int(mode),
        "mode_step": mode_step or 0,
    }
    if isinstance(details, Mapping):
        values.update(details)
    return _core.Finding(**{**values, "rule": rule.rule_name})


# The built-in rules as constructors.


def names() -> list[str]:
    """List the built-in rules."""
    return list(_DESCRIPTORS)


def describe(name: str) -> str:
    """Give the documentation of a built-in rule: what it detects, its parameters, what to do."""
    registered, _ = _core.validate_rule(name, {})
    rule = _DESCRIPTORS[registered]
    lines = [rule["summary"], "", rule["doc"], "", "Parameters", "----------"]
    for parameter in rule["parameters"]:
        default = f", default {parameter['default']}" if parameter["default"] else ", optional"
        lines += [f"{parameter['name']} : {parameter['type']}{default}", f"    {parameter['doc']}"]
    lines += ["actions : list of str, optional", "    Names of `tensortap.actions`."]
    return "\n".join(lines)


def _to_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple, set, frozenset)):
        return ",".join(_to_text(item) for item in value)
    return str(value)


def _make_constructor(name: str) -> Callable[..., RuleSpec]:
    def constructor(*, actions: str | Iterable[str] | None = None, **parameters: Any) -> RuleSpec:
        return RuleSpec.make(name, actions, **parameters)

    kind = inspect.Parameter.KEYWORD_ONLY
    signature = [
        inspect.Parameter(p["name"], kind, default=p["default"] or None)
        for p in _DESCRIPTORS[name]["parameters"]
    ]
    signature.append(inspect.Parameter("actions", kind, default=None))
    constructor.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    constructor.__name__ = constructor.__qualname__ = name
    constructor.__doc__ = describe(name)
    return constructor


_constructors = {name: _make_constructor(name) for name in _DESCRIPTORS}


def __getattr__(name: str) -> Callable[..., RuleSpec]:
    if name in _constructors:
        return _constructors[name]
    raise AttributeError(f"no rule is called '{name}': {', '.join(_constructors)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_constructors])
