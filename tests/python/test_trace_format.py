"""The golden runs, read by a reader that knows the specification and nothing of the engine."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from naive_trace_reader import crc32c, read_segment

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "v1"
SEGMENT = Path("trace") / "worker_0" / "00000000.ttap"


def plain(value: Any) -> Any:
    """NaN as expected.json writes it; -0.0 told apart from 0.0."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value.hex()
    return value


def expected() -> Any:
    content = json.loads((GOLDEN / "expected.json").read_text(encoding="utf-8"))
    counts = {
        name for name in content["steps"][0]["rows"][0]["statistics"] if name.endswith("count")
    }
    for step in content["steps"]:
        for row in step["rows"]:
            # JSON may write a floating-point number without a point.
            row["statistics"] = {
                name: value if name in counts or value == "NaN" else float(value)
                for name, value in row["statistics"].items()
            }
    return content


def test_crc32c_check_value() -> None:
    assert crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize("kind", ["sealed", "unsealed"])
def test_golden_segment_reads_as_specified(kind: str) -> None:
    assert plain(read_segment(GOLDEN / kind / SEGMENT)) == plain(expected())


def test_the_sealed_segment_begins_with_the_unsealed_one() -> None:
    sealed = (GOLDEN / "sealed" / SEGMENT).read_bytes()
    unsealed = (GOLDEN / "unsealed" / SEGMENT).read_bytes()
    # All but the creation time and the checksum of the header.
    assert sealed[64 : len(unsealed)] == unsealed[64:]
    assert len(sealed) > len(unsealed)


def test_a_cut_segment_gives_the_steps_before_the_cut(tmp_path: Path) -> None:
    whole = (GOLDEN / "unsealed" / SEGMENT).read_bytes()
    steps = expected()["steps"]
    cut = tmp_path / "cut.ttap"
    seen = set()
    for size in range(64, len(whole) + 1, 97):
        cut.write_bytes(whole[:size])
        read = read_segment(cut)["steps"]
        assert plain(read) == plain(steps[: len(read)])
        seen.add(len(read))
    assert seen >= {0, 1, 2, 3, 4}
