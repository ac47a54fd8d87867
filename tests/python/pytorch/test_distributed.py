"""Several processes or replicas: whose gradients, under which names, and who writes."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from oracle import assert_same, fit, hooks_on, open_hook, outcome_of, seed_everything, train_twice
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from trainings import mlp

import tensortap.pytorch as smd
from tensortap._launchers import launched_rank
from tensortap.exceptions import InvalidWorker

GRADIENT = "gradient/Sequential_0.weight"


@pytest.mark.parametrize("registered", ["wrapper", "inner"])
@pytest.mark.parametrize("called", ["wrapper", "inner"])
def test_data_parallel_keeps_the_names_of_the_model(
    tmp_path: Path, registered: str, called: str
) -> None:
    def train(model: nn.Sequential, hook: smd.Hook | None) -> list[torch.Tensor]:
        wrapper = nn.DataParallel(model)
        if hook is not None:
            attributes = {name: set(vars(module)) for name, module in wrapper.named_modules()}
            hook.register_module(wrapper if registered == "wrapper" else model)
            for name, module in wrapper.named_modules():
                assert set(vars(module)) == attributes[name]
        return fit(wrapper if called == "wrapper" else model, 3)

    run = train_twice(
        tmp_path / "run", lambda: mlp(4, 8, 1), train, register=lambda hook, made: None
    )
    assert run.trial.steps() == [0, 1, 2]
    assert run.steps(GRADIENT) == run.steps("Sequential_0.weight") == [0, 1, 2]
    assert run.trial.tensor_names(regex="_output_") == sorted(
        ["Sequential_output_0", "0_output_0", "1_output_0", "2_output_0"]
    )


def in_ranks(work: Callable[..., None], directory: Path, *arguments: Any) -> None:
    """Run ``work(rank, directory, ...)`` in two processes of one gloo group; they share this one's imports."""
    torch.multiprocessing.start_processes(
        _in_rank,
        args=(work, directory, *arguments),
        nprocs=2,
        start_method="fork",
    )


def _in_rank(rank: int, work: Callable[..., None], directory: Path, *arguments: Any) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(directory / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    try:
        work(rank, directory, *arguments)
        dist.barrier()
    finally:
        dist.destroy_process_group()


def train_rank(model: nn.Module, rank: int, steps: int = 4) -> list[torch.Tensor]:
    """Train on data of the rank's own."""
    generator = torch.Generator().manual_seed(100 + rank)
    return fit(model, steps, batch=lambda: torch.randn(5, 4, generator=generator))


def ddp_twice(rank: int, directory: Path, attached: str, workers: str) -> None:
    seed_everything()
    model = mlp(4, 8, 1)
    plain = outcome_of(model, train_rank(DistributedDataParallel(model), rank))
    before = hooks_on(model)

    seed_everything()
    model = mlp(4, 8, 1)
    hook = open_hook(directory / "run", include_workers=workers)
    if attached == "before":
        hook.register_module(model)
    wrapper = DistributedDataParallel(model)
    if attached == "after":
        hook.register_module(wrapper)
    losses = train_rank(wrapper, rank)
    hook.close()
    assert hook.fault_count == 0
    assert_same(plain, outcome_of(model, losses))
    assert hooks_on(model) == before
    np.save(directory / f"gradient{rank}.npy", model[0].weight.grad.numpy())


@pytest.mark.parametrize("attached", ["before", "after"])
@pytest.mark.parametrize("workers", ["one", "all"])
def test_ddp_records_averaged_gradients_under_the_names_of_the_model(
    tmp_path: Path, attached: str, workers: str
) -> None:
    in_ranks(ddp_twice, tmp_path, attached, workers)
    trial = smd.create_trial(tmp_path / "run")
    ranks = range(1 if workers == "one" else 2)
    assert trial.workers() == [f"worker_{rank}" for rank in ranks]
    assert trial.steps() == [0, 1, 2, 3]
    assert trial.tensor_names(regex="module|DistributedDataParallel") == []
    averaged = np.load(tmp_path / "gradient0.npy")
    np.testing.assert_array_equal(averaged, np.load(tmp_path / "gradient1.npy"))
    for rank in ranks:
        worker = f"worker_{rank}"
        np.testing.assert_array_equal(trial.tensor(GRADIENT).value(3, worker=worker), averaged)
    if workers == "all":
        inputs = [
            trial.tensor("Sequential_input_0").value(2, worker=f"worker_{rank}") for rank in ranks
        ]
        weights = [
            trial.tensor("Sequential_0.weight").value(2, worker=f"worker_{rank}") for rank in ranks
        ]
        assert not np.array_equal(*inputs)
        np.testing.assert_array_equal(*weights)


def ddp_accumulating(rank: int, directory: Path) -> None:
    torch.manual_seed(3)
    model = mlp(4, 8, 1)
    wrapper = DistributedDataParallel(model)
    hook = open_hook(directory / "run", include_workers="all")
    hook.register_module(wrapper)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    for micro in range(4):
        is_last = micro % 2 == 1
        with nullcontext() if is_last else wrapper.no_sync():
            wrapper(torch.randn(5, 4) + rank).pow(2).mean().backward()
        seen.append(model[0].weight.grad.clone())
        if is_last:
            optimizer.step()
            optimizer.zero_grad()
    hook.close()
    torch.save(seen, directory / f"seen{rank}.pt")


def test_ddp_without_synchronization_has_the_rank_s_own_gradient(tmp_path: Path) -> None:
    in_ranks(ddp_accumulating, tmp_path)
    gradient = smd.create_trial(tmp_path / "run").tensor(GRADIENT)
    seen = [torch.load(tmp_path / f"seen{rank}.pt") for rank in range(2)]
    for step in range(4):
        values = [gradient.value(step, worker=f"worker_{rank}") for rank in range(2)]
        for rank in range(2):
            np.testing.assert_array_equal(values[rank], seen[rank][step])
        assert np.array_equal(*values) == (step % 2 == 1)


def fsdp_twice(rank: int, directory: Path, variant: str) -> None:
    def wrapped(model: nn.Module) -> nn.Module:
        if variant.startswith("fully_shard"):
            from torch.distributed.fsdp import fully_shard

            mesh = dist.init_device_mesh("cpu", (2,))
            fully_shard(model[0], mesh=mesh)
            return fully_shard(model, mesh=mesh)
        from torch.distributed.fsdp import FullyShardedDataParallel

        return FullyShardedDataParallel(
            model, device_id=torch.device("cpu"), use_orig_params=variant == "original_parameters"
        )

    outcomes = []
    for hooked in (False, True):
        seed_everything()
        model = mlp(4, 8, 1)
        if hooked:
            hook = open_hook(directory / "run", include_workers="all")
        if hooked and variant == "fully_sharded_later":
            hook.register_module(model)
        model = wrapped(model)
        if hooked and variant != "fully_sharded_later":
            hook.register_module(model)
        losses = train_rank(model, rank)
        if hooked:
            hook.close()
            assert hook.fault_count == 0
        local = [getattr(p, "to_local", lambda p=p: p)().detach() for p in model.parameters()]
        outcomes.append(([float(loss) for loss in losses], [p.clone() for p in local]))
    assert outcomes[0][0] == outcomes[1][0]
    assert all(torch.equal(*pair) for pair in zip(outcomes[0][1], outcomes[1][1], strict=True))
    norm = sum(p.grad.double().pow(2).sum() for p in model.parameters() if p.grad is not None)
    full = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
    if not variant.startswith("fully_shard"):
        dist.all_reduce(full)
    if rank == 0:
        np.save(directory / "norm.npy", full.sqrt().item())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "variant", ["fully_shard", "fully_sharded_later", "original_parameters", "flat_parameters"]
)
def test_fsdp_shards_are_recorded_by_the_rank_that_holds_them(tmp_path: Path, variant: str) -> None:
    in_ranks(fsdp_twice, tmp_path, variant)
    trial = smd.create_trial(tmp_path / "run")
    assert trial.steps() == [0, 1, 2, 3]
    names = trial.tensor_names(collection="gradients")
    if variant != "flat_parameters":
        assert names == [
            f"gradient/Sequential_{layer}.{kind}" for layer in (0, 2) for kind in ("bias", "weight")
        ]
    squares = 0.0
    for name in names:
        for rank in range(2):
            # A rank may hold nothing of a small parameter.
            with suppress(InvalidWorker):
                row = trial.tensor(name).statistics(3, worker=f"worker_{rank}")
                squares += row.l2**2 if row.count else 0.0
    assert squares**0.5 == pytest.approx(float(np.load(tmp_path / "norm.npy")), rel=1e-5)


def launched(index: int, directory: Path) -> None:
    os.environ.update(RANK=str(index), WORLD_SIZE="2")
    for workers in ("one", "all"):
        model = mlp(4, 8, 1)
        hook = open_hook(directory / workers, include_workers=workers)
        hook.register_module(model)
        fit(model, 2)
        hook.close()


def test_a_launcher_s_variables_tell_the_rank_without_a_process_group(tmp_path: Path) -> None:
    torch.multiprocessing.start_processes(launched, args=(tmp_path,), nprocs=2, start_method="fork")
    assert smd.create_trial(tmp_path / "one").workers() == ["worker_0"]
    assert smd.create_trial(tmp_path / "all").workers() == ["worker_0", "worker_1"]


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ({}, 0),
        ({"RANK": "3", "WORLD_SIZE": "4", "SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, 3),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, 1),
        ({"PMI_RANK": "2", "PMI_SIZE": "3"}, 2),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "8"}, 5),
        ({"RANK": "1", "WORLD_SIZE": "1"}, 0),
        ({"RANK": "first", "WORLD_SIZE": "two"}, 0),
    ],
)
def test_launchers_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], rank: int
) -> None:
    monkeypatch.setattr(os, "environ", variables)
    assert launched_rank() == rank
