"""Exceptions: their families, fields, texts and pickles; messages of the engine."""

from __future__ import annotations

import gc
import logging
import pickle
import subprocess
import sys

import pytest
from run_maker import RunMaker

import tensortap as tt
from tensortap import _core, exceptions, modes

FINDING = _core.Finding(message="Too small.", rule="R", tensor="t", step=3, mode=1, observed=0.5)
CASES = [
    (
        exceptions.StopTraining(FINDING),
        {"finding": FINDING},
        "R stopped the training at step 3: Too small.",
    ),
    (
        exceptions.StepUnavailable(4, modes.EVAL),
        {"step": 4, "mode": modes.EVAL},
        "step 4 of mode EVAL",
    ),
    (exceptions.StepNotYetAvailable(4, modes.TRAIN), {"step": 4, "mode": modes.TRAIN}, "not yet"),
    (exceptions.TensorUnavailable("w"), {"tname": "w"}, "'w'"),
    (
        exceptions.TensorUnavailableForStep("w", 2, has_reductions=True),
        {"tname": "w", "step": 2, "mode": modes.GLOBAL, "has_reductions": True},
        "save_raw_tensor",
    ),
    (exceptions.ShapeUnavailableForStep("w", 2), {"tname": "w", "step": 2}, "shape"),
    (exceptions.NoMoreData(9, modes.GLOBAL, 5), {"step": 9, "last_step": 5}, "the last one is 5"),
    (exceptions.InvalidWorker("worker_9"), {"worker": "worker_9"}, "worker_9"),
    (
        exceptions.RuleEvaluationConditionMet("R", 7, end_of_rule=True),
        {"rule_name": "R", "step": 7, "end_of_rule": True},
        "R fired at step 7",
    ),
    (exceptions.InvalidCollectionConfiguration("c"), {"c_name": "c"}, "include"),
    (
        exceptions.InsufficientInformationForRuleInvocation("R", "no loss"),
        {"rule_name": "R", "message": "no loss"},
        "no loss",
    ),
    (exceptions.RunExistsError("there"), {}, "there"),
    (exceptions.RunNotFoundError("gone"), {}, "gone"),
]


@pytest.mark.parametrize(("error", "fields", "text"), CASES, ids=lambda v: type(v).__name__)
def test_fields_text_and_pickle(error: Exception, fields: dict, text: str) -> None:
    for candidate in (error, pickle.loads(pickle.dumps(error))):
        assert type(candidate) is type(error)
        assert isinstance(candidate, exceptions.TensortapError)
        assert {name: getattr(candidate, name) for name in fields} == fields
        assert text in str(candidate)


@pytest.mark.parametrize(
    ("error", "base"),
    [
        (exceptions.InvalidArgumentError, ValueError),
        (exceptions.InvalidTypeError, TypeError),
        (exceptions.NotFoundError, LookupError),
        (exceptions.TensorUnavailable, LookupError),
        (exceptions.RunNotFoundError, FileNotFoundError),
        (exceptions.RunExistsError, FileExistsError),
        (exceptions.TraceIOError, OSError),
        (exceptions.UnsupportedError, NotImplementedError),
    ],
)
def test_built_in_families(error: type[Exception], base: type[Exception]) -> None:
    with pytest.raises(base, match="text"):
        raise error("text")


def test_a_directory_that_cannot_be_made(tmp_path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="file") as refused:
        _core.Session(str(tmp_path / "file" / "run"), collections=_core.CollectionSet())
    assert isinstance(refused.value, exceptions.TensortapError)


def test_a_file_that_is_no_run(tmp_path) -> None:
    (tmp_path / "notes.txt").write_text("no run")
    with pytest.raises(exceptions.RunNotFoundError, match=str(tmp_path)):
        tt.create_trial(tmp_path)
    with pytest.raises(exceptions.TensortapError, match=r"notes\.txt"):
        tt.create_trial(tmp_path / "notes.txt")


def test_findings_are_values() -> None:
    again = pickle.loads(pickle.dumps(FINDING))
    assert again == FINDING
    assert again.to_dict()["observed"] == 0.5
    again.step = 4
    assert again != FINDING
    assert '"tensor":"t"' in FINDING.to_json().replace(" ", "")


# Messages of the engine.


def test_engine_messages_go_to_logging(runs: RunMaker, caplog: pytest.LogCaptureFixture) -> None:

    session = runs.open()
    with caplog.at_level(logging.DEBUG, "tensortap"):
        _core.log(logging.WARNING, "first")
        for _ in range(10):
            pass
        assert [r.getMessage() for r in caplog.records if r.name == "tensortap"] == ["first"]
        assert caplog.records[-1].levelno == logging.WARNING
    session.close()


def run_script(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False
    )


def test_messages_at_exit_find_no_interpreter() -> None:
    # The session lives in a reference cycle with a module, so that it ends after Python does.
    done = run_script(
        "import tempfile, logging, tensortap as tt\n"
        "from tensortap import _core\n"
        "logging.basicConfig(level=0)\n"
        "s = _core.Session(tempfile.mkdtemp() + '/run', collections=_core.CollectionSet(), save_all=True)\n"
        "s.add_rule('R', lambda step, mode, ms: bool(s))\n"
        "s.begin_step(); s.record_scalar('x', 1.0)\n"
        "for i in range(3000): _core.log(30, 'late')\n"
    )
    assert done.returncode == 0, done.stderr
    assert "leaked" not in done.stderr
    assert "late" in done.stderr


def test_a_callback_that_raises_harms_nothing() -> None:
    done = run_script(
        "import tensortap\n"
        "from tensortap import _core\n"
        "def broken(level, message): raise ValueError('of the callback')\n"
        "_core.set_log_callback(broken)\n"
        "_core.log(30, 'x')\n"
        "print('alive')\n"
    )
    assert done.returncode == 0
    assert done.stdout == "alive\n"
    assert "of the callback" in done.stderr


def test_sessions_can_be_dropped_without_closing(runs: RunMaker) -> None:
    session = runs.open()
    session.begin_step()
    session.record_scalar("x", 2.0)
    out_dir = session.out_dir
    del session
    gc.collect()
    trial = tt.create_trial(out_dir)
    assert trial.loaded_all_steps
    assert trial.tensor("x").value(0) == 2.0
