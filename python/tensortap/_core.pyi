"""
The C++ engine of Tensortap. Private: use `tensortap` and `tensortap.pytorch`.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, overload

import numpy
import numpy.typing

# A rule for the engine: name, parameters as text, names of actions.
RuleSpec = tuple[str, Mapping[str, str], Sequence[str]]

__version__: str

def set_log_callback(callback: Callable[[int, str], None] | None) -> None:
    """
    callback(level of `logging`, message), on the main thread soon after. None = stderr.
    """

def log(level: int, message: str) -> None:
    """Say something as the engine does; the level is one of `logging`."""

def dtype_code(name: str) -> int:
    """
    Code of a dtype by PyTorch's name ("float32", "bfloat16", "float8_e4m3fn", "bool").
    """

def dtype_name(code: int) -> str: ...

class Statistics:
    """
    All statistics of one tensor at one step: `s.abs_mean` or `s["abs_mean"]`.

    Values are over the finite elements (counts beside them); `numpy_value` gives what NumPy
    would say for the whole tensor, where NaN and infinities propagate.
    """

    @property
    def count(self) -> int:
        """Number of elements, finite or not. Unit: elements."""

    @property
    def nan_count(self) -> int:
        """Number of NaN elements. Unit: elements."""

    @property
    def positive_inf_count(self) -> int:
        """Number of positive infinities. Unit: elements."""

    @property
    def negative_inf_count(self) -> int:
        """Number of negative infinities. Unit: elements."""

    @property
    def zero_count(self) -> int:
        """Number of zeros, of either sign. Unit: elements."""

    @property
    def subnormal_count(self) -> int:
        """
        Number of subnormal elements in the tensor's own dtype; 0 for integers. Unit: elements.
        """

    @property
    def overflow_count(self) -> int:
        """
        Number of finite elements that a cast to float16 would turn into infinity. Unit: elements.
        """

    @property
    def underflow_count(self) -> int:
        """
        Number of nonzero elements that a cast to float16 would flush to zero. Unit: elements.
        """

    @property
    def min(self) -> float:
        """Smallest finite element. Unit: tensor unit."""

    @property
    def max(self) -> float:
        """Largest finite element. Unit: tensor unit."""

    @property
    def mean(self) -> float:
        """Mean of the finite elements. Unit: tensor unit."""

    @property
    def variance(self) -> float:
        """Population variance of the finite elements. Unit: tensor unit squared."""

    @property
    def abs_min(self) -> float:
        """Smallest magnitude of a finite element. Unit: tensor unit."""

    @property
    def abs_mean(self) -> float:
        """Mean magnitude of the finite elements. Unit: tensor unit."""

    @property
    def abs_variance(self) -> float:
        """
        Population variance of the magnitudes of the finite elements. Unit: tensor unit squared.
        """

    @property
    def std(self) -> float:
        """
        Population standard deviation of the finite elements. Unit: tensor unit.
        """

    @property
    def sum(self) -> float:
        """Sum of the finite elements. Unit: tensor unit."""

    @property
    def l1(self) -> float:
        """Sum of the magnitudes of the finite elements. Unit: tensor unit."""

    @property
    def l2(self) -> float:
        """Euclidean norm of the finite elements. Unit: tensor unit."""

    @property
    def rms(self) -> float:
        """Root of the mean square of the finite elements. Unit: tensor unit."""

    @property
    def abs_max(self) -> float:
        """Largest magnitude of a finite element. Unit: tensor unit."""

    @property
    def abs_std(self) -> float:
        """
        Population standard deviation of the magnitudes of the finite elements. Unit: tensor unit.
        """

    @property
    def inf_count(self) -> int:
        """Number of infinities of either sign. Unit: elements."""

    @property
    def finite_count(self) -> int:
        """Number of elements that are neither NaN nor infinite. Unit: elements."""

    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def has_histogram(self) -> bool: ...
    @property
    def histogram(
        self,
    ) -> tuple[numpy.typing.NDArray[numpy.float64], numpy.typing.NDArray[numpy.int64]] | None:
        """(65 edges, 64 counts), ascending; None without one."""

    def numpy_value(self, name: str) -> float:
        """
        What NumPy would say for the whole tensor: NaN and infinities propagate.
        """

    def __getitem__(self, name: str, /) -> float: ...
    def keys(self) -> list[str]: ...
    def to_dict(self) -> dict[str, float]: ...
    def __repr__(self) -> str: ...

def compute_statistics(
    data_ptr: int,
    dtype_code: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
    histogram: bool = False,
) -> Statistics: ...
def simd_targets() -> list[str]: ...
def force_simd_target(name: str) -> None: ...
def statistic_table() -> list[dict[str, Any]]: ...
def statistic_name(name: str) -> str:
    """The table's name for a name or smdebug alias ("abs_l2_norm" -> "l2")."""

class SaveConfigMode:
    """
    When one mode is saved. An invalid value raises InvalidArgumentError and changes nothing.
    """

    def __init__(
        self,
        save_interval: int = 500,
        start_step: int = 0,
        end_step: int | None = None,
        save_steps: Sequence[int] = [],
    ) -> None: ...
    @property
    def save_interval(self) -> int: ...
    @save_interval.setter
    def save_interval(self, arg: int, /) -> None: ...
    @property
    def start_step(self) -> int: ...
    @start_step.setter
    def start_step(self, arg: int, /) -> None: ...
    @property
    def end_step(self) -> int | None: ...
    @end_step.setter
    def end_step(self, value: int | None) -> None: ...
    @property
    def save_steps(self) -> list[int]: ...
    @save_steps.setter
    def save_steps(self, arg: Sequence[int], /) -> None: ...
    def should_save_step(self, mode_step: int) -> bool: ...
    def __eq__(self, arg: object, /) -> bool: ...

class SaveConfig:
    """One SaveConfigMode a mode; None is filled from the hook's."""

    def __init__(self, config: SaveConfigMode | None = None) -> None:
        """The same for all modes; None leaves every mode empty."""

    def get(self, mode: int) -> SaveConfigMode | None: ...
    def set(self, mode: int, config: SaveConfigMode | None) -> None: ...
    def __eq__(self, arg: object, /) -> bool: ...

class ReductionConfig:
    """Reductions are tokens: "mean", "abs_mean", "l1_norm", "abs_l2_norm"."""

    def __init__(
        self, save_raw_tensor: bool = False, save_shape: bool = False, tokens: Sequence[str] = []
    ) -> None: ...
    @property
    def save_raw_tensor(self) -> bool: ...
    @save_raw_tensor.setter
    def save_raw_tensor(self, arg: bool, /) -> None: ...
    @property
    def save_shape(self) -> bool: ...
    @save_shape.setter
    def save_shape(self, arg: bool, /) -> None: ...
    @property
    def tokens(self) -> list[str]: ...
    @tokens.setter
    def tokens(self, arg: Sequence[str], /) -> None: ...
    @staticmethod
    def parse_reductions(comma_separated: str) -> list[str]: ...
    def __eq__(self, arg: object, /) -> bool: ...

class Collection:
    """
    A handle on a collection: alone, or (once added to a CollectionSet) on the one in that set.

    Changes of a collection in a running session reach the next step.
    """

    @overload
    def __init__(self, name: str) -> None: ...
    @overload
    def __init__(self, source: Collection) -> None:
        """A second handle on the same collection."""

    @property
    def name(self) -> str: ...
    @overload
    def include(self, regex: str) -> None: ...
    @overload
    def include(self, regex: Sequence[str]) -> None: ...
    @property
    def include_regex(self) -> list[str]: ...
    @include_regex.setter
    def include_regex(self, arg: Sequence[str], /) -> None: ...
    @property
    def tensor_names(self) -> set[str]: ...
    @tensor_names.setter
    def tensor_names(self, arg: Set[str], /) -> None: ...
    def add_tensor_name(self, name: str) -> None: ...
    def remove_tensor_name(self, name: str) -> None: ...
    def matches(self, tensor_name: str) -> bool: ...
    @property
    def save_config(self) -> SaveConfig | None:
        """A copy: assign it back to change it."""

    @save_config.setter
    def save_config(self, value: SaveConfig | None) -> None: ...
    @property
    def reduction_config(self) -> ReductionConfig | None:
        """A copy: assign it back to change it."""

    @reduction_config.setter
    def reduction_config(self, value: ReductionConfig | None) -> None: ...
    @property
    def save_histogram(self) -> bool: ...
    @save_histogram.setter
    def save_histogram(self, arg: bool, /) -> None: ...

class CollectionSet:
    """Collections by name."""

    def __init__(self) -> None: ...
    def get_or_create(self, name: str) -> Collection: ...
    def find(self, name: str) -> Collection | None: ...
    def add(self, collection: Collection) -> None:
        """
        Copies the content in, replacing a same-named one; `collection` then speaks for the copy.
        """

    def names(self) -> list[str]: ...
    def collections_of(self, tensor_name: str) -> list[str]: ...
    def to_json(self) -> str: ...
    @staticmethod
    def from_json(json: str, where: str = "") -> CollectionSet: ...
    def __contains__(self, arg: str, /) -> bool: ...
    def __len__(self) -> int: ...

class StepInfo:
    """When and in which mode a step was."""

    @property
    def step(self) -> int:
        """Global step."""

    @property
    def mode(self) -> int: ...
    @property
    def mode_step(self) -> int: ...
    @property
    def wall_time_ns(self) -> int:
        """When it began, since the Unix epoch."""

    @property
    def duration_ns(self) -> int: ...
    @property
    def session(self) -> int:
        """0 for the first start of the run, +1 for each resume."""

class Trial:
    """A run, opened for reading."""

    @staticmethod
    def open(uri: str, first_step: int | None = None, last_step: int | None = None) -> Trial:
        """
        Global steps [first_step, last_step). RunNotFoundError when there is no run.
        """

    @property
    def uri(self) -> str: ...
    def refresh(self) -> bool:
        """True when there is anything new."""

    def has_ended(self) -> bool: ...
    def run_json(self) -> str: ...
    def problems(self) -> list[tuple[str, str]]: ...
    def tensor_names(
        self,
        regexes: Sequence[str] = [],
        collection: str | None = None,
        step: int | None = None,
        mode: int = 4,
    ) -> list[str]: ...
    def has_tensor(self, name: str) -> bool: ...
    def workers(self) -> list[str]: ...
    def modes(self) -> list[int]: ...
    def steps(self, mode: int = 4, show_incomplete: bool = False) -> list[int]: ...
    def step_info(self, global_step: int) -> StepInfo | None: ...
    def global_step(self, mode: int, mode_step: int) -> int | None: ...
    def collections(self) -> CollectionSet:
        """A copy."""

    def has_passed_step(self, step: int, mode: int = 4) -> int:
        """0 unavailable, 1 available, 2 not yet available."""

    def wait_for_steps(
        self, steps: Sequence[int], mode: int = 4, timeout_s: float | None = None
    ) -> int | None:
        """
        The first step that can no longer come, or None. UnavailableError on timeout.
        """

    def tensor_steps(self, name: str, mode: int = 4) -> list[int]: ...
    def tensor_workers(self, name: str, step: int, mode: int = 4) -> list[str]: ...
    def row(self, name: str, step: int, mode: int = 4, worker: str = "") -> Statistics | None: ...
    def layout(
        self, name: str, step: int, mode: int = 4, worker: str = ""
    ) -> tuple[str, tuple[int, ...]] | None:
        """(dtype name, shape)."""

    def value(
        self, name: str, step: int, mode: int = 4, worker: str = ""
    ) -> numpy.typing.NDArray[Any] | None:
        """
        Read-only and without a copy; bfloat16 and float8 (which NumPy lacks) as float32.
        """

    def text(self, name: str, step: int, mode: int = 4, worker: str = "") -> str | None: ...
    def column(
        self, name: str, statistic: str, mode: int = 4, worker: str = ""
    ) -> tuple[numpy.typing.NDArray[numpy.int64], numpy.typing.NDArray[numpy.float64]]:
        """(steps, values), ascending."""

    def columns(
        self, names: Sequence[str], statistic: str, mode: int = 4, worker: str = ""
    ) -> list[tuple[numpy.typing.NDArray[numpy.int64], numpy.typing.NDArray[numpy.float64]]]: ...

class Finding:
    """What a rule said. `mode` is a number."""

    def __init__(
        self,
        *,
        message: str,
        rule: str = "",
        tensor: str = "",
        worker: str = "",
        step: int = 0,
        mode: int = 4,
        mode_step: int = 0,
        statistic: str = "",
        observed: float = 0.0,
        threshold: float = 0.0,
        severity: str = "warning",
    ) -> None: ...
    @property
    def rule(self) -> str: ...
    @rule.setter
    def rule(self, arg: str, /) -> None: ...
    @property
    def tensor(self) -> str: ...
    @tensor.setter
    def tensor(self, arg: str, /) -> None: ...
    @property
    def worker(self) -> str: ...
    @worker.setter
    def worker(self, arg: str, /) -> None: ...
    @property
    def step(self) -> int: ...
    @step.setter
    def step(self, arg: int, /) -> None: ...
    @property
    def mode(self) -> int: ...
    @mode.setter
    def mode(self, arg: int, /) -> None: ...
    @property
    def mode_step(self) -> int: ...
    @mode_step.setter
    def mode_step(self, arg: int, /) -> None: ...
    @property
    def statistic(self) -> str: ...
    @statistic.setter
    def statistic(self, arg: str, /) -> None: ...
    @property
    def observed(self) -> float: ...
    @observed.setter
    def observed(self, arg: float, /) -> None: ...
    @property
    def threshold(self) -> float: ...
    @threshold.setter
    def threshold(self, arg: float, /) -> None: ...
    @property
    def severity(self) -> str:
        """ "info", "warning" or "critical"."""

    @severity.setter
    def severity(self, arg: str, /) -> None: ...
    @property
    def message(self) -> str: ...
    @message.setter
    def message(self, arg: str, /) -> None: ...
    def to_json(self) -> str: ...
    def to_dict(self) -> dict[str, Any]: ...
    def __getstate__(self) -> dict[str, Any]: ...
    def __setstate__(self, state: dict[str, Any], /) -> None: ...
    def __eq__(self, arg: object, /) -> bool: ...
    def __repr__(self) -> str: ...

class RuleReport:
    """How a rule fared over the steps it saw."""

    @property
    def name(self) -> str: ...
    @property
    def status(self) -> str:
        """
        "InProgress", "NoIssuesFound", "IssuesFound", "NoData", "Error" or "Stopped".
        """

    @property
    def finding_count(self) -> int: ...
    @property
    def first_finding(self) -> Finding | None: ...
    @property
    def message(self) -> str:
        """The error, or what was not matched."""

    @property
    def parameters(self) -> dict[str, str]: ...
    @property
    def checked_steps(self) -> int: ...
    @property
    def matched_tensors(self) -> int: ...
    @property
    def checked_tensor_steps(self) -> int: ...
    @property
    def skipped_steps(self) -> int: ...
    def to_json(self) -> str: ...
    def __repr__(self) -> str: ...

def rule_descriptors() -> list[dict[str, Any]]:
    """
    name, summary, doc, family, stage, why, causes, next_step, collections, parameters (name, type, default, required, doc).
    """

def parse_rule_spec(text: str) -> tuple[str, dict[str, str]]:
    """ "NAME:key=value,key=value"."""

def rule_name(name: str) -> str:
    """The registered spelling; NotFoundError, listing the rules there are."""

def validate_rule(name: str, parameters: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """
    The effective parameters; NotFoundError or InvalidArgumentError, listing the valid ones.
    """

def diagnose(findings: Sequence[Finding], saved_steps: Sequence[int]) -> list[str]:
    """JSON objects, the worst first."""

def check_trial(
    trial: Trial,
    rules: Sequence[RuleSpec],
    first_step: int | None = None,
    last_step: int | None = None,
    follow: bool = False,
    on_finding: Callable[[Finding], None] | None = None,
    python_rules: Sequence[tuple[str, Callable[[int, int, int], Any]]] = (),
) -> tuple[list[Finding], list[RuleReport]]:
    """`python_rules`: name and callable, as Session.add_rule takes them."""

def action_descriptors() -> list[dict[str, Any]]: ...
def check_action(text: str) -> tuple[str, str]:
    """
    Its name, and its text without secrets; NotFoundError or InvalidArgumentError.
    """

def split_actions(text: str) -> list[str]:
    """ "a,b(key=value,key=value)" or a JSON list -> one text an action."""

def rule_statuses(run: str) -> list[dict[str, Any]]:
    """What rules/*.json of a run say."""

class ActionRunner:
    """Runs the actions of a rule that judges beside a training."""

    def __init__(self, run: str, actions: Sequence[str], has_ended: bool) -> None: ...
    def run(self, finding: Finding) -> None:
        """Unless they ran within their cool-down. Does not wait for slow ones."""

    def close(self) -> list[str]:
        """
        Waits up to 10 s for those under way; gives the outcomes as JSON texts.
        """

class Gate:
    """Begins the steps of a session in which nothing is due."""

    def pass_step(self, driver: bool) -> bool:
        """
        Begins the next step and gives True, unless it or the one after it is due. A caller that is not the driver only makes sure that a step is open.
        """

class Session:
    """
    One training process: recorder, live trial, rules and actions.

    `record*` may be called from several threads; the rest from one thread at a time. Memory must
    stay valid and unchanged during the call; the GIL is released while it is read.
    """

    def __init__(
        self,
        out_dir: str,
        *,
        collections: CollectionSet,
        worker: str = "worker_0",
        framework: str = "",
        resume: bool = False,
        dry_run: bool = False,
        save_config: SaveConfig | None = None,
        reduction_config: ReductionConfig | None = None,
        include_collections: Sequence[str] = [],
        save_all: bool = False,
        compute_threads: int = 0,
        queue_bytes: int = 67108864,
        backpressure: str = "block",
        configuration_json: str = "{}",
        rules: Sequence[tuple[str, Mapping[str, str], Sequence[str]]] = [],
        live_budget_bytes: int = 16777216,
        system_interval_ms: int | None = None,
    ) -> None:
        """
        Opens the run; `collections` becomes the session's own. `backpressure`: "block" or "drop". `system_interval_ms`: between samples of the machine; None = none.

        RunExistsError when the worker has already written to out_dir and `resume` is False.
        """

    @property
    def collections(self) -> CollectionSet: ...
    def invalidate_plan(self) -> None: ...
    def intern(self, name: str, collections: Sequence[str] = []) -> int: ...
    def find(self, name: str) -> int | None: ...
    def is_included(self, name: str, collections: Sequence[str] = []) -> bool: ...
    def tensor_name(self, id: int) -> str: ...
    @property
    def plan_version(self) -> int: ...
    def add_rule(
        self,
        name: str,
        callable: Callable[[int, int, int], bool | None | Sequence[Finding | Mapping[str, Any]]],
        actions: Sequence[str] = (),
    ) -> None:
        """
        A rule called as callable(step, mode, mode_step) after each step. Before the first step.

        True is a finding without details. An exception switches the rule off with status "Error".
        """

    def set_mode(self, arg: int, /) -> None: ...
    @property
    def mode(self) -> int: ...
    @property
    def step(self) -> int:
        """Global; -1 before the first."""

    def mode_step(self, arg: int, /) -> int: ...
    def begin_step(self) -> bool:
        """
        Ends an open step, plans the next. True when anything is due, or when somebody outside waits for the step's border.
        """

    def gate(self) -> Gate:
        """
        What lets steps pass in which nothing is due; keeps the session from nothing.
        """

    @property
    def is_next_step_due(self) -> bool: ...
    @property
    def in_step(self) -> bool: ...
    @property
    def any_due(self) -> bool: ...
    def is_due(self, arg: int, /) -> bool: ...
    def due_flags(self, arg: int, /) -> int:
        """0 not due; bits 1 statistics, 2 raw value, 4 histogram."""

    def end_step(self) -> None: ...
    def record(
        self,
        id: int,
        data_ptr: int,
        dtype_code: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None,
        /,
    ) -> None:
        """
        A tensor in this process's memory. `strides` in elements; None = C-contiguous.
        """

    def record_batch(
        self, items: Sequence[tuple[int, int, int, tuple[int, ...], tuple[int, ...] | None]], /
    ) -> None:
        """
        The same for many: (id, data_ptr, dtype_code, shape, strides). `items`: list or tuple.
        """

    def record_same(self, id: int, source: int) -> bool:
        """
        Unchanged memory that was recorded as `source` in this step. False: record it itself.
        """

    def record_raw(
        self,
        id: int,
        data_ptr: int,
        dtype_code: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None,
        /,
    ) -> None:
        """Keeps the raw value whatever the plan says."""

    def record_statistics(
        self, id: int, dtype_code: int, shape: tuple[int, ...], statistics: Mapping[str, float], /
    ) -> None:
        """
        Statistics that the framework computed; stored names of `statistic_table()`, all others 0.
        """

    def record_number(self, id: int, value: float) -> None:
        """A number, when it is due."""

    def record_scalar(self, arg0: str, arg1: float, /) -> None: ...
    def record_text(self, arg0: str, arg1: str, /) -> None: ...
    def defer_step(self) -> int:
        """
        Ends the step but holds it, and those after it, back until complete_step.

        Its ticket; 0 when no step is open.
        """

    def complete_step(
        self,
        ticket: int,
        items: list[tuple[int, int, tuple[int, ...], int, bool, list[tuple[int, int, int, int]]]],
    ) -> None:
        """
        Adds what a device computed and hands the step on. Items: (id, dtype_code, shape, address of the raw value in C order or 0, has_histogram, parts); parts: (address of rows of float64, address of rows of 64 int32 or 0, number of rows, NaN elements among them that are padding). A tensor at most once.
        """

    @property
    def stop_reason(self) -> Finding | None: ...
    def add_function(self, name: str, callable: Callable[[Finding], object]) -> None:
        """For the action save_checkpoint: called in obey()."""

    def obey(self) -> Finding | None:
        """
        Between steps: calls the functions that findings asked for, does what other processes asked for, and gives the finding for which the training has to stop.
        """

    @property
    def findings(self) -> list[Finding]: ...
    def rule_reports(self) -> list[RuleReport]: ...
    def live_trial(self) -> Trial: ...
    def put_document(self, name: str, text: str) -> None:
        """Writes or replaces a file of the run; a dry run has none."""

    def export_collections(self) -> None: ...
    def flush(self, timeout_s: float = 10.0) -> bool: ...
    def close(self) -> None: ...
    def counters(self) -> dict[str, Any]:
        """written_steps, dropped_steps, written_bytes, last_error."""

    @property
    def run_id(self) -> str: ...
    @property
    def out_dir(self) -> str: ...
    @property
    def is_closed(self) -> bool: ...
