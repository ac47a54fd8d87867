"""For all tests. What files share by name is in modules of their own: folders have conftests, too."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from run_maker import RunMaker

# What runs hold must not depend on how long a test takes; tests of the metrics switch them on.
os.environ["TENSORTAP_SYSTEM_METRICS"] = "0"


@pytest.fixture
def runs(tmp_path: Path) -> RunMaker:
    return RunMaker(tmp_path)


@pytest.fixture(scope="session")
def program() -> str:
    """The built `tensortap` program."""
    beside = Path(sys.executable).parent / "tensortap"
    found = (
        os.environ.get("TENSORTAP_PROGRAM")
        or (str(beside) if beside.exists() else None)
        or shutil.which("tensortap")
    )
    assert found, "no tensortap program: install the package or set TENSORTAP_PROGRAM"
    return found
