"""Measures the budgets: runs the C++ benchmarks and capture_overhead.py, judges by budgets.json.

Prints a table and writes bench/results.json. Ratios are taken within one run of one program; see
docs/performance.md. A missed budget is no error unless --strict is given.

    python bench/run.py [--build-dir build/release] [--only PART-OF-A-NAME]
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent

# A budget says where its number comes from in one of two ways:
#   "capture": KEY          of the object that capture_overhead.py prints
#   "program": NAME, "benchmark": NAME, "value": FIELD [, "over": BENCHMARK]
#                           FIELD of that Google Benchmark, over the same of `over`; times `scale`
Budget = dict[str, Any]
# program -> benchmark -> field -> number
Measured = dict[str, dict[str, dict[str, float]]]

NANOSECONDS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


def run_benchmarks(budgets: list[Budget], build_dir: Path) -> Measured:
    """Run each program once, with the benchmarks that the budgets name."""
    wanted: dict[str, set[str]] = {}
    for budget in budgets:
        if "program" in budget:
            names = {budget["benchmark"], budget.get("over", budget["benchmark"])}
            wanted.setdefault(budget["program"], set()).update(names)
    return {
        program: run_benchmark(build_dir / program, sorted(names))
        for program, names in wanted.items()
    }


def run_benchmark(program: Path, names: list[str]) -> dict[str, dict[str, float]]:
    """Medians of five interleaved repetitions, times in ns."""
    print(f"running {program.name}", file=sys.stderr, flush=True)
    pattern = "^(" + "|".join(re.escape(name) for name in names) + ")$"
    command = [
        str(program),
        f"--benchmark_filter={pattern}",
        "--benchmark_format=json",
        "--benchmark_repetitions=5",
        "--benchmark_enable_random_interleaving=true",
        "--benchmark_min_time=0.1",
    ]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    results = {}
    for row in json.loads(output)["benchmarks"]:
        if row.get("aggregate_name") == "median":
            fields = {key: value for key, value in row.items() if isinstance(value, int | float)}
            for key in ("real_time", "cpu_time"):
                fields[key] *= NANOSECONDS[row["time_unit"]]
            results[row["run_name"]] = fields
    return results


def run_capture() -> dict[str, float]:
    """What the PyTorch hook costs."""
    command = [sys.executable, str(HERE / "capture_overhead.py")]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def value_of(budget: Budget, benchmarks: Measured, capture: dict[str, float]) -> float | None:
    """The measured number, or None where this machine lacks what it takes (a SIMD target)."""
    if "capture" in budget:
        return capture[budget["capture"]]
    rows = benchmarks[budget["program"]]
    if budget["benchmark"] not in rows:
        return None
    value = rows[budget["benchmark"]][budget["value"]]
    if "over" in budget:
        value /= rows[budget["over"]][budget["value"]]
    return value * budget.get("scale", 1.0)


def judge(budget: Budget, measured: float | None) -> dict[str, Any]:
    """One line of results.json."""
    passes = None
    if measured is not None:
        at_most = budget.get("at_most", False)
        passes = measured <= budget["budget"] if at_most else measured >= budget["budget"]
    return {
        "name": budget["name"],
        "budget": budget["budget"],
        "measured": None if measured is None else float(f"{measured:.4g}"),
        "unit": budget["unit"],
        "pass": passes,
    }


def print_table(budgets: list[Budget], results: list[dict[str, Any]]) -> None:
    """Budget, measured, verdict."""
    verdicts = {True: "ok", False: "MISSED", None: "not on this machine"}
    width = max(len(result["name"]) for result in results)
    print(f"{'what':<{width}}  {'budget':>12}  {'measured':>10}  verdict")
    for budget, result in zip(budgets, results, strict=True):
        bound = ("<= " if budget.get("at_most") else ">= ") + f"{result['budget']:g}"
        measured = "-" if result["measured"] is None else f"{result['measured']:g}"
        line = f"{result['name']:<{width}}  {bound:>12}  {measured:>10}  {verdicts[result['pass']]}"
        print(f"{line}  ({result['unit']})")


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build-dir", type=Path, default=HERE.parent / "build" / "release")
    parser.add_argument("--only", default="", help="budgets with this in their name")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when one is missed")
    parser.add_argument("--output", type=Path, default=HERE / "results.json")
    arguments = parser.parse_args()

    budgets = json.loads((HERE / "budgets.json").read_text())
    budgets = [budget for budget in budgets if arguments.only in budget["name"]]
    if not budgets:
        print(f"no budget has {arguments.only!r} in its name", file=sys.stderr)
        return 2
    benchmarks = run_benchmarks(budgets, arguments.build_dir)
    capture = run_capture() if any("capture" in budget for budget in budgets) else {}
    results = [judge(budget, value_of(budget, benchmarks, capture)) for budget in budgets]
    print_table(budgets, results)
    arguments.output.write_text(json.dumps(results, indent=1) + "\n")
    missed = sum(result["pass"] is False for result in results)
    print(f"\n{missed} of {len(results)} budgets missed")
    return 1 if missed and arguments.strict else 0


if __name__ == "__main__":
    sys.exit(main())
