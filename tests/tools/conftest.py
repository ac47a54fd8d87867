"""Small fake repositories for the tests of tools/."""

import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


class Tree:
    """A directory that stands for a repository."""

    def __init__(self, root: Path):
        self.root = root

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def run(self, tool: str, *arguments: str) -> tuple[int, list[str]]:
        """Exit code and lines of a tool run on this tree."""
        command = [sys.executable, str(TOOLS / tool), "--root", str(self.root), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.stderr == ""
        return done.returncode, done.stdout.splitlines()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)
