"""Importing a callback without its library says what to install."""

import subprocess
import sys

SCRIPT = """
import importlib, sys

for name in ("lightning", "pytorch_lightning", "transformers", "accelerate"):
    sys.modules[name] = None
for name in ("lightning", "transformers", "accelerate"):
    try:
        importlib.import_module(f"tensortap.pytorch.{name}")
    except ImportError as error:
        print(error)
"""


def test_one_line_says_what_to_install() -> None:
    command = [sys.executable, "-c", SCRIPT]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert lines == [
        f"tensortap.pytorch.{name} needs {name}, which is not installed: pip install {name}"
        for name in ("lightning", "transformers", "accelerate")
    ]
