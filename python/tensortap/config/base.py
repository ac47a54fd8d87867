"""What the configurations share: numbers and booleans as text, and telling who has to know of a change."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tensortap.exceptions import InvalidArgumentError


def to_int(name: str, value: Any) -> int:
    """Take a whole number or the same as text; InvalidArgumentError otherwise."""
    if not isinstance(value, bool):
        try:
            return operator.index(value)  # NumPy's integers too
        except TypeError:
            pass
        try:
            number = float(value)
            if number == int(number):
                return int(number)
        except (TypeError, ValueError, OverflowError):
            pass
    raise InvalidArgumentError(f"{name} must be a whole number, not {value!r}")


def to_bool(name: str, value: object) -> bool:
    """Take True, False and the same as text ("true", "0"); InvalidArgumentError otherwise."""
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("true", "1", "yes"):
        return True
    if text in ("false", "0", "no"):
        return False
    raise InvalidArgumentError(f"{name} must be True or False, not {value!r}")


class Observable:
    """Tells others when an attribute changes: a configuration that a collection already has."""

    def _on_change(self, listener: Callable[[], None]) -> None:
        self.__dict__.setdefault("_listeners", []).append(listener)

    def _changed(self) -> None:
        for listener in self.__dict__.get("_listeners", ()):
            listener()
