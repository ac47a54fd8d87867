"""Further names of what a run recorded once: tied parameters, shared modules."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path


def recorded_name(path: str, name: str, is_known: Callable[[str], bool]) -> str | None:
    """The name under which a run has a tensor that is asked for by another of its names.

    Parameters
    ----------
    path
        Of the run.
    name
        Of a tensor, made with a further name of its parameter or module: ``gradient/Net_head.weight``.
    is_known
        Whether the run has a tensor of a name.
    """
    for alias, recorded in _aliases(path):
        if alias in name:
            candidate = name.replace(alias, recorded, 1)
            if is_known(candidate):
                return candidate
    return None


def _aliases(path: str) -> Iterator[tuple[str, str]]:
    """What the workers' coverage says, the longest first."""
    found: dict[str, str] = {}
    for file in sorted(Path(path).glob("coverage/*.json")):
        try:
            found.update(json.loads(file.read_text())["aliases"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    yield from sorted(found.items(), key=lambda pair: -len(pair[0]))
