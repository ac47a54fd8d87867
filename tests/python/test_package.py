"""The package as users meet it: what importing costs and gives, the program, the stub."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tensortap as tt
from tensortap import _program

PACKAGE = Path(__file__).parents[2] / "python" / "tensortap"


def run_python(text: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=True
    ).stdout


def test_importing_brings_no_framework() -> None:
    loaded = run_python(
        "import sys, tensortap;"
        "heavy = ('torch', 'matplotlib', 'sklearn', 'tensorflow');"
        "print([m for m in heavy if m in sys.modules])"
    )
    assert loaded.strip() == "[]"


def test_everything_promised_is_there() -> None:
    wanted = [
        "create_trial",
        "SaveConfig",
        "SaveConfigMode",
        "ReductionConfig",
        "Collection",
        "CollectionKeys",
        "modes",
        "Rule",
        "invoke_rule",
        "check",
        "StopTraining",
        "statistics",
        "__version__",
        "rules",
        "actions",
        "exceptions",
    ]
    assert [name for name in wanted if not hasattr(tt, name)] == []
    assert set(wanted) <= set(tt.__all__) <= set(dir(tt))
    assert tt.modes.TRAIN.value == 1
    assert callable(tt.statistics)
    with pytest.raises(AttributeError, match="no attribute 'wach'"):
        tt.wach  # noqa: B018


def test_watch_comes_with_pytorch() -> None:
    pytest.importorskip("torch")
    from tensortap.pytorch import watch

    assert tt.watch is watch


def test_submodules_do_not_hide_what_the_package_exports() -> None:
    out = run_python(
        "import tensortap.modes, tensortap.statistics, tensortap as tt;"
        "from tensortap.modes import ModeKeys;"
        "print(tt.modes is ModeKeys, tt.statistics([1.0]).count)"
    )
    assert out.split() == ["True", "1"]


def test_one_version() -> None:
    cmake = (PACKAGE.parents[1] / "CMakeLists.txt").read_text()
    assert f"project(tensortap VERSION {tt.__version__} " in cmake


def test_a_missing_program_is_one_clear_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "_bin" / "tensortap")
    monkeypatch.setattr(_program, "locations", lambda: [missing])
    assert _program.main() == 1
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert message.endswith(f"{missing}\n")


def without_words(text: str) -> str:
    """A stub as its declarations alone: docstrings and layout are the formatter's."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            if ast.get_docstring(node) is not None:
                node.body = node.body[1:]
            node.body = [n for n in node.body if ast.unparse(n) != "..."] or [ast.Pass()]
    return ast.unparse(tree)


def test_the_stub_is_what_the_module_has(tmp_path: Path) -> None:
    """When this fails: `python python/bindings/generate_stub.py`, then `ruff format`."""
    pytest.importorskip("nanobind")
    target = tmp_path / "_core.pyi"
    script = PACKAGE.parent / "bindings" / "generate_stub.py"
    subprocess.run([sys.executable, str(script), str(target)], check=True, timeout=120)
    kept = (PACKAGE / "_core.pyi").read_text()
    assert without_words(target.read_text()).splitlines() == without_words(kept).splitlines()
