"""Measures one peer on one model, in the environment of the peer; prints one JSON object.

The training runs without a hook, then with it at every step, then at every 10th, then without again. Every
round trains a model of its own from the same seed, since not every peer lets go of a model. Times are
those of groups of steps; the first steps of a round are not counted.

    python bench/peers/measure.py PEER MODEL
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import models  # noqa: E402
from adapters import ADAPTERS, Adapter  # noqa: E402

INTERVALS = (1, 10)
# Seconds a round is given; one group of steps is measured in any case.
ROUND_SECONDS = 2.0
MAX_GROUPS = 20


def time_groups(step: Callable[[], None], group: int) -> tuple[float, int]:
    """Median seconds of a step in groups of `group` steps, and the number of steps in all."""
    for _ in range(group):
        step()
    count, times = group, []
    end = time.perf_counter() + ROUND_SECONDS
    while not times or (time.perf_counter() < end and len(times) < MAX_GROUPS):
        start = time.perf_counter()
        for _ in range(group):
            step()
        times.append((time.perf_counter() - start) / group)
        count += group
    return statistics.median(times), count


def measure_plain(model: str) -> float:
    """Seconds of a step without a hook."""
    return time_groups(getattr(models, model)().step, 5)[0]


def measure_hooked(adapter: Adapter, model: str, interval: int) -> tuple[float, int, int, int]:
    """Seconds of a step, recorded steps, bytes and files."""
    training = getattr(models, model)()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        after_step, close = adapter(training, directory, interval)

        def step() -> None:
            training.step()
            after_step()

        seconds, count = time_groups(step, 3 if interval == 1 else interval)
        close()
        files = [path for path in Path(directory).rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files)
    return seconds, -(-count // interval), size, len(files)


def main() -> None:
    """Measure and print."""
    peer, model = sys.argv[1:]
    adapter = ADAPTERS[peer]
    plain = [measure_plain(model)]
    often, seldom = (measure_hooked(adapter, model, interval) for interval in INTERVALS)
    plain.append(measure_plain(model))
    baseline = statistics.mean(plain)
    # What a run holds however short it is does not count.
    recorded = often[1] - seldom[1]
    result = {
        "peer": peer,
        "model": model,
        "plain_ms": baseline * 1e3,
        "ratio_every_step": often[0] / baseline,
        "ratio_every_10th": seldom[0] / baseline,
        "bytes_a_step": (often[2] - seldom[2]) / recorded,
        "files_a_step": (often[3] - seldom[3]) / recorded,
    }
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
