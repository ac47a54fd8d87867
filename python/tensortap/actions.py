"""What may happen when a rule fires: names for ``rules=[...(actions=["stop_training"])]``.

Each action is an attribute that gives its name, so that an editor can complete it:
``rules.VanishingGradient(actions=[actions.stop_training])``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Any

from tensortap import _core

_logger = logging.getLogger("tensortap")
_DESCRIPTORS: dict[str, dict[str, Any]] = {d["name"]: d for d in _core.action_descriptors()}


def names() -> list[str]:
    """List the actions there are."""
    return list(_DESCRIPTORS)


def describe(name: str) -> str:
    """Give the documentation of an action."""
    descriptor = _DESCRIPTORS[name]
    return f"{descriptor['summary']}\n\n{descriptor['doc']}"


def parse_actions(value: str | Iterable[str] | None) -> list[str]:
    """Take names of actions, or smdebug's `action_str`: JSON with an object or a list of objects.

    Of the JSON form, an action that does not exist here (email, sms) is logged and left out.
    """
    if value is None:
        return []
    if not isinstance(value, str):
        return [str(name) for name in value]
    text = value.strip()
    if not text.startswith(("{", "[")):
        return [part.strip() for part in text.split(",") if part.strip()]
    parsed = json.loads(text)
    known = {name.replace("_", ""): name for name in _DESCRIPTORS}
    actions = []
    for entry in parsed if isinstance(parsed, list) else [parsed]:
        wanted = str(entry.get("name", "")) if isinstance(entry, dict) else str(entry)
        name = known.get(wanted.replace("_", "").lower())
        if name is None:
            _logger.warning("there is no action '%s' (%s): left out", wanted, ", ".join(names()))
        else:
            actions.append(name)
    return actions


def __getattr__(name: str) -> str:
    if name in _DESCRIPTORS:
        return name
    raise AttributeError(f"no action is called '{name}': {', '.join(_DESCRIPTORS)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_DESCRIPTORS])
