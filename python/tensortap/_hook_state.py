"""What a hook is before it records anything, and what it tells of the run: the same for all frameworks."""

from __future__ import annotations

import json
import logging
import os
import time
from typing import Any, TypeVar

from tensortap import _core
from tensortap.collection import CollectionManager
from tensortap.config import ReductionConfig, SaveConfig
from tensortap.coverage import Coverage
from tensortap.exceptions import InvalidTypeError, RunNotFoundError, TensortapError
from tensortap.modes import ModeKeys
from tensortap.rules.status import summarize_reports
from tensortap.summary import summarize

logger = logging.getLogger("tensortap")

H = TypeVar("H", bound="HookState")


class HookState:
    """A hook that does nothing: what the environment switched off, and what arrives out of a pickle."""

    def __init__(self) -> None:
        self.is_active = False
        self.out_dir = ""
        self.tensorboard_dir: str | None = None
        self.dry_run = True
        self.strict = False
        self.save_config = SaveConfig()
        self.reduction_config = ReductionConfig(save_raw_tensor=True)
        self.save_all_workers = False
        self.worker = "worker_0"
        self.fault_count = 0
        self.include_collections: list[str] = []
        self._session: _core.Session | None = None  # None: it never will record
        self._collections = CollectionManager(_core.CollectionSet())
        self._pid = os.getpid()
        self._warned: set[str] = set()
        self._stop_raised = False
        self._looked = time.monotonic()  # when the run was last seen in its place

    # ---------------------------------------------------------------- what scripts ask

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

    def findings(self) -> list[_core.Finding]:
        """What the rules of this hook have found so far, in order."""
        return list(self._session.findings) if self._session is not None else []

    def rule_reports(self) -> list[_core.RuleReport]:
        """Status and coverage of each rule of this hook."""
        return list(self._session.rule_reports()) if self._session is not None else []

    def rule_job_summary(self) -> list[dict[str, Any]]:
        """Status of each rule in SageMaker's words: see `tensortap.rules.rule_job_summary`."""
        return summarize_reports(self.rule_reports(), self.out_dir)

    def summary(self) -> str:
        """Several readable lines about the run: steps, tensors, losses, what the rules found."""
        if self._session is None or self.dry_run:
            return f"Run {self.out_dir}\n  nothing was recorded"
        self.flush()
        try:
            text = summarize(self.out_dir, self.rule_reports())
        except RunNotFoundError as error:  # somebody has deleted or moved it
            text = f"Run {self.out_dir}\n  {error}"
        return f"{text}\n{self.coverage().to_text('  ')}"

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

        Raises
        ------
        InvalidTypeError
            ``timeout`` is no number.
        """
        if not isinstance(timeout, int | float):
            raise InvalidTypeError(f"flush takes seconds, not {timeout!r}")
        return self._session.flush(timeout) if self._session is not None else True

    def coverage(self) -> Coverage:
        """Tell what the hook saw of the training, and what it could not see."""
        coverage = Coverage(worker=self.worker, steps=self.step + 1)
        if self._session is not None:
            coverage.dropped_steps = self._session.counters()["dropped_steps"]
            coverage.faults = self.fault_count
        return coverage

    def _write_coverage(self) -> None:
        """Leave coverage/<worker>.json in the run."""
        if self._session is None:
            return
        text = json.dumps(self.coverage().to_dict(), indent=1) + "\n"
        try:
            self._session.put_document(f"coverage/{self.worker}.json", text)
        except TensortapError as error:  # a full disk: the writer has said so
            logger.debug("the coverage was not written: %s", error)

    # ---------------------------------------------------------------- copies

    def __getstate__(self) -> dict[str, Any]:
        # A hook that travels with a pickled model arrives switched off.
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        HookState.__init__(self)

    def __deepcopy__(self: H, memo: dict[int, Any]) -> H:
        # A copied model keeps pointing at the one hook, which ignores modules it was not given.
        return self
