"""What Tensortap raises: every class derives from `TensortapError`, and from the built-in one that fits.

The classes of the analysis side have the names and fields of `smdebug.exceptions`. All can be pickled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensortap.modes import ModeKeys

if TYPE_CHECKING:
    from tensortap._core import Finding


class TensortapError(Exception):
    """The base of all."""


class InvalidArgumentError(TensortapError, ValueError):
    """The caller's input is wrong: a parameter, a regular expression, a name."""


class InvalidTypeError(InvalidArgumentError, TypeError):
    """The caller's input is of the wrong type."""


class NotFoundError(TensortapError, LookupError):
    """A run, tensor, rule or statistic that is not there."""


class RunNotFoundError(NotFoundError, FileNotFoundError):
    """There is no run at that path."""


class RunExistsError(TensortapError, FileExistsError):
    """There is a run already where a fresh one was asked for; the message says how to go on."""


class UnavailableError(TensortapError):
    """Something that this step or tensor does not have, or that did not come in time."""


class CorruptTraceError(TensortapError):
    """Bytes that fail their checksum or contradict the format."""


class TraceIOError(TensortapError, OSError):
    """The operating system or the network refused."""


class UnsupportedError(TensortapError, NotImplementedError):
    """A newer format version, a dtype that this build does not know."""


class StopTraining(TensortapError):
    """A rule, or a person, asked to stop the training. Raised by hooks at a step border.

    Attributes
    ----------
    finding : Finding
        What the rule found; ``finding.message`` is a sentence a person understands. ``finding.rule`` is
        empty when a person asked (``tensortap stop``).
    """

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding)
        self.finding = finding

    def __str__(self) -> str:
        f = self.finding
        if not f.rule:
            return f"the training was stopped at step {f.step} by a request: {f.message}"
        return f"rule {f.rule} stopped the training at step {f.step}: {f.message}"


class InvalidCollectionConfiguration(TensortapError):
    """A collection of the user's has neither a regex nor tensor names when the first step begins."""

    def __init__(self, c_name: str) -> None:
        super().__init__(c_name)
        self.c_name = c_name

    def __str__(self) -> str:
        return (
            f"collection {self.c_name} matches nothing: give it a regex with include(), "
            "or tensor names"
        )


class StepNotYetAvailable(UnavailableError):
    """The step may still come: the run is not over."""

    def __init__(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> None:
        super().__init__(step, mode)
        self.step = step
        self.mode = mode

    def __str__(self) -> str:
        return f"step {self.step} of mode {self.mode.name} is not yet available"


class StepUnavailable(UnavailableError):
    """The step was not saved and never will be."""

    def __init__(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> None:
        super().__init__(step, mode)
        self.step = step
        self.mode = mode

    def __str__(self) -> str:
        return f"step {self.step} of mode {self.mode.name} was not saved and never will be"


class TensorUnavailable(NotFoundError):
    """No tensor has that name. `hint` suggests near ones."""

    def __init__(self, tname: str, hint: str = "") -> None:
        super().__init__(tname, hint)
        self.tname = tname
        self.hint = hint

    def __str__(self) -> str:
        return self.hint or f"no tensor is called '{self.tname}' in this run"


class TensorUnavailableForStep(UnavailableError):
    """The step is there, but not this value of the tensor."""

    def __init__(
        self,
        tname: str,
        step: int,
        mode: ModeKeys = ModeKeys.GLOBAL,
        has_reductions: bool = False,
    ) -> None:
        super().__init__(tname, step, mode, has_reductions)
        self.tname = tname
        self.step = step
        self.mode = mode
        self.has_reductions = has_reductions

    def __str__(self) -> str:
        text = f"tensor '{self.tname}' has no value at step {self.step} of mode {self.mode.name}"
        if self.has_reductions:
            text += (
                "; its statistics are there (reduction_value, statistics), raw values come with "
                "ReductionConfig(save_raw_tensor=True)"
            )
        return text


class ShapeUnavailableForStep(UnavailableError):
    """The step is there, but the tensor has no shape at it."""

    def __init__(self, tname: str, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> None:
        super().__init__(tname, step, mode)
        self.tname = tname
        self.step = step
        self.mode = mode

    def __str__(self) -> str:
        return f"tensor '{self.tname}' has no shape at step {self.step} of mode {self.mode.name}"


class NoMoreData(UnavailableError):
    """The run is over and ended before that step."""

    def __init__(self, step: int, mode: ModeKeys, last_step: int | None) -> None:
        super().__init__(step, mode, last_step)
        self.step = step
        self.mode = mode
        self.last_step = last_step

    @property
    def msg(self) -> str:
        """The sentence."""
        return (
            f"the run is over: step {self.step} of mode {self.mode.name} will not come, "
            f"the last one is {self.last_step}"
        )

    def __str__(self) -> str:
        return self.msg


class InvalidWorker(UnavailableError):
    """That worker has nothing for the step."""

    def __init__(self, worker: str) -> None:
        super().__init__(worker)
        self.worker = worker

    def __str__(self) -> str:
        return f"worker '{self.worker}' has no data for this step"


class RuleEvaluationConditionMet(TensortapError):
    """A rule fired. With `end_of_rule` it is done and wants no more steps."""

    def __init__(self, rule_name: str, step: int, end_of_rule: bool = False) -> None:
        super().__init__(rule_name, step, end_of_rule)
        self.rule_name = rule_name
        self.step = step
        self.end_of_rule = end_of_rule

    def __str__(self) -> str:
        return f"rule {self.rule_name} fired at step {self.step}"


class InsufficientInformationForRuleInvocation(TensortapError):
    """A rule cannot judge with what the run has."""

    def __init__(self, rule_name: str, message: str) -> None:
        super().__init__(rule_name, message)
        self.rule_name = rule_name
        self.message = message

    def __str__(self) -> str:
        return f"rule {self.rule_name} cannot judge: {self.message}"
