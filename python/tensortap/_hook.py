"""What every framework hook shares: arguments, collections, modes, scalars, rules and closing.

A framework folder (``pytorch/`` ...) subclasses `BaseHook` and attaches to its framework; nothing here
knows a framework's name.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from tensortap import _core
from tensortap._fence import fenced
from tensortap._hook_state import HookState
from tensortap._names import check_name
from tensortap._opening import (
    Opening,
    absolute_path,
    checked_count,
    checked_reduction,
    checked_workers,
    included_names,
    is_there,
    tensorboard_path,
)
from tensortap.collection import Collection, CollectionManager, flatten
from tensortap.config import ReductionConfig, SaveConfig, SaveConfigMode, to_bool
from tensortap.exceptions import InvalidArgumentError, InvalidTypeError, StopTraining
from tensortap.json_config import read_config
from tensortap.modes import ModeKeys

logger = logging.getLogger("tensortap")

H = TypeVar("H", bound="BaseHook")

# Seconds between two looks whether the run is still where it was.
_LOOK_INTERVAL = 10.0

# One of the environment's ways to switch capture off without touching a script.
_DISABLE_VARIABLE = "TENSORTAP_DISABLE"

_TENSORBOARD_LATER = (
    "export_tensorboard: no TensorBoard events are written while training; the run keeps all that an export "
    "needs, and can be exported later"
)


def is_disabled_by_environment() -> bool:
    """Whether ``TENSORTAP_DISABLE`` asks every hook to do nothing."""
    return os.environ.get(_DISABLE_VARIABLE, "").lower() in ("1", "true", "yes")


class BaseHook(HookState):
    """Base of the framework hooks. See ``tensortap.pytorch.Hook`` for the arguments.

    Thread safety: one training thread drives a hook; frameworks may deliver tensors from several threads.
    After ``fork`` the child's copy does nothing.
    """

    #: Name and version of the framework, for run.json.
    framework: ClassVar[str] = ""
    #: Collections that exist without being created, with their regexes and whether they keep raw values.
    default_collections: ClassVar[Mapping[str, tuple[Sequence[str], bool]]] = {}
    #: Collections that are saved whatever the user includes.
    always_included: ClassVar[Sequence[str]] = ()

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
        system_metrics: bool = True,
        system_interval: float = 0.5,
    ) -> None:
        HookState.__init__(self)
        self.out_dir = absolute_path(out_dir)
        self.tensorboard_dir = tensorboard_path(self.out_dir, export_tensorboard, tensorboard_dir)
        self.dry_run = to_bool("dry_run", dry_run)
        self.strict = to_bool("strict", strict)
        self.save_config = SaveConfig.parse(save_config) or SaveConfig()
        self.reduction_config = checked_reduction(reduction_config)
        self.save_all_workers = checked_workers(include_workers) == "all"
        self.worker, is_chief = (
            self._worker_identity() if worker is None else (check_name("worker", worker), True)
        )
        patterns = flatten([] if include_regex is None else include_regex)
        self.include_collections = included_names(
            self.always_included, include_collections, has_regex=bool(patterns), save_all=save_all
        )
        if self.tensorboard_dir is not None:
            self._warn_once("tensorboard", _TENSORBOARD_LATER)
        if is_disabled_by_environment():
            return
        self._session = Opening(
            out_dir=self.out_dir,
            framework=self.framework,
            worker=self.worker,
            default_collections=self.default_collections,
            include_collections=self.include_collections,
            include_regex=patterns,
            save_config=self.save_config,
            reduction_config=self.reduction_config,
            writes=not self.dry_run and (is_chief or self.save_all_workers),
            resume=to_bool("resume", resume),
            save_all=to_bool("save_all", save_all),
            rules=rules,
            backpressure=backpressure,
            queue_bytes=checked_count("queue_bytes", queue_bytes),
            compute_threads=None
            if compute_threads is None
            else checked_count("compute_threads", compute_threads),
            system_interval=system_interval if to_bool("system_metrics", system_metrics) else None,
        ).open()
        self._collections = CollectionManager(self._session)
        self.is_active = True
        _open_hooks.add(self)
        atexit.register(_close_at_exit, weakref.ref(self))

    @classmethod
    def create_from_json_file(
        cls: type[H], json_file_path: str | os.PathLike[str] | None = None
    ) -> H:
        """Make a hook from a configuration file, as SageMaker writes it (``debughookconfig.json``).

        Parameters
        ----------
        json_file_path
            None: the file that ``TENSORTAP_CONFIG_FILE_PATH`` or ``SMDEBUG_CONFIG_FILE_PATH`` names,
            else ``/opt/ml/input/config/debughookconfig.json``.

        Raises
        ------
        FileNotFoundError
            There is no such file.
        InvalidArgumentError
            The file is not JSON, or has an unknown parameter or a wrong value.
        """
        configuration = read_config(json_file_path)
        hook = cls(**configuration.arguments)
        if hook._session is not None:
            for collection in configuration.collections:
                own = hook.get_collection(collection.name)
                own.include(collection.include_regex)
                own.save_config = collection.save_config
                own.save_histogram = collection.save_histogram
                if collection.reduction_config is not None:
                    own.reduction_config = collection.reduction_config
        return hook

    def _worker_identity(self) -> tuple[str, bool]:
        """Name of this worker and whether it is the chief."""
        return "worker_0", True

    # ---------------------------------------------------------------- what scripts call

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
        if self._still_records("set_mode"):
            self._set_mode(mode)

    @fenced
    def _set_mode(self, mode: ModeKeys) -> None:
        if int(mode) != self._engine.mode:
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
            ``value`` is not one number, or ``name`` not a string.
        InvalidArgumentError
            ``name`` is empty or not UTF-8.
        """
        del sm_metric, timestamp
        check_name("save_scalar", name)
        try:
            number = float(value.item() if hasattr(value, "item") else value)
        except Exception as error:  # whatever an object's own item() does
            raise InvalidTypeError(f"save_scalar({name!r}) takes one number: {error}") from error
        if self._still_records("save_scalar"):
            self._record_scalar(f"scalar/{name}", number)

    @fenced
    def _record_scalar(self, name: str, value: float) -> None:
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
            raise InvalidTypeError(
                f"add_collection takes a Collection, not {type(collection).__name__}"
            )
        self.collection_manager.add(collection)

    @property
    def collection_manager(self) -> CollectionManager:
        """The hook's collections. Those of a hook that is switched off lead nowhere."""
        return self._collections

    def close(self) -> None:
        """Finish the open step, write what is queued, settle the rules. Safe to call twice; never raises."""
        if self._session is None or os.getpid() != self._pid or self._session.is_closed:
            return
        try:
            if self.is_active:
                self._finish_step()
            self._detach()
            self._write_coverage()
        except StopTraining:
            pass
        except Exception as error:
            self._report_fault("close", error)
        finally:
            self.is_active = False
            self._session.close()
            self._warn_if_lost()

    def __enter__(self: H) -> H:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _look_after_run(self) -> None:
        """`_warn_if_lost`, now and then; for every step that is due."""
        now = time.monotonic()
        if now - self._looked >= _LOOK_INTERVAL:
            self._looked = now
            self._warn_if_lost()

    def _warn_if_lost(self) -> None:
        """Say that somebody has deleted or moved the run meanwhile: writing to its open files went on all the same."""
        has_written = self.counters().get("written_steps", 0) > 0
        if has_written and not is_there(self.out_dir):
            self._warn_once(
                "lost",
                f"the directory of the run is gone, and with it what was recorded until now: {self.out_dir}",
            )

    # ---------------------------------------------------------------- for framework hooks

    def _still_records(self, method: str) -> bool:
        """Whether what a script hands over goes anywhere; after ``close()`` it does not, which is said once."""
        if self._session is not None and self._session.is_closed:
            self._warn_once(
                "closed",
                f"{method} after close(): nothing more is recorded; a new hook with resume=True goes on in the run",
            )
        return self.is_active

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

    def _raise_if_stopped(self) -> None:
        """Do what actions left for the step border; raise StopTraining, once, when one asked for it."""
        if self._session is None or self._stop_raised:
            return
        finding = self._session.obey()
        if finding is not None:
            self._stop_raised = True
            raise StopTraining(finding)

    def fail(self, where: str, error: Exception) -> None:
        """Deal with a fault of the hook's own: raise it when strict, else switch off."""
        if self.strict:
            raise error
        self._report_fault(where, error)
        self.is_active = False
        try:
            self._detach()
        except Exception:
            logger.debug("detaching after a fault failed", exc_info=True)

    def _report_fault(self, where: str, error: Exception) -> None:
        self.fault_count += 1
        # What the engine cannot do as it was told only the script can mend: that is no fault of a place in the code.
        is_asked = isinstance(error, InvalidArgumentError)
        why = "" if is_asked else f" after a fault in {where}: {type(error).__name__}"
        self._warn_once(
            f"fault:{where}",
            f"Tensortap switched itself off{why}: {error}. "
            "The training goes on; what was recorded until now is kept.",
        )
        logger.debug("details of the fault", exc_info=error)

    def _warn_once(self, key: str, message: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            logger.warning("%s", message)


_open_hooks: weakref.WeakSet[BaseHook] = weakref.WeakSet()


def _switch_off_in_child() -> None:
    """Let the hooks of a forked child do nothing: the parent's records are the parent's."""
    for hook in _open_hooks:
        hook.is_active = False


os.register_at_fork(after_in_child=_switch_off_in_child)


def _close_at_exit(reference: weakref.ref[BaseHook]) -> None:
    hook = reference()
    if hook is not None:
        hook.close()
