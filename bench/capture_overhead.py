"""What the PyTorch hook costs a training.

A row runs one model in alternating blocks of steps, with a hook and without, and compares the
median step time of a hooked block with those of its two neighbours. The first steps of a block are not
counted: they pay for the block before (the writer thread, caches). Prints one JSON object:
measurement -> number.

    python bench/capture_overhead.py [--only NAME ...] [--seconds 15]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import models
import torch

if TYPE_CHECKING:
    from tensortap.pytorch import Hook

NEVER = 1 << 40


def open_hook(training: models.Training, out_dir: str, interval: int = 1, **arguments: Any) -> Hook:
    """Attach a hook that records statistics only, of weights, biases, gradients and losses."""
    # Here, so that a process that measures memory without a hook is without Tensortap.
    from tensortap.pytorch import Hook, ReductionConfig, SaveConfig

    hook = Hook(
        out_dir,
        save_config=SaveConfig(save_interval=interval, start_step=0 if interval < NEVER else 1),
        reduction_config=ReductionConfig(),
        include_collections=["weights", "biases", "gradients", "losses"],
        **arguments,
    )
    hook.register_module(training.model)
    hook.register_loss(training.criterion)
    return hook


def time_steps(step: Callable[[], None], count: int, skip: int) -> list[float]:
    """Seconds of each of `count` steps, after `skip` that are not counted."""
    for _ in range(skip):
        step()
    times = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return times


def compare(
    training: models.Training,
    seconds: float,
    interval: int = 1,
    **hook_arguments: Any,
) -> tuple[float, float]:
    """Median seconds of a step without a hook, and the median of what a hook adds to it."""
    step = training.step
    # Short blocks: a disturbance of the machine should meet a hooked block and its neighbours alike.
    skip = 3
    count = 4 if statistics.median(time_steps(step, 5, skip=5)) > 0.1 else 10
    plain = [statistics.median(time_steps(step, count, skip))]
    extra: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(extra) < 3:
        with (
            tempfile.TemporaryDirectory() as out_dir,
            open_hook(training, f"{out_dir}/run", interval, **hook_arguments) as hook,
        ):
            hooked = statistics.median(time_steps(step, count, skip))
            if hook.fault_count or hook.counters()["dropped_steps"] or hook.step < count:
                raise RuntimeError(f"the hook did not record every step: {hook.counters()}")
        plain.append(statistics.median(time_steps(step, count, skip)))
        # Against the blocks before and after, so that a machine that slows down does not count.
        extra.append(hooked - (plain[-1] + plain[-2]) / 2)
    return statistics.median(plain), statistics.median(extra)


def idle(seconds: float) -> dict[str, float]:
    """Hook registered, nothing due: the cost depends on the number of modules, not their size.

    Microseconds in a step of milliseconds: two twins take turns step by step, and change roles, since
    one of them may lie better in memory. One thread, since tensors this small are not shared out.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    twins = [models.tiny_transformer(), models.tiny_transformer()]
    extra = []
    for plain, hooked in (twins, twins[::-1]):
        differences = []
        with (
            tempfile.TemporaryDirectory() as out_dir,
            open_hook(hooked, f"{out_dir}/run", NEVER) as hook,
        ):
            end = time.perf_counter() + seconds / 2
            while time.perf_counter() < end:
                (without,) = time_steps(plain.step, count=1, skip=0)
                (with_hook,) = time_steps(hooked.step, count=1, skip=0)
                differences.append(with_hook - without)
            if hook.fault_count or hook.step < len(differences) - 1:
                raise RuntimeError("the hook did not see every step")
        extra.append(statistics.median(differences))
    torch.set_num_threads(threads)
    return {"idle_us": statistics.mean(extra) * 1e6}


def transformer(seconds: float) -> dict[str, float]:
    """Statistics of all weights and gradients at every step."""
    plain, extra = compare(models.transformer(), seconds)
    return {"transformer_ratio": 1 + extra / plain, "transformer_step_ms": plain * 1e3}


def outputs(seconds: float) -> dict[str, float]:
    """The same plus the inputs and outputs of all modules."""
    plain, extra = compare(models.transformer(), seconds, save_all=True)
    return {"outputs_ratio": 1 + extra / plain}


def mlp(seconds: float) -> dict[str, float]:
    """Extra time of a step in kernel passes over the same bytes: one thread, with histogram."""
    from tensortap import _core

    training = models.mlp()
    plain, extra = compare(training, seconds)
    tensors = []
    for parameter in training.model.parameters():
        tensors += [parameter.detach(), parameter.grad]
    float32 = _core.dtype_code("float32")
    passes = []
    for _ in range(30):
        start = time.perf_counter()
        for tensor in tensors:
            _core.compute_statistics(
                tensor.data_ptr(), float32, tuple(tensor.shape), histogram=True
            )
        passes.append(time.perf_counter() - start)
    kernel = statistics.median(passes)
    return {
        "mlp_passes": extra / kernel,
        "mlp_ratio": 1 + extra / plain,
        "mlp_pass_ms": kernel * 1e3,
        "mlp_step_ms": plain * 1e3,
    }


def cnn(seconds: float) -> dict[str, float]:
    """Weights, gradients and losses of a small CNN at every step."""
    plain, extra = compare(models.cnn(), seconds)
    return {"cnn_ratio": 1 + extra / plain, "cnn_step_ms": plain * 1e3}


def memory(seconds: float) -> dict[str, float]:
    """Resident memory of a whole training process with Tensortap minus one without."""
    del seconds

    def resident_mib(with_hook: str) -> float:
        command = [sys.executable, __file__, "--resident", with_hook]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    pairs = [(resident_mib("no"), resident_mib("yes")) for _ in range(3)]
    plain, hooked = (statistics.median(side) for side in zip(*pairs, strict=True))
    return {"resident_mib": hooked - plain}


def print_resident(with_hook: bool) -> None:
    """Train 12 steps of the transformer in this process, then print its resident memory in MiB."""
    training = models.transformer()
    with tempfile.TemporaryDirectory() as out_dir:
        if with_hook:
            hook = open_hook(training, f"{out_dir}/run")
        for _ in range(12):
            training.step()
        status = Path("/proc/self/status").read_text()
        kib = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
        print(int(kib) / 1024)
        if with_hook:
            hook.close()


MEASUREMENTS = {f.__name__: f for f in (idle, transformer, outputs, mlp, cnn, memory)}


def main() -> None:
    """Run the measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=MEASUREMENTS, default=list(MEASUREMENTS))
    parser.add_argument("--seconds", type=float, default=15.0, help="for each measurement")
    parser.add_argument("--resident", choices=["yes", "no"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.resident:
        print_resident(arguments.resident == "yes")
        return
    results: dict[str, float] = {}
    for name in arguments.only:
        print(f"measuring {name}", file=sys.stderr, flush=True)
        results |= MEASUREMENTS[name](arguments.seconds)
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
