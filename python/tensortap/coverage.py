"""What a hook saw of a training and what it could not see: silence must never look like health."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

# Names that one line shows.
_SHOWN = 6


@dataclass
class Coverage:
    """What was seen of one worker's training.

    Attributes
    ----------
    worker
        Whose.
    steps
        Steps that were counted, of all sessions of the run.
    looked_at_modules
        Modules that were called in a step in which something was due.
    never_called
        Modules that were not, though something was due.
    called_around
        Modules that took part without being called as ``module(x)``, so that nothing of them could be seen, and how.
    compiled
        Modules whose insides a compiler has taken over.
    lazy
        Parameters that have no shape yet.
    frozen
        Parameters that take no gradient.
    without_gradient
        Parameters that take one and never had one in a step that was looked at.
    has_no_gradient
        None was seen of any: the model was not trained, or in a way of its own, such as ``torch.autograd.grad``.
    aliases
        Further names of tied parameters and shared modules, and the name under which each is recorded.
    unreadable
        Tensors that were due and could not be read.
    skipped_optimizer_steps
        Steps that a gradient scaler left out.
    dropped_steps
        Steps that were recorded and not written.
    faults
        Faults of the hook's own; the first switched it off.
    """

    worker: str
    steps: int = 0
    looked_at_modules: int = 0
    never_called: list[str] = field(default_factory=list)
    called_around: dict[str, str] = field(default_factory=dict)
    compiled: list[str] = field(default_factory=list)
    lazy: list[str] = field(default_factory=list)
    frozen: list[str] = field(default_factory=list)
    without_gradient: list[str] = field(default_factory=list)
    has_no_gradient: bool = False
    aliases: dict[str, str] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    skipped_optimizer_steps: int = 0
    dropped_steps: int = 0
    faults: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether nothing was missed; what is frozen on purpose is not."""
        return not any(True for _ in self._gaps())

    def to_dict(self) -> dict[str, Any]:
        """Give the attributes by name, ready for JSON."""
        return {"version": 1, **dataclasses.asdict(self)}

    def to_text(self, indent: str = "") -> str:
        """Give lines for people."""
        gaps = [*self._gaps(), *self._remarks()]
        if not gaps:
            return f"{indent}coverage  everything was seen"
        head, *rest = gaps
        return "\n".join(
            [f"{indent}coverage  {head}", *(f"{indent}          {gap}" for gap in rest)]
        )

    def __str__(self) -> str:
        return self.to_text()

    def _gaps(self) -> Iterator[str]:
        if self.faults:
            yield "the hook switched itself off after a fault: nothing was recorded from then on"
        if not self.steps:
            yield "0 calls seen: no registered model was called as model(x)"
        elif not self.looked_at_modules:
            yield f"none of {self.steps} steps was looked at: nothing was due"
        if self.never_called:
            yield f"{_count(self.never_called, 'module')} never called: {_some(self.never_called)}"
        for how in dict.fromkeys(self.called_around.values()):
            names = [name for name, reason in self.called_around.items() if reason == how]
            yield f"{_count(names, 'module')} not seen, {how}: {_some(names)}"
        if self.compiled:
            yield f"insides of compiled modules not seen: {_some(self.compiled)}"
        if self.without_gradient:
            names = self.without_gradient
            yield f"{_count(names, 'parameter')} never had a gradient: {_some(names)}"
        if self.unreadable:
            yield f"{_count(self.unreadable, 'tensor')} could not be read: {_some(self.unreadable)}"
        if self.dropped_steps:
            yield f"{self.dropped_steps} steps were recorded and not written"

    def _remarks(self) -> Iterator[str]:
        if self.has_no_gradient:
            yield "no gradient of any parameter was seen"
        if self.skipped_optimizer_steps:
            yield f"{self.skipped_optimizer_steps} optimizer steps skipped by a gradient scaler"
        if self.frozen:
            yield f"{_count(self.frozen, 'parameter')} frozen: {_some(self.frozen)}"
        if self.aliases:
            names = [f"{alias} = {name}" for alias, name in self.aliases.items()]
            yield f"{_count(names, 'name')} for what has another: {_some(names)}"
        if self.lazy:
            yield f"{_count(self.lazy, 'parameter')} without a shape yet: {_some(self.lazy)}"


def _count(names: list[str], what: str) -> str:
    return f"{len(names)} {what}{'' if len(names) == 1 else 's'}"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
