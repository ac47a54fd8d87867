"""Measures every peer on every model, each in a process and an environment of its own, and prints a Markdown table.

`make peers` makes the environments first. Nothing else may run meanwhile: docs/performance.md.

    python bench/peers/run.py [--only PEER ...] [--models MODEL ...] [--write docs/performance.md]
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ENVIRONMENTS = ROOT / "build" / "peers"

# peer -> what the table calls it, and the interpreter of its environment
PEERS = {
    "tensortap_statistics": ("tensortap, all statistics and histograms", sys.executable),
    "smdebug_reductions": ("smdebug, its 9 reductions", ENVIRONMENTS / "smdebug/bin/python"),
    "tensorboard": ("TensorBoard, `add_histogram`", ENVIRONMENTS / "trackers/bin/python"),
    "wandb": ('wandb, `watch(log="all")`, offline', ENVIRONMENTS / "trackers/bin/python"),
    "tensortap_raw": ("tensortap, raw values too", sys.executable),
    "smdebug_raw": ("smdebug, raw values (its default)", ENVIRONMENTS / "smdebug/bin/python"),
}
MODELS = {
    "transformer": "transformer, 12 layers, 10M parameters",
    "mlp": "MLP, 10M parameters",
    "cnn": "CNN, 62k parameters",
}
BEGIN, END = "<!-- measured by bench/peers/run.py -->", "<!-- end of the table -->"


def measure(peer: str, model: str) -> dict[str, Any] | None:
    """One row, or None where the peer failed; its words go to stderr."""
    print(f"measuring {peer} on {model}", file=sys.stderr, flush=True)
    command = [str(PEERS[peer][1]), "-W", "ignore", str(HERE / "measure.py"), peer, model]
    answer = subprocess.run(command, capture_output=True, text=True)
    for line in answer.stdout.splitlines():
        if line.startswith("RESULT "):
            return json.loads(line.removeprefix("RESULT "))
    print(answer.stdout[-2000:], answer.stderr[-2000:], sep="\n", file=sys.stderr)
    return None


def size(number: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} GB"


def table(rows: dict[tuple[str, str], dict[str, Any] | None]) -> list[str]:
    """Lines of Markdown, model by model."""
    lines = [
        "| model | peer | every step | every 10th | on disk a recorded step | files a recorded step |",
        "|---|---|---|---|---|---|",
    ]
    last = ""
    for (peer, model), row in rows.items():
        name = f"{MODELS[model]}, {row['plain_ms']:.3g} ms a step" if row else MODELS[model]
        head = "" if model == last else name
        last = model
        cells = ["failed"] * 4
        if row is not None:
            files = row["files_a_step"]
            cells = [
                f"{row['ratio_every_step']:.2f}",
                f"{row['ratio_every_10th']:.2f}",
                size(row["bytes_a_step"]),
                f"{files:.0f}" if files >= 1 else "fewer than 1",
            ]
        lines.append(f"| {head} | {PEERS[peer][0]} | {' | '.join(cells)} |")
    return lines


def write(path: Path, lines: list[str]) -> None:
    """Put the table between its marks."""
    text = path.read_text()
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    path.write_text("\n".join([head + BEGIN, *lines, END]) + tail)


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--write", type=Path, help="put the table into this file too")
    arguments = parser.parse_args()

    rows = {
        (peer, model): measure(peer, model) for model in arguments.models for peer in arguments.only
    }
    today = datetime.datetime.now(datetime.timezone.utc).date()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, no GPU, {today}."
    lines = ["", f"{machine} Ratios to the same training without a hook.", "", *table(rows), ""]
    print("\n".join(lines))
    if arguments.write:
        write(arguments.write, lines)
    return 1 if None in rows.values() else 0


if __name__ == "__main__":
    sys.exit(main())
