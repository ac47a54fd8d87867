"""Starts the C++ program `tensortap` that came with the package. Imports nothing of the package, to be quick."""

from __future__ import annotations

import importlib.util
import os
import sys


def locations() -> list[str]:
    """Where the program may be: the folders of the package, which are several in an editable install."""
    spec = importlib.util.find_spec("tensortap")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    return [os.path.join(folder, "_bin", "tensortap") for folder in folders]


def main() -> int:
    """Become the program; does not return unless it is missing."""
    candidates = locations() or ["tensortap"]
    program = next((path for path in candidates if os.path.exists(path)), candidates[0])
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        print(
            f"tensortap: cannot start the program ({error.strerror}); install the package again: "
            f"{program}",
            file=sys.stderr,
        )
    return 1


if __name__ == "__main__":
    sys.exit(main())
