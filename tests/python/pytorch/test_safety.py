"""A hook never harms the training, and a run survives whatever happens to the training."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from trainings import mlp, train_mlp

import tensortap
from tensortap.exceptions import TensortapError

KILLS = 12
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}  # tiny models, several processes
HERE = Path(__file__).resolve().parents[1]  # where trainings.py is
PROGRAM = Path(tensortap.__file__).parent / "_bin" / "tensortap"

KILLED_TRAINING = """
import sys
sys.path.insert(0, {here!r})
import tensortap, torch
from trainings import mlp, train_mlp
torch.manual_seed(0)
model = mlp(8, 32, 32, 1)
hook = tensortap.watch(model, out_dir={run!r}, save_raw_tensor=True)
def progress(step, loss):
    if step % 5 == 1:
        hook.flush()
        print(step, flush=True)
train_mlp(model, 100000, after_step=progress)
"""


def reference_run(steps: int, out_dir: Path) -> tensortap.Trial:
    torch.manual_seed(0)
    model = mlp(8, 32, 32, 1)
    hook = tensortap.watch(model, out_dir=out_dir, save_raw_tensor=True)
    train_mlp(model, steps)
    hook.close()
    return tensortap.create_trial(out_dir)


def test_sigkill_at_random_moments_loses_no_complete_step(tmp_path: Path) -> None:
    """Steps are 0..n without a hole, at least those flushed, each equal to an undisturbed run's."""
    generator = random.Random(5)
    reached = []
    for kill in range(KILLS):
        run = tmp_path / f"run{kill}"
        child = subprocess.Popen(
            [sys.executable, "-c", KILLED_TRAINING.format(here=str(HERE), run=str(run))],
            stdout=subprocess.PIPE,
            env=ONE_THREAD,
            text=True,
        )
        assert child.stdout is not None
        flushed = int(child.stdout.readline())
        time.sleep(generator.uniform(0.0, 0.25))
        child.send_signal(signal.SIGKILL)
        child.wait()
        lines = child.stdout.read().split("\n")
        flushed = max([flushed, *(int(line) for line in lines[:-1])])
        verified = subprocess.run(
            [PROGRAM, "verify", "--json", str(run)], capture_output=True, text=True
        )
        assert verified.returncode == 0, verified.stdout + verified.stderr
        trial = tensortap.create_trial(run)
        steps = trial.steps()
        assert steps == list(range(len(steps)))
        # flush() comes before the step under way ends, so the flushed number may still be open.
        assert len(steps) >= flushed
        assert json.loads(verified.stdout)["step_count"] == len(steps)
        reached.append(len(steps))
    reference = reference_run(max(reached), tmp_path / "reference")
    # A time is another one each time, and the first step has none.
    names = [name for name in reference.tensor_names() if not name.endswith("_time")]
    for kill, count in enumerate(reached):
        trial = tensortap.create_trial(tmp_path / f"run{kill}")
        assert set(trial.tensor_names()) == {*names, "step_time", "data_time"}
        for name in names:
            assert trial.tensor(name).steps() == list(range(count))
            for step in {0, count // 2, count - 1}:
                np.testing.assert_array_equal(
                    trial.tensor(name).value(step), reference.tensor(name).value(step)
                )


FOLLOWED_TRAINING = """
import sys, time
sys.path.insert(0, {here!r})
import tensortap, torch
from trainings import mlp, train_mlp
model = mlp(8, 32, 32, 1)
hook = tensortap.watch(model, out_dir={run!r})
def progress(step, loss):
    print(step, time.time(), flush=True)
    time.sleep(0.02)
train_mlp(model, 60, after_step=progress)
hook.close()
"""


def test_a_following_trial_sees_whole_steps_within_half_a_second(tmp_path: Path) -> None:
    run = tmp_path / "run"
    child = subprocess.Popen(
        [sys.executable, "-c", FOLLOWED_TRAINING.format(here=str(HERE), run=str(run))],
        stdout=subprocess.PIPE,
        env=ONE_THREAD,
        text=True,
    )
    assert child.stdout is not None
    first = child.stdout.readline()
    trial = tensortap.create_trial(run)
    seen: dict[int, float] = {}
    counts: set[int] = set()
    for step in range(60):
        trial.wait_for_steps([step])
        seen[step] = time.time()
        counts.add(len(trial.tensor_names(step=step)) + (0 if step else 2))  # no times at first
    ended = dict(line.split() for line in [first, *child.stdout.read().splitlines()])
    child.wait()
    assert counts == {len(trial.tensor_names())}
    delays = [seen[step] - float(ended[str(step)]) for step in range(60)]
    assert max(delays) < 0.5


def test_losses_parameters_and_random_state_are_bit_identical_with_a_hook(tmp_path: Path) -> None:
    def train(hooked: bool) -> tuple[list[float], list[torch.Tensor], torch.Tensor]:
        torch.manual_seed(1)
        model = torch.nn.Sequential(mlp(8, 32, 16), torch.nn.Dropout(0.3), torch.nn.Linear(16, 1))
        model.weight = next(model.parameters())
        hook = (
            tensortap.watch(
                model, out_dir=tmp_path / "run", collections=["all"], save_raw_tensor=True
            )
            if hooked
            else None
        )
        generator = torch.Generator().manual_seed(3)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        losses = []
        for _ in range(20):
            inputs = torch.randn(16, 8, generator=generator)
            optimizer.zero_grad()
            loss = (model(inputs) - inputs.sum(dim=1, keepdim=True)).pow(2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        if hook is not None:
            hook.close()
        return losses, [p.detach().clone() for p in model.parameters()], torch.get_rng_state()

    plain, hooked = train(False), train(True)
    assert plain[0] == hooked[0]
    assert all(torch.equal(a, b) for a, b in zip(plain[1], hooked[1], strict=True))
    assert torch.equal(plain[2], hooked[2])


def test_a_fault_in_the_hook_leaves_the_training_alone_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(2)
    plain = train_mlp(mlp(8, 16, 1), 12)
    torch.manual_seed(2)
    model = mlp(8, 16, 1)
    hook = tensortap.watch(model, out_dir=tmp_path / "run", collections=["all"])
    calls = 0

    def broken(items: object) -> None:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise RuntimeError("the record is broken")

    monkeypatch.setattr(hook._recording._device, "_session", FaultySession(hook._session, broken))
    with caplog.at_level(logging.DEBUG, logger="tensortap"):
        assert train_mlp(model, 12) == plain
    hook.close()
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "the record is broken" in warnings[0].message
    assert not hook.is_active
    assert hook.fault_count == 1
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_strict_raises_the_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = mlp(8, 16, 1)
    hook = tensortap.watch(model, out_dir=tmp_path / "run", strict=True)

    def broken(items: object) -> None:
        raise RuntimeError("the record is broken")

    monkeypatch.setattr(hook._recording._device, "_session", FaultySession(hook._session, broken))
    with pytest.raises(RuntimeError, match="the record is broken"):
        train_mlp(model, 2)


class FaultySession:
    """The engine, but for a record_batch that breaks."""

    def __init__(self, session: object, record_batch: object) -> None:
        self._session = session
        self.record_batch = record_batch

    def __getattr__(self, name: str) -> object:
        return getattr(self._session, name)


def test_a_full_disk_does_not_stop_the_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("this user cannot mount a small file system")
    try:
        torch.manual_seed(0)
        plain = train_mlp(mlp(32, 256, 1), 60, lr=1e-4)
        torch.manual_seed(0)
        model = mlp(32, 256, 1)
        hook = tensortap.watch(model, out_dir=mount / "run", save_raw_tensor=True)
        assert train_mlp(model, 60, lr=1e-4) == plain
        hook.close()
        counters = hook.counters()
        assert counters["dropped_steps"] > 0
        assert "No space" in counters["last_error"]
        steps = tensortap.create_trial(mount / "run").steps()
        assert steps
        assert len(steps) == counters["written_steps"]
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_a_run_that_cannot_be_opened_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(TensortapError, match="file"):
        tensortap.watch(mlp(4, 1), out_dir=tmp_path / "file")


def test_a_forked_child_writes_nothing(tmp_path: Path) -> None:
    model = mlp(8, 16, 1)
    hook = tensortap.watch(model, out_dir=tmp_path / "run")
    train_mlp(model, 2)
    child = os.fork()
    if child == 0:
        try:
            train_mlp(model, 3)
            hook.close()
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    train_mlp(model, 2)
    hook.close()
    assert tensortap.create_trial(tmp_path / "run").steps() == [0, 1, 2, 3]


class Odd(torch.nn.Module):
    """A module between two others whose output nobody can read."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: torch.Tensor) -> dict[str, object]:
        odd = {
            "meta": lambda: torch.empty(3, device="meta"),
            "freed": lambda: freed_tensor(),
            "huge": lambda: torch.zeros(1).expand(2**40),
        }[self.kind]()
        return {"x": x * 2, "odd": odd}


def freed_tensor() -> torch.Tensor:
    tensor = torch.ones(100)
    tensor.untyped_storage().resize_(0)
    return tensor


@pytest.mark.parametrize("kind", ["meta", "freed", "huge"])
def test_a_tensor_that_cannot_be_read_is_left_out_and_the_rest_recorded(
    tmp_path: Path, kind: str
) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.odd = Odd(kind)
            self.head = torch.nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.odd(x)["x"])

    model = Model()
    hook = tensortap.watch(model, out_dir=tmp_path / "run", collections=["all"], strict=True)
    for _ in range(2):
        model(torch.ones(2, 4))
    hook.close()
    trial = tensortap.create_trial(tmp_path / "run")
    assert trial.tensor("odd_output_0").steps() == [0, 1]
    assert "odd_output_1" not in trial.tensor_names()


def test_a_relative_directory_survives_a_change_of_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    model = mlp(4, 8, 1)
    hook = tensortap.watch(model, out_dir="run", rules="ExplodingTensor")
    monkeypatch.chdir(tmp_path / "elsewhere")
    train_mlp(model, 2)
    hook.close()
    assert "NoIssuesFound" in hook.summary()
    assert tensortap.create_trial(tmp_path / "run").steps() == [0, 1]


def test_a_second_hook_in_the_same_directory_is_refused_at_once(tmp_path: Path) -> None:
    hook = tensortap.watch(mlp(4, 1), out_dir=tmp_path / "run")
    with pytest.raises(tensortap.exceptions.RunExistsError, match="resume=True"):
        tensortap.watch(mlp(4, 1), out_dir=tmp_path / "run")
    hook.close()


OPENING = """
import sys, time
from tensortap import _core
while time.time() < float(sys.argv[2]):
    pass
session = _core.Session(sys.argv[1], collections=_core.CollectionSet())
session.close()
"""


def test_of_processes_that_start_at_once_one_gets_the_run(tmp_path: Path) -> None:
    start = str(time.time() + 2)
    run = str(tmp_path / "deep" / "down" / "run")
    children = [
        subprocess.Popen(
            [sys.executable, "-c", OPENING, run, start], stderr=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    errors = [child.communicate()[1] for child in children]
    assert sorted(child.returncode for child in children) == [0, 1, 1, 1]
    assert sum("RunExistsError" in error for error in errors) == 3
