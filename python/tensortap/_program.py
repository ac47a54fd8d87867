"""The console script `tensortap`: hands over to the C++ program that came with the package."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> int:
    """Become the program; does not return unless it is missing."""
    program = Path(__file__).parent / "_bin" / "tensortap"
    try:
        os.execv(program, [str(program), *sys.argv[1:]])
    except OSError as error:
        print(
            f"tensortap: cannot start the program ({error.strerror}); install the package again: "
            f"{program}",
            file=sys.stderr,
        )
    return 1


if __name__ == "__main__":
    sys.exit(main())
