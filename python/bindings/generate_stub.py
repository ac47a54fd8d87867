"""Write python/tensortap/_core.pyi from the module that is installed: ``python generate_stub.py [PATH]``.

The stub is kept in the repository, so that type checkers and readers need no build; a test compares it with what
this gives.
"""

from __future__ import annotations

import sys
from pathlib import Path

from nanobind.stubgen import main as stubgen

HERE = Path(__file__).parent


def generate(target: Path) -> None:
    """Write the stub to `target`."""
    patterns = str(HERE / "stub_patterns.txt")
    stubgen(["-q", "-m", "tensortap._core", "-p", patterns, "-o", str(target)])


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "tensortap" / "_core.pyi")
