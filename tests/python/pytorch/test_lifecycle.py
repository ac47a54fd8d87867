"""A hook's life: attached again and again, copied, pickled, forked, forgotten, closed by nobody, resumed."""

from __future__ import annotations

import copy
import gc
import logging
import pickle
import resource
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from oracle import every_step, fit, hooks_on, open_hook, train_twice
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from trainings import mlp

import tensortap
import tensortap.pytorch as smd
from tensortap.exceptions import RunExistsError

HERE = Path(__file__).parent


def run_python(script: str, *arguments: str, status: int = 0) -> str:
    """What a script prints in an interpreter of its own."""
    places = [str(HERE), str(HERE.parent), str(Path(tensortap.__file__).parents[1])]
    environment = {"PYTHONPATH": ":".join(places), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == status, done.stderr
    return done.stdout


def test_a_copy_of_a_hooked_model_trains_unseen(tmp_path: Path) -> None:
    """Averaged weights, target networks and snapshots are copies made in the middle of a step."""
    copies: list[nn.Module] = []

    def train(model: nn.Module, hook: smd.Hook | None) -> list[torch.Tensor]:
        copies.clear()
        losses = fit(model, 1)
        model(torch.ones(2, 4)).sum()  # a step is open, everything is attached
        copies.extend([copy.deepcopy(model), pickle.loads(pickle.dumps(model))])
        averaged = torch.optim.swa_utils.AveragedModel(model)
        averaged.update_parameters(model)
        for twin in copies:
            losses += fit(twin, 2)
        return [*losses, averaged(torch.ones(2, 4)).detach().sum(), *fit(model, 1)]

    run = train_twice(tmp_path / "run", lambda: mlp(4, 8, 1), train)
    assert run.trial.steps() == [0, 1, 2]
    assert run.steps("gradient/Sequential_0.weight") == [0, 2]
    assert run.trial.tensor_names(regex="output_1") == []


def test_a_pickled_model_needs_no_tensortap(tmp_path: Path) -> None:
    hook = open_hook(tmp_path / "run")
    model = mlp(4, 8, 1)
    hook.register_module(model)
    model(torch.ones(2, 4)).sum().backward()
    torch.save(model, tmp_path / "model.pt")
    hook.close()
    script = """
        import sys
        sys.modules["tensortap"] = None  # as if it were not installed: importing it, or a part, fails
        import torch
        try:
            import tensortap.pytorch
        except ImportError:
            pass
        else:
            sys.exit("tensortap can be imported here")
        model = torch.load(sys.argv[1], weights_only=False)
        model(torch.ones(2, 4)).sum().backward()
        print(model(torch.ones(2, 4)).sum().item())
    """
    printed = run_python(script, str(tmp_path / "model.pt"))
    assert float(printed) == model(torch.ones(2, 4)).sum().item()


def test_state_dicts_do_not_know_of_the_hook(tmp_path: Path) -> None:
    plain, hooked = mlp(4, 8, 1), mlp(4, 8, 1)
    hook = open_hook(tmp_path / "run")
    hook.register_module(hooked)
    optimizer = torch.optim.Adam(hooked.parameters())
    fit(hooked, 2, optimizer=optimizer)
    torch.save({"model": hooked.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "c")
    loaded = torch.load(tmp_path / "c", weights_only=True)
    assert loaded["model"].keys() == plain.state_dict().keys()
    hooked.load_state_dict(loaded["model"])
    fit(hooked, 1, optimizer=optimizer)
    hook.close()
    assert smd.create_trial(tmp_path / "run").steps() == [0, 1, 2]


def test_two_hooks_record_one_training_each_its_own_way(tmp_path: Path) -> None:
    other: list[smd.Hook] = []

    def train(model: nn.Module, hook: smd.Hook | None) -> list[torch.Tensor]:
        if hook is not None:
            other[:] = [
                open_hook(
                    tmp_path / "other",
                    include_collections=["gradients"],
                    save_config=smd.SaveConfig(save_interval=2),
                )
            ]
            other[0].register_module(model)
        losses = fit(model, 5)
        if hook is not None:
            other[0].close()
        return losses

    run = train_twice(tmp_path / "run", lambda: mlp(4, 8, 1), train)
    second = smd.create_trial(tmp_path / "other")
    assert run.trial.steps() == [0, 1, 2, 3, 4]
    assert second.steps() == [0, 2, 4]
    name = "gradient/Sequential_0.weight"
    assert second.tensor_names(collection="gradients") == sorted(
        run.trial.tensor_names(collection="gradients")
    )
    assert second.tensor_names(collection="weights") == []
    for step in (0, 2, 4):
        np.testing.assert_array_equal(run.value(name, step), second.tensor(name).value(step))


def test_two_trainings_in_one_process_do_not_mix(tmp_path: Path) -> None:
    """Each hook looks at its own model and at the optimizers of that model only."""
    hooks = [open_hook(tmp_path / name) for name in "ab"]
    models = [mlp(4, 8, 1), mlp(4, 8, 1)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    for hook, model in zip(hooks, models, strict=True):
        hook.register_module(model)
    expected: list[list[torch.Tensor]] = [[], []]
    for step in range(6):
        turn = 0 if step < 4 else 1
        optimizers[turn].zero_grad()
        models[turn](torch.randn(5, 4)).pow(2).mean().backward()
        expected[turn].append(models[turn][0].weight.grad.clone())
        optimizers[turn].step()
    for hook in hooks:
        hook.close()
    for name, gradients in zip("ab", expected, strict=True):
        gradient = smd.create_trial(tmp_path / name).tensor("gradient/Sequential_0.weight")
        assert gradient.steps() == list(range(len(gradients)))
        for step, value in enumerate(gradients):
            np.testing.assert_array_equal(gradient.value(step), value)


def test_attached_detached_and_attached_again_as_in_a_notebook(tmp_path: Path) -> None:
    """A cell that runs again: the run is there already and is refused, with what to do; nothing piles up."""
    model = mlp(4, 8, 1)
    before = hooks_on(model)
    for attempt in range(3):
        if attempt == 0:
            hook = open_hook(tmp_path / "run")
        else:
            with pytest.raises(RunExistsError, match="resume=True"):
                open_hook(tmp_path / "run")
            hook = open_hook(tmp_path / "run", resume=True)
        hook.register_module(model)
        with pytest.raises(KeyboardInterrupt):
            fit(model, 3, before_step=interrupt_at_two)
        hook.close()
        assert hooks_on(model) == before
    trial = smd.create_trial(tmp_path / "run")
    assert trial.steps() == list(range(9))
    assert trial.tensor_names(regex="output_1") == []


def interrupt_at_two(step: int) -> None:
    if step == 2:
        raise KeyboardInterrupt


def test_a_second_hook_takes_over_where_the_first_was_forgotten(tmp_path: Path) -> None:
    """Nobody closed the first one, and nothing refers to it any more."""
    model = mlp(4, 8, 1)
    before = hooks_on(model)
    hook = open_hook(tmp_path / "first")
    hook.register_module(model)
    fit(model, 2)
    del hook
    gc.collect()
    assert hooks_on(model) == before
    with open_hook(tmp_path / "second") as hook:
        hook.register_module(model)
        fit(model, 2)
    assert smd.create_trial(tmp_path / "second").steps() == [0, 1]
    assert smd.create_trial(tmp_path / "second").tensor_names(regex="output_1") == []
    assert smd.create_trial(tmp_path / "first").steps() == [0, 1]


UNCLOSED = """
    import sys
    import torch
    from oracle import fit, open_hook
    from trainings import mlp

    def start(name):
        model = mlp(4, 8, 1)
        hook = open_hook(f"{sys.argv[1]}/{name}")
        hook.register_module(model)
        fit(model, 7)
        return model, hook

    kept = start("kept")
    model, hook = start("cycle")
    model.hook = hook
    hook.model = model
    del model, hook
    model, hook = start("raised")
    sys.excepthook = lambda *exception: print("uncaught")
    loss = model(torch.full((2, 4), float("nan"))).sum()
    loss.backward()
    assert torch.isfinite(loss)
"""


def test_an_interpreter_that_ends_without_close_loses_nothing(tmp_path: Path) -> None:
    """Hooks that are referred to, that refer to themselves, and one whose training has just failed."""
    assert run_python(UNCLOSED, str(tmp_path), status=1) == "uncaught\n"
    for name, count in {"kept": 7, "cycle": 7, "raised": 8}.items():
        trial = smd.create_trial(tmp_path / name)
        assert trial.steps() == list(range(count))
        assert trial.tensor("gradient/Sequential_0.weight").steps()[:7] == list(range(7))
    output = smd.create_trial(tmp_path / "raised").tensor("Sequential_output_0")
    assert output.statistics(7).nan_count == 2


def test_forked_loader_workers_leave_the_run_alone(tmp_path: Path) -> None:
    class Featurized(TensorDataset):
        """Its items are made by a model, in the workers."""

        def __init__(self, model: nn.Module) -> None:
            super().__init__(torch.arange(24.0).reshape(6, 4))
            self.model = model

        def __getitem__(self, index: int) -> torch.Tensor:
            with torch.no_grad():
                return self.model(super().__getitem__(index)[0])

    def make() -> list[nn.Module]:
        return [mlp(4, 4), mlp(4, 8, 1)]

    def train(made: list[nn.Module], hook: smd.Hook | None) -> list[torch.Tensor]:
        loader = DataLoader(Featurized(made[0]), batch_size=2, num_workers=2, shuffle=True)
        losses = []
        for _ in range(2):
            batches = iter(loader)
            losses += fit(made[1], 3, batch=lambda batches=batches: next(batches))
        return losses

    run = train_twice(tmp_path / "run", make, train)
    assert run.trial.steps() == list(range(6))
    assert run.trial.workers() == ["worker_0"]
    assert run.trial.tensor_names(regex="output_1") == []


def test_resumed_from_a_checkpoint_the_later_value_counts(tmp_path: Path) -> None:
    """Trained to step 15, resumed from the checkpoint of step 10 and trained to step 20."""
    model = mlp(4, 8, 1)
    with open_hook(tmp_path / "run") as hook:
        hook.register_module(model)
        fit(model, 10)
        checkpoint = copy.deepcopy(model.state_dict())
        fit(model, 5)
    model = mlp(4, 8, 1)
    model.load_state_dict(checkpoint)
    with open_hook(tmp_path / "run", resume=True) as hook:
        hook.register_module(model)
        fit(model, 10)
    trial = smd.create_trial(tmp_path / "run")
    weight = trial.tensor("Sequential_0.weight")
    assert weight.steps() == trial.steps()
    assert len(set(weight.steps())) == len(weight.steps())
    first_resumed = weight.steps()[15]
    np.testing.assert_array_equal(weight.value(first_resumed), checkpoint["0.weight"])


def resident_kib() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1024


def test_an_output_is_let_go_with_its_graph(tmp_path: Path) -> None:
    alive: list[Any] = []

    class Note(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
            context.payload = Payload()
            alive.append(torch._C._functions)
            return x * 1

        @staticmethod
        def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient

    class Payload:
        count = 0

        def __init__(self) -> None:
            Payload.count += 1

        def __del__(self) -> None:
            Payload.count -= 1

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Note.apply(self.layer(x))

    with open_hook(tmp_path / "run") as hook:
        model = Model()
        hook.register_module(model)
        for _ in range(3):
            model(torch.ones(2, 4))
            gc.collect()
            assert Payload.count == 0


def test_steps_do_not_get_slower(tmp_path: Path) -> None:
    model = mlp(4, 8, 1)
    hook = open_hook(tmp_path / "run", strict=False, **every_step(save_raw_tensor=False))
    hook.register_module(model)
    blocks = []
    for _ in range(10):
        begun = time.process_time()
        fit(model, 200, batch=lambda: torch.ones(2, 4))
        blocks.append(time.process_time() - begun)
    hook.close()
    # Processor time, and the quickest of a few: what else runs on the machine only ever adds.
    assert min(blocks[-4:]) < 2 * min(blocks[1:5])


def test_switched_off_there_is_no_hook_no_thread_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORTAP_DISABLE", "1")
    threads = threading.active_count()
    tasks = len(list(Path("/proc/self/task").iterdir()))
    model = mlp(4, 8, 1)
    before = hooks_on(model)
    hook = open_hook(tmp_path / "run")
    hook.register_module(model)
    hook.register_loss(nn.MSELoss())
    assert hooks_on(model) == before
    fit(model, 2)
    hook.set_mode(smd.modes.EVAL)
    hook.record_tensor_value("loss", torch.ones(()))
    hook.save_tensor("x", torch.ones(2))
    assert hook.flush()
    hook.close()
    assert not (tmp_path / "run").exists()
    assert threading.active_count() == threads
    assert len(list(Path("/proc/self/task").iterdir())) == tasks


def test_an_ordinary_training_says_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO, logger="tensortap"):
        model = mlp(4, 8, 1)
        with open_hook(tmp_path / "run", strict=False) as hook:
            hook.register_module(model)
            for mode in (smd.modes.TRAIN, smd.modes.EVAL, smd.modes.TRAIN):
                hook.set_mode(mode)
                fit(model, 10)
    printed = capfd.readouterr()
    assert len(caplog.records) <= 3
    assert len((printed.out + printed.err).splitlines()) <= 3
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_one_value_a_name_and_step(tmp_path: Path) -> None:
    """A loss that its module's hook records, and the script once more under the same name: the later one counts."""
    criterion = nn.MSELoss()
    model = mlp(4, 8, 1)
    with open_hook(tmp_path / "run") as hook:
        hook.register_module(model)
        hook.register_loss(criterion)
        for _ in range(3):
            loss = criterion(model(torch.randn(5, 4)), torch.ones(5, 1))
            hook.record_tensor_value("MSELoss", loss * 2)
            hook.save_tensor("loss_twice", torch.ones(2))
            hook.save_tensor("loss_twice", torch.full((2,), 5.0))
            loss.backward()
    trial = smd.create_trial(tmp_path / "run")
    steps, values = trial.tensor("MSELoss_output_0").column("mean")
    assert list(steps) == [0, 1, 2]
    assert len(values) == 3
    twice = trial.tensor("loss_twice")
    assert twice.steps() == [0, 1, 2]
    np.testing.assert_array_equal(twice.value(1), [5.0, 5.0])


def test_memory_stays_flat_over_double_backward_steps(tmp_path: Path) -> None:
    model = mlp(16, 16, 1, activation=nn.Tanh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def penalized(steps: int) -> int:
        for _ in range(steps):
            x = torch.ones(64, 16, requires_grad=True)
            (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
            optimizer.zero_grad()
            (slope.norm() - 1).pow(2).backward()
            optimizer.step()
        hook.flush()
        gc.collect()
        return resident_kib()

    with open_hook(tmp_path / "run", **every_step(save_raw_tensor=False)) as hook:
        hook.register_module(model)
        before = penalized(200)
        assert penalized(800) - before < 2048


def test_capturing_everything_holds_no_activation(tmp_path: Path) -> None:
    """24 blocks without gradients: while they run, only the newest outputs are alive."""
    alive = peak = 0

    def born(module: nn.Module, args: Any, output: torch.Tensor) -> None:
        nonlocal alive, peak
        alive += 1
        peak = max(peak, alive)
        weakref.finalize(output, died)

    def died() -> None:
        nonlocal alive
        alive -= 1

    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(24)))
    with open_hook(tmp_path / "run", **every_step(save_raw_tensor=False)) as hook:
        hook.register_module(model)
        for module in model:
            module.register_forward_hook(born)
        with torch.no_grad():
            model(torch.ones(4, 8))
            model(torch.ones(4, 8))
    assert smd.create_trial(tmp_path / "run").tensor("23_output_0").steps() == [0, 1]
    assert peak <= 3


def test_a_writer_that_falls_behind_drops_whole_steps_and_counts_them(tmp_path: Path) -> None:
    def train(model: nn.Module, hook: smd.Hook | None) -> list[torch.Tensor]:
        return fit(model, 40, batch=lambda: torch.ones(2, 256))

    run = train_twice(
        tmp_path / "run",
        lambda: mlp(256, 512, 1),
        train,
        backpressure="drop",
        queue_bytes=1 << 20,
    )
    counters = run.hook.counters()
    assert counters["written_steps"] + counters["dropped_steps"] == 40
    steps = run.trial.steps()
    assert len(steps) == counters["written_steps"] > 0
    # What is there is whole.
    assert {len(run.trial.tensor_names(step=step)) for step in steps[1:-1]} <= {
        len(run.trial.tensor_names(step=steps[1]))
    }


@pytest.mark.parametrize(
    "arguments",
    [
        {"include_collections": ["losses"]},
        {"include_collections": ["weights", "biases", "gradients"]},
        {"include_regex": ["relu", "^0_"]},
        {"save_all": True, **every_step(save_raw_tensor=False)},
        {"save_all": True, "save_config": smd.SaveConfig(save_interval=3, start_step=2)},
        {"save_all": True, "save_config": smd.SaveConfig(save_steps=[0, 5])},
        {"save_all": True, "dry_run": True},
        {"save_all": True, "compute_threads": 2},
        {"save_all": True, "rules": ["VanishingGradient", "ExplodingTensor"]},
        {"include_collections": ["all", "optimizer_variables"]},
    ],
    ids=lambda arguments: "-".join(map(str, arguments)),
)
def test_no_configuration_changes_the_training(tmp_path: Path, arguments: dict[str, Any]) -> None:
    """Dropout and batch norm, so that a random number or a statistic taken too often shows."""

    def make() -> nn.Module:
        return nn.Sequential(
            nn.Linear(4, 16),
            nn.BatchNorm1d(16),
            nn.ReLU(inplace=True),
            nn.Dropout(0.4),
            nn.Linear(16, 1),
        )

    def train(model: nn.Module, hook: smd.Hook | None) -> list[torch.Tensor]:
        losses = fit(model, 6, optimizer=torch.optim.AdamW(model.parameters(), lr=0.01))
        if hook is not None:
            hook.set_mode(smd.modes.EVAL)
        model.eval()
        with torch.no_grad():
            losses.append(model(torch.randn(5, 4)).sum())
        model.train()
        if hook is not None:
            hook.set_mode(smd.modes.TRAIN)
        return losses + fit(model, 3)

    train_twice(tmp_path / "run", make, train, **arguments)
