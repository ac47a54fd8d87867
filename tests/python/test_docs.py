"""The Python in documents runs as it stands, and prints at its end what stands below it."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
# "```python needs=lightning": run where that module is installed.
BLOCK = re.compile(r"```python(?: needs=(\w+))?\n(.*?)```\n(?:```text\n(.*?)```)?", flags=re.DOTALL)


def blocks(text: str) -> list[tuple[int, str, str | None]]:
    """(line of the first statement, code, what it prints or None) of every Python block that can be run here."""
    return [
        (text.count("\n", 0, match.start(2)) + 1, match[2], match[3])
        for match in BLOCK.finditer(text)
        if match[1] is None or importlib.util.find_spec(match[1]) is not None
    ]


def run(document: Path) -> None:
    """Run all blocks of a document in one namespace; exits with a message at the first that is wrong."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line, code, expected in blocks(document.read_text(encoding="utf-8")):
        printed = io.StringIO()
        padded = "\n" * (line - 1) + code  # so that tracebacks show the document's lines
        with contextlib.redirect_stdout(printed):
            exec(compile(padded, str(document), "exec"), namespace)
        if expected is not None and not printed.getvalue().endswith(expected):
            sys.exit(f"{document.name}:{line} prints\n{printed.getvalue()}instead of\n{expected}")


@pytest.mark.parametrize("name", ["capture.md", "rules.md"])
def test_documents_are_true(tmp_path: Path, name: str) -> None:
    command = [sys.executable, __file__, str(DOCS / name)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_the_page_of_rules_says_what_the_rules_say() -> None:
    """When this fails: `python tools/write_rules_doc.py`."""
    script = DOCS.parent / "tools" / "write_rules_doc.py"
    result = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_what_is_found_in_a_document() -> None:
    text = "a\n```python\nx = 1\n```\n```text\n```\n```sh\nls\n```\n```python needs=json\ny\n```\n"
    text += "```python needs=nobody_has_this\nz\n```\n"
    assert blocks(text) == [(3, "x = 1\n", ""), (11, "y\n", None)]


if __name__ == "__main__":
    run(Path(sys.argv[1]))
