"""From a hook's arguments to an open session of the engine."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tensortap import _core
from tensortap._names import check_name
from tensortap.actions import Action
from tensortap.collection import Collection, CollectionManager, flatten
from tensortap.config import ReductionConfig, SaveConfig
from tensortap.exceptions import InvalidArgumentError, InvalidTypeError
from tensortap.rules import CustomRule, bind_rule, make_checker, parse_rule
from tensortap.trial import Trial

# "0" keeps the machine's metrics out of every run.
_SYSTEM_METRICS_VARIABLE = "TENSORTAP_SYSTEM_METRICS"


@dataclass
class Opening:
    """What a hook opens its session with; the arguments of `BaseHook`, made whole."""

    out_dir: str
    framework: str
    worker: str
    default_collections: Mapping[str, tuple[Sequence[str], bool]]
    include_collections: list[str]
    save_config: SaveConfig
    reduction_config: ReductionConfig
    writes: bool
    resume: bool
    save_all: bool
    include_regex: list[str] = field(default_factory=list)
    rules: Sequence[Any] = ()
    backpressure: str = "block"
    queue_bytes: int = 64 << 20
    compute_threads: int | None = None
    system_interval: float | None = None

    def open(self) -> _core.Session:
        """Open the run; the errors are those of `BaseHook`."""
        rules = [self.rules] if isinstance(self.rules, str) else self.rules
        if not isinstance(rules, Iterable):
            raise InvalidTypeError(f"rules takes a list of rules, not {rules!r}")
        parsed = [parse_rule(rule) for rule in rules]
        session = _core.Session(
            self.out_dir,
            worker=self.worker,
            framework=self.framework,
            resume=self.resume,
            dry_run=not self.writes,
            save_config=self.save_config,
            reduction_config=self.reduction_config,
            include_collections=self.include_collections,
            save_all=self.save_all,
            collections=self._make_collections(),
            compute_threads=_default_compute_threads()
            if self.compute_threads is None
            else self.compute_threads,
            queue_bytes=self.queue_bytes,
            backpressure=self.backpressure,
            configuration_json=json.dumps(self._configuration()),
            system_interval_ms=self._system_interval_ms(),
            rules=[rule.to_core() for rule in parsed if not isinstance(rule, CustomRule)],
        )
        for rule in parsed:
            _add_functions(session, rule.actions)
            if isinstance(rule, CustomRule):
                _add_custom_rule(session, rule)
        return session

    def _system_interval_ms(self) -> int | None:
        is_off = os.environ.get(_SYSTEM_METRICS_VARIABLE, "").lower() in ("0", "false", "no")
        if self.system_interval is None or is_off:
            return None
        return round(self.system_interval * 1000)

    def _make_collections(self) -> _core.CollectionSet:
        core = _core.CollectionSet()
        collections = CollectionManager(core)
        for name, (patterns, keep_raw) in self.default_collections.items():
            collection = Collection(name, include_regex=patterns)
            if keep_raw:
                collection.reduction_config = ReductionConfig(save_raw_tensor=True)
            collections.add(collection)
        if self.include_regex:
            collections.get("default").include(self.include_regex)
        for name in self.include_collections:
            collections.get(name)
        return core

    def _configuration(self) -> dict[str, Any]:
        """What run.json keeps of how the run was made."""
        return {
            "include_collections": self.include_collections,
            "save_all": self.save_all,
            "save_config": self.save_config.to_json_dict(),
            "reduction_config": self.reduction_config.to_json_dict(),
        }


def absolute_path(out_dir: str | os.PathLike[str]) -> str:
    """Make a path independent of the working directory; a URI stays as it is.

    Raises
    ------
    InvalidTypeError
        It is no path.
    InvalidArgumentError
        It is empty, or no name that a file can have.
    """
    if not isinstance(out_dir, str | os.PathLike):
        raise InvalidTypeError(f"the directory of a run must be a path, not {out_dir!r}")
    path = os.path.expanduser(check_name("the directory of a run", os.fspath(out_dir)))
    if "\0" in path:
        raise InvalidArgumentError(f"the directory of a run has a NUL in its name: {path!r}")
    return path if ":" in path else os.path.abspath(path)


def is_there(out_dir: str) -> bool:
    """Whether a run is where it was opened; of one that is in no directory nobody knows better."""
    return ":" in out_dir or os.path.exists(os.path.join(out_dir, "run.json"))


def checked_count(name: str, value: object) -> int:
    """Give an argument back that is a number of things; InvalidTypeError or InvalidArgumentError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidTypeError(f"{name} must be a whole number, not {value!r}")
    if value < 0:
        raise InvalidArgumentError(f"{name} must be at least 0, not {value}")
    return value


def checked_reduction(config: object) -> ReductionConfig:
    """What a hook keeps, in smdebug's meaning: everything when nothing is said about it."""
    if config is None:
        return ReductionConfig(save_raw_tensor=True)
    if not isinstance(config, ReductionConfig):
        raise InvalidTypeError(f"reduction_config takes a ReductionConfig, not {config!r}")
    return config


def checked_workers(include_workers: object) -> str:
    """Which workers write: "one" (rank 0) or "all"."""
    if include_workers not in ("one", "all"):
        raise InvalidArgumentError(
            f"include_workers must be 'one' (rank 0 writes) or 'all', not {include_workers!r}"
        )
    return str(include_workers)


def tensorboard_path(
    out_dir: str, asked: bool, tensorboard_dir: str | os.PathLike[str] | None
) -> str | None:
    """Where TensorBoard events are wanted, as smdebug decides it; None when they are not."""
    if tensorboard_dir is not None:
        return absolute_path(tensorboard_dir)
    return f"{out_dir}/tensorboard" if asked else None


def included_names(
    always: Sequence[str], asked: object, *, has_regex: bool, save_all: bool
) -> list[str]:
    """Names of the collections that are saved, each once: smdebug's rules."""
    names = [*always, *flatten(asked if asked is not None else [])]
    if has_regex:
        names.append("default")
    if save_all:
        names.append("all")
    return list(dict.fromkeys(names))


def _add_functions(session: _core.Session, actions: Iterable[str]) -> None:
    """Hand over what SaveCheckpoint calls."""
    for action in actions:
        if isinstance(action, Action) and action.function is not None:
            session.add_function(json.loads(action)["function"], action.function)


def _add_custom_rule(session: _core.Session, custom: CustomRule) -> None:
    rule = bind_rule(custom, Trial._from_core(session.live_trial()))
    actions = list(dict.fromkeys([*custom.actions, *rule.actions]))
    _add_functions(session, rule.actions)
    session.add_rule(rule.rule_name, make_checker(rule), actions)


def _default_compute_threads() -> int:
    """Threads besides the caller: all processors but one, at most 3; the work is bound by memory."""
    has_affinity = hasattr(os, "sched_getaffinity")
    processors = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return max(0, min(3, processors - 1))
