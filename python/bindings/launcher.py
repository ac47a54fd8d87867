#!python
# The command `tensortap`. Finds the package without importing it: the program answers in milliseconds,
# importing NumPy would take a hundred times longer.
import importlib.util
import os
import runpy
import sys

spec = importlib.util.find_spec("tensortap")
if spec is None or not spec.origin:
    sys.exit("tensortap: the package is not installed for this Python: " + sys.executable)
program = os.path.join(os.path.dirname(spec.origin), "_program.py")
sys.exit(runpy.run_path(program)["main"]())
