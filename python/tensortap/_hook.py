"""What every framework hook shares: arguments, collections, modes, rules, and the fence around the training.

A framework folder (``pytorch/`` ...) subclasses :class:`BaseHook` and attaches to its framework; nothing here knows
a framework's name.
"""

from __future__ import annotations

import atexit
import functools
import json
import logging
import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from tensortap import _core
from tensortap.collection import Collection, CollectionManager, flatten
from tensortap.config import ReductionConfig, SaveConfig, SaveConfigMode
from tensortap.exceptions import InvalidArgumentError, InvalidTypeError, StopTraining, TensortapError
from tensortap.modes import ModeKeys
from tensortap.rules import CustomRule, ask_rule, bind_rule, parse_rule
from tensortap.summary import summarize
from tensortap.trial import Trial

logger = logging.getLogger("tensortap")

P = ParamSpec("P")
R = TypeVar("R")
H = TypeVar("H", bound="BaseHook")

# One of the environment's ways to switch capture off without touching a script.
_DISABLE_VARIABLE = "TENSORTAP_DISABLE"


def is_disabled_by_environment() -> bool:
    """Whether ``TENSORTAP_DISABLE`` asks every hook to do nothing."""
    return os.environ.get(_DISABLE_VARIABLE, "").lower() in ("1", "true", "yes")


def fenced(
    method: Callable[Concatenate[H, P], R],
) -> Callable[Concatenate[H, P], R | None]:
    """Keep a hook's faults away from the training.

    The wrapped method is called by the framework or in the training loop. An unexpected exception is logged once
    with its cause and switches the hook off; with ``strict=True`` it is raised. :class:`StopTraining` always passes.
    """

    @functools.wraps(method)
    def wrapper(self: H, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        if not self._active:
            return None
        try:
            return method(self, *args, **kwargs)
        except StopTraining:
            raise
        except Exception as error:
            self._fail(method.__name__, error)
            return None

    return wrapper


class BaseHook:
    """Base of the framework hooks. See ``tensortap.pytorch.Hook`` for the arguments.

    Thread safety: one training thread drives a hook; frameworks may deliver tensors from several threads.
    After ``fork`` the child's copy does nothing.
    """

    #: Name and version of the framework, for run.json.
    framework = ""
    #: Collections that exist without being created, with their regexes and whether they keep raw values.
    default_collections: Mapping[str, tuple[Sequence[str], bool]] = {}
    #: Collections that are saved whatever the user includes.
    always_included: Sequence[str] = ()

    def __init__(
        self,
        out_dir: str | os.PathLike[str],
        export_tensorboard: bool = False,
        tensorboard_dir: str | None = None,
        dry_run: bool = False,
        reduction_config: ReductionConfig | None = None,
        save_config: SaveConfig | SaveConfigMode | Mapping[Any, Any] | None = None,
        include_regex: Sequence[str] | str | None = None,
        include_collections: Iterable[Any] | None = None,
        save_all: bool = False,
        include_workers: str = "one",
        *,
        resume: bool = False,
        rules: Sequence[Any] = (),
        strict: bool = False,
        worker: str | None = None,
        backpressure: str = "block",
        queue_bytes: int = 64 << 20,
        compute_threads: int | None = None,
    ) -> None:
        self._active = False
        if export_tensorboard or tensorboard_dir is not None:
            raise InvalidArgumentError(
                "export_tensorboard and tensorboard_dir are not supported yet; leave them out and look at the run "
                "with `tensortap show` or tensortap.create_trial()"
            )
        self.out_dir = os.path.expanduser(os.fspath(out_dir))
        self.dry_run = dry_run
        self.strict = strict
        self.save_config = SaveConfig.parse(save_config) or SaveConfig()
        # smdebug's meaning: without a ReductionConfig raw values are kept; with one, only when it says so.
        self.reduction_config = reduction_config or ReductionConfig(save_raw_tensor=True)
        self.worker, is_chief = self._worker_identity() if worker is None else (worker, True)
        self.save_all_workers = include_workers == "all"
        self._pid = os.getpid()
        self._warned: set[str] = set()
        self.fault_count = 0
        self._stop_raised = False
        names = flatten([] if include_collections is None else include_collections)
        self.include_collections = list(dict.fromkeys([*self.always_included, *names]))
        if is_disabled_by_environment():
            self._session = None
            return
        writes = is_chief or self.save_all_workers
        self._session = self._open_session(
            writes=writes,
            include_regex=[include_regex] if isinstance(include_regex, str) else list(include_regex or ()),
            save_all=save_all,
            resume=resume,
            rules=rules,
            backpressure=backpressure,
            queue_bytes=queue_bytes,
            compute_threads=_default_compute_threads() if compute_threads is None else compute_threads,
        )
        self._collections = CollectionManager(self._session)
        self._active = True
        atexit.register(_close_at_exit, weakref.ref(self))

    # ---------------------------------------------------------------- opening

    def _open_session(
        self,
        *,
        writes: bool,
        include_regex: list[str],
        save_all: bool,
        resume: bool,
        rules: Sequence[Any],
        backpressure: str,
        queue_bytes: int,
        compute_threads: int,
    ) -> _core.Session:
        core_collections = _core.CollectionSet()
        collections = CollectionManager(core_collections)
        for name, (patterns, keep_raw) in self.default_collections.items():
            collection = Collection(name, include_regex=patterns)
            if keep_raw:
                collection.reduction_config = ReductionConfig(save_raw_tensor=True)
            collections.add(collection)
        if include_regex:
            collections.get("default").include(include_regex)
            self.include_collections.append("default")
        if save_all:
            self.include_collections.append("all")
        for name in self.include_collections:
            collections.get(name)
        parsed = [parse_rule(rule) for rule in rules]
        session = _core.Session(
            self.out_dir,
            worker=self.worker,
            framework=self.framework,
            resume=resume,
            dry_run=self.dry_run or not writes,
            save_config=self.save_config,
            reduction_config=self.reduction_config,
            include_collections=self.include_collections,
            save_all=save_all,
            collections=core_collections,
            compute_threads=compute_threads,
            queue_bytes=queue_bytes,
            backpressure=backpressure,
            configuration_json=json.dumps(self._configuration(save_all)),
            rules=[rule.to_core() for rule in parsed if not isinstance(rule, CustomRule)],
        )
        for rule in parsed:
            if isinstance(rule, CustomRule):
                self._add_custom_rule(session, rule)
        return session

    def _configuration(self, save_all: bool) -> dict[str, Any]:
        """What run.json keeps of how the run was made."""
        return {
            "include_collections": self.include_collections,
            "save_all": save_all,
            "save_config": self.save_config.to_json_dict(),
            "reduction_config": self.reduction_config.to_json_dict(),
        }

    def _add_custom_rule(self, session: _core.Session, custom: CustomRule) -> None:
        rule = bind_rule(custom, Trial._from_core(session.live_trial()))

        def check(step: int, mode: int, mode_step: int) -> Any:
            del mode, mode_step
            return ask_rule(rule, step)

        session.add_rule(rule.rule_name, check, list(custom.actions))

    def _worker_identity(self) -> tuple[str, bool]:
        """Name of this worker and whether it is the chief."""
        return "worker_0", True

    # ---------------------------------------------------------------- what scripts call

    @property
    def step(self) -> int:
        """Global step, -1 before the first."""
        return self._session.step if self._session is not None else -1

    @property
    def mode(self) -> ModeKeys:
        """Mode of the current step."""
        return ModeKeys(self._session.mode) if self._session is not None else ModeKeys.GLOBAL

    @property
    def run_id(self) -> str:
        """Identity of the run: 32 hexadecimal digits."""
        return self._session.run_id if self._session is not None else ""

    @property
    def is_active(self) -> bool:
        """False once the hook is closed, switched off after a fault, or disabled by the environment."""
        return self._active

    def set_mode(self, mode: ModeKeys) -> None:
        """Say what the steps from now on are for.

        Parameters
        ----------
        mode
            ``modes.TRAIN``, ``modes.EVAL``, ``modes.PREDICT`` or ``modes.GLOBAL``. Each counts its own steps.

        Raises
        ------
        InvalidTypeError
            If ``mode`` is not a :class:`ModeKeys`.
        """
        if not isinstance(mode, ModeKeys):
            raise InvalidTypeError(
                f"set_mode takes a member of tensortap.modes ({', '.join(m.name for m in ModeKeys)}), not {mode!r}"
            )
        self._set_mode(mode)

    @fenced
    def _set_mode(self, mode: ModeKeys) -> None:
        if self._owns_process() and int(mode) != self._engine.mode:
            self._before_mode_change()
            self._engine.set_mode(int(mode))

    def _before_mode_change(self) -> None:
        """Let a framework hook finish what belongs to the step that is open."""

    def save_scalar(
        self, name: str, value: Any, sm_metric: bool = False, timestamp: float | None = None
    ) -> None:
        """Record one number of the current step as ``scalar/<name>``, whatever the save configuration says.

        Parameters
        ----------
        name
            Name without the ``scalar/`` prefix.
        value
            A number, or anything with exactly one element and an ``item()`` method.
        sm_metric, timestamp
            Accepted as in smdebug; without effect.

        Raises
        ------
        InvalidTypeError
            If ``value`` is not one number.
        """
        del sm_metric, timestamp
        try:
            number = float(value.item() if hasattr(value, "item") else value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InvalidTypeError(f"save_scalar({name!r}) takes one number: {error}") from error
        self._record_scalar(f"scalar/{name}", number)

    @fenced
    def _record_scalar(self, name: str, value: float) -> None:
        if self._owns_process():
            self._before_late_record()
            self._engine.record_scalar(name, value)

    def _before_late_record(self) -> None:
        """Let a framework hook notice that something was recorded after it thought the step was over."""

    def get_collection(self, name: str, create: bool = True) -> Collection:
        """Collection of that name, made empty when it does not exist (``create=True``)."""
        return self.collection_manager.get(name, create=create)

    def get_collections(self) -> dict[str, Collection]:
        """All collections by name."""
        return self.collection_manager.get_collections()

    def add_collection(self, collection: Collection) -> None:
        """Add a collection, replacing one of the same name."""
        if not isinstance(collection, Collection):
            raise InvalidTypeError(f"add_collection takes a Collection, not {type(collection).__name__}")
        self.collection_manager.add(collection)

    @property
    def collection_manager(self) -> CollectionManager:
        """The hook's collections."""
        if self._session is None:
            raise TensortapError(f"this hook is switched off by {_DISABLE_VARIABLE}")
        return self._collections

    def findings(self) -> list[_core.Finding]:
        """What the rules of this hook have found so far, in order."""
        return list(self._session.findings) if self._session is not None else []

    def rule_reports(self) -> list[_core.RuleReport]:
        """Status and coverage of each rule of this hook."""
        return list(self._session.rule_reports()) if self._session is not None else []

    def summary(self) -> str:
        """Several readable lines about the run: steps, tensors, losses, what the rules found."""
        if self._session is None or self.dry_run:
            return f"Run {self.out_dir}\n  nothing was recorded"
        self.flush()
        return summarize(self.out_dir, self.rule_reports())

    def counters(self) -> dict[str, Any]:
        """Steps written and dropped, bytes written, last error of the writer."""
        return dict(self._session.counters()) if self._session is not None else {}

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until everything recorded is visible to readers.

        Parameters
        ----------
        timeout
            Seconds to wait at most.

        Returns
        -------
        bool
            False on timeout.
        """
        return self._session.flush(timeout) if self._session is not None else True

    def close(self) -> None:
        """Finish the open step, write what is queued, settle the rules. Safe to call twice; never raises."""
        if self._session is None or not self._owns_process() or self._session.is_closed:
            return
        try:
            if self._active:
                self._finish_step()
            self._detach()
        except StopTraining:
            pass
        except Exception as error:
            self._report_fault("close", error)
        finally:
            self._active = False
            self._session.close()

    def __enter__(self: H) -> H:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        # A hook that travels with a pickled model arrives switched off.
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._active = False
        self._session = None

    def __deepcopy__(self: H, memo: dict[int, Any]) -> H:
        # A copied model keeps pointing at the one hook, which ignores modules it was not given.
        return self

    # ---------------------------------------------------------------- for framework hooks

    @property
    def _engine(self) -> _core.Session:
        """The session; only asked for while the hook is active."""
        assert self._session is not None
        return self._session

    def _finish_step(self) -> None:
        """Capture what is left of the open step and end it."""
        if self._session is not None:
            self._session.end_step()

    def _detach(self) -> None:
        """Remove everything that was attached to the framework."""

    def _owns_process(self) -> bool:
        return os.getpid() == self._pid

    def _raise_if_stopped(self) -> None:
        """Raise StopTraining, once, when a rule's action asked for it."""
        if self._session is None or self._stop_raised:
            return
        finding = self._session.stop_reason
        if finding is not None:
            self._stop_raised = True
            raise StopTraining(finding)

    def _fail(self, where: str, error: Exception) -> None:
        if self.strict:
            raise error
        self._report_fault(where, error)
        self._active = False
        try:
            self._detach()
        except Exception:
            logger.debug("detaching after a fault failed", exc_info=True)

    def _report_fault(self, where: str, error: Exception) -> None:
        self.fault_count += 1
        self._warn_once(
            f"fault:{where}",
            f"Tensortap switched itself off after a fault in {where}: {type(error).__name__}: {error}. "
            "The training goes on; what was recorded until now is kept.",
        )
        logger.debug("details of the fault", exc_info=error)

    def _warn_once(self, key: str, message: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            logger.warning("%s", message)


def _close_at_exit(reference: weakref.ref[BaseHook]) -> None:
    hook = reference()
    if hook is not None:
        hook.close()


def _default_compute_threads() -> int:
    """Threads besides the caller: all processors but one, at most 3. More gain nothing on memory-bound work."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(0, min(3, processors - 1))
