"""How long steps take, and how long the training waits for data between them."""

from __future__ import annotations

import time


class StepClock:
    """Times of the steps that the hook looks at: those that are due, and the one before each."""

    def __init__(self) -> None:
        self._begun: float | None = None
        self._ended: float | None = None
        self.step_time: float | None = None  # seconds of the step before, from forward to forward
        self.data_time: float | None = None  # seconds between its end and this forward

    def begin_step(self) -> None:
        """Note that a step begins now."""
        now = time.perf_counter()
        self.step_time = None if self._begun is None else now - self._begun
        self.data_time = None if self._ended is None else now - self._ended
        self._begun, self._ended = now, None

    def end_step(self) -> None:
        """Note that the work of the open step is done; the last call of a step counts."""
        self._ended = time.perf_counter()

    def lose_track(self) -> None:
        """Say that steps pass from now on that nobody times."""
        self._begun = self._ended = None
