"""Where a training step ends: learned from what the script does in its first one."""

from __future__ import annotations


class StepBorder:
    """Decides between two ends of a step.

    At the optimizer's step, so that a rule can stop the training there; or at the next forward pass,
    because the script does more after the optimizer's step (a second optimizer, a loss recorded late).
    """

    def __init__(self) -> None:
        self.ends_at_optimizer = False
        self.optimizer_stepped = False  # in the step that is open or has just ended
        self._is_known = False

    def begin_step(self) -> None:
        """Draw the conclusion of the step before: nothing happened after its optimizer's step."""
        if self.optimizer_stepped and not self._is_known:
            self._is_known = self.ends_at_optimizer = True
        self.optimizer_stepped = False

    def see_more(self) -> None:
        """Note that the script does something that belongs to the step."""
        if self.optimizer_stepped:
            self._is_known = True
            self.ends_at_optimizer = False
