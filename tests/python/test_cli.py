"""The built `tensortap` program, as a shell and other programs meet it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tensortap import create_trial

# A training that never ends by itself: a loss a step, NaN from step 30 on.
TRAINING = """
import sys, time
from tensortap import _core
out_dir, pause_s = sys.argv[1], float(sys.argv[2])
session = _core.Session(out_dir, collections=_core.CollectionSet(), include_collections=["losses"])
for step in range(1_000_000):
    session.begin_step()
    session.record_scalar("loss", float("nan") if step >= 30 else 1.0 / (step + 1))
    session.record_text("note", "step " + str(step) + " " + "x" * 200)
    session.end_step()
    if pause_s:
        time.sleep(pause_s)
"""


@pytest.fixture
def training(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A slow one, into tmp_path/run, that has written its first steps."""
    process = start_training(tmp_path / "run", pause_s=0.02)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def start_training(run: Path, pause_s: float) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", TRAINING, str(run), str(pause_s)])
    deadline = time.monotonic() + 30
    while not list(run.glob("trace/*/*.ttap")):
        assert process.poll() is None, "the training ended early"
        assert time.monotonic() < deadline, "the training wrote nothing"
        time.sleep(0.01)
    return process


def call(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )


def test_killed_training_verifies_clean_and_keeps_every_complete_step(
    program: str, tmp_path: Path
) -> None:
    moments = random.Random(5)
    for attempt in range(6):
        run = tmp_path / f"run{attempt}"
        process = start_training(run, pause_s=0.0)
        time.sleep(moments.uniform(0.1, 0.3))
        process.kill()
        process.wait()
        verified = call(program, "verify", run, "--json")
        assert verified.returncode == 0, verified.stdout + verified.stderr
        report = json.loads(verified.stdout)
        assert report["step_count"] > 0
        # Nothing before the tear is missing, and nothing else is there.
        steps = create_trial(str(run)).steps()
        assert list(steps) == list(range(report["step_count"]))
        listed = json.loads(call(program, "ls", run, "--json").stdout)
        assert listed["status"] == "no end mark: still running or killed"
        assert listed["step_count"] == report["step_count"]


def test_follow_reports_a_finding_while_the_training_runs(
    program: str, training: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    arguments = ["check", str(tmp_path / "run"), "--rule", "ExplodingTensor", "--follow", "--json"]
    check = subprocess.Popen([program, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert check.stdout is not None
        finding = json.loads(check.stdout.readline())
        assert (finding["tensor"], finding["step"]) == ("loss", 30)
        assert training.poll() is None
        check.send_signal(signal.SIGINT)
        rest = check.stdout.read().splitlines()
        assert check.wait(timeout=10) == 3
    finally:
        check.kill()
        check.wait()
    report = json.loads(rest[-1])["rules"][0]["report"]
    assert report["status"] == "IssuesFound"
    assert report["first_finding"] == finding


def test_follow_ends_when_its_reader_goes_away(
    program: str, training: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    arguments = ["check", str(tmp_path / "run"), "--rule", "ExplodingTensor", "--follow"]
    check = subprocess.Popen(
        [program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert check.stdout is not None
        assert check.stderr is not None
        assert "loss" in check.stdout.readline()
        check.stdout.close()
        check.wait(timeout=10)
        assert check.stderr.read() == ""
    finally:
        check.kill()
        check.wait()


def test_closed_pipe_is_no_error_and_a_full_disk_is_one(
    program: str, training: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    show = [program, "show", str(tmp_path / "run"), "loss"]
    read_end, write_end = os.pipe()
    os.close(read_end)
    closed = subprocess.run(show, stdout=write_end, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write_end)
    assert (closed.returncode, closed.stderr) == (0, "")
    with open("/dev/full", "w") as full_disk:
        full = subprocess.run(
            show, stdout=full_disk, stderr=subprocess.PIPE, text=True, check=False
        )
    assert full.returncode == 1
    assert full.stderr == "tensortap: the answer could not be written in full\n"


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["frobnicate"], 2, "unknown command 'frobnicate'"),
        (["ls", "no/such/run"], 1, "there is no run: no/such/run"),
        (["check", "no/such/run", "--rule", "NoSuchRule"], 2, "VanishingGradient"),
        (["show", "no/such/run"], 2, "TENSOR is required"),
    ],
)
def test_mistakes_are_one_line(program: str, arguments: list[str], code: int, text: str) -> None:
    outcome = call(program, *arguments)
    assert outcome.returncode == code
    assert outcome.stdout == ""
    assert outcome.stderr.startswith("tensortap: ")
    assert text in outcome.stderr
    assert outcome.stderr.count("\n") == 1
