"""Where a training step begins and ends: learned from what the script does in its first one, or told by a library."""

from __future__ import annotations


class StepBorder:
    """Decides between two ends of a step.

    At the optimizer's step, so that a rule can stop the training there; or at the next forward pass,
    because the script does more after the optimizer's step (a second optimizer, a loss recorded late).
    """

    def __init__(self) -> None:
        self.ends_at_optimizer = False
        self.optimizer_stepped = False  # in the step that is open or has just ended
        self.is_led = False  # a training library begins and ends the steps
        self._is_known = False

    def let_lead(self) -> None:
        """Leave both borders to a library: neither a forward pass nor an optimizer's step is one."""
        self.is_led = self._is_known = True
        self.ends_at_optimizer = False

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
