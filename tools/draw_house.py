#!/usr/bin/env python3
"""Draws the storeys of layers.txt into docs/architecture.md, between its two markers.

tools/draw_house.py            draws
tools/draw_house.py --check    only compares: exit code 1 when the drawing is out of date
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEGIN = "<!-- drawn by tools/draw_house.py from layers.txt -->\n"
END = "<!-- end of the drawing -->\n"


def read_storeys(layers: Path) -> list[tuple[str, str]]:
    """(folder, what it is), from the ground up."""
    storeys = []
    section = ""
    for line in layers.read_text().splitlines():
        if line.startswith("["):
            section = line
        elif section == "[order]" and line.strip() and not line.startswith("#"):
            name, _, what = line.partition(" ")
            storeys.append((name, what.strip()))
    return storeys


def draw(storeys: list[tuple[str, str]]) -> str:
    """The storeys as boxes, the ground at the bottom, as a fenced block."""
    name_width = max(len(name) for name, _ in storeys)
    what_width = max(len(what) for _, what in storeys)
    rule = f"+-{'-' * name_width}-+-{'-' * what_width}-+"
    lines = [rule]
    for name, what in reversed(storeys):
        lines += [f"| {name:<{name_width}} | {what:<{what_width}} |", rule]
    return "```text\n" + "\n".join(lines) + "\n```\n"


def main() -> int:
    """Draw or check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--layers", type=Path, default=ROOT / "layers.txt")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "architecture.md")
    arguments = parser.parse_args()
    old = arguments.page.read_text()
    before, begin, rest = old.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        print(f"{arguments.page}: the markers of the drawing are missing", file=sys.stderr)
        return 1
    new = before + begin + draw(read_storeys(arguments.layers)) + end + after
    if new == old:
        return 0
    if arguments.check:
        print(f"{arguments.page}: out of date, run tools/draw_house.py", file=sys.stderr)
        return 1
    arguments.page.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
