"""A second reader of the trace format, written from docs/trace-format.md alone.

It shares no code with the engine and reads frames only, never the index, so that it finds whatever the
specification forgets to say. Standard library only; raw values that were compressed with zstd are not supported.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SEGMENT_MAGIC = b"\x89TTAP\r\n\x1a"
FRAME_MAGIC = b"TTF1"
DICTIONARY, STEP = 2, 5
MODES = {1: "TRAIN", 2: "EVAL", 3: "PREDICT", 4: "GLOBAL"}
DTYPES = [
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "complex64",
    "complex128",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
]
STATISTICS = [
    "count",
    "nan_count",
    "positive_inf_count",
    "negative_inf_count",
    "zero_count",
    "subnormal_count",
    "overflow_count",
    "underflow_count",
    "min",
    "max",
    "mean",
    "variance",
    "abs_min",
    "abs_mean",
    "abs_variance",
]
ENCODINGS = {0: "Q", 1: "d", 2: "B", 3: "H", 4: "I", 5: "Q", 6: "f", 7: "d"}


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


class Cursor:
    """Reads values one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        if self.at + size > len(self.data):
            raise ValueError("the payload ends too early")
        self.at += size
        return self.data[self.at - size : self.at]

    def unpack(self, layout: str) -> tuple[Any, ...]:
        return struct.unpack("<" + layout, self.take(struct.calcsize("<" + layout)))

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def string(self) -> str:
        return self.take(self.varint()).decode("utf-8")


def frames(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and payload of every whole frame whose checksums fit, resynchronising after damage."""
    at = 64
    while at + 32 <= len(data):
        magic, kind, flags, units, size, offset, payload_crc, header_crc = struct.unpack(
            "<4sBBHQQII", data[at : at + 32]
        )
        if magic != FRAME_MAGIC or offset != at or header_crc != crc32c(data[at : at + 28]):
            at += 8
            continue
        if at + 32 + size > len(data):
            return
        payload = data[at + 32 : at + 32 + size]
        checked = payload[: units * 8] if flags & 1 else payload
        if crc32c(checked) == payload_crc:
            yield kind, payload
        at += (32 + size + 7) // 8 * 8


def read_dictionary(
    payload: bytes, tensors: list[dict[str, Any]], layouts: list[dict[str, Any]]
) -> None:
    cursor = Cursor(payload)
    first_tensor, tensor_count, first_layout, layout_count = cursor.unpack("IIII")
    del tensors[first_tensor:], layouts[first_layout:]
    for _ in range(tensor_count):
        name = cursor.string()
        tensors.append(
            {"name": name, "collections": [cursor.string() for _ in range(cursor.varint())]}
        )
    for _ in range(layout_count):
        dtype = DTYPES[cursor.take(1)[0] - 1]
        layouts.append({"dtype": dtype, "shape": [cursor.varint() for _ in range(cursor.varint())]})


def read_columns(data: bytes, column_count: int, row_count: int) -> dict[int, list[Any]]:
    cursor = Cursor(data)
    columns: dict[int, list[Any]] = {}
    for _ in range(column_count):
        code, encoding, _, size = cursor.unpack("BBHI")
        values = cursor.take(size)
        cursor.at = (cursor.at + 7) // 8 * 8
        if encoding <= 1:
            columns[code] = list(struct.unpack("<" + ENCODINGS[encoding], values)) * row_count
        else:
            columns[code] = list(struct.unpack(f"<{row_count}{ENCODINGS[encoding]}", values))
    return columns


def read_histograms(data: bytes, row_count: int) -> list[dict[str, Any] | None]:
    if not data:
        return [None] * row_count
    cursor = Cursor(data)
    bits = cursor.take((row_count + 7) // 8)
    histograms: list[dict[str, Any] | None] = []
    for row in range(row_count):
        if not bits[row // 8] >> (row % 8) & 1:
            histograms.append(None)
            continue
        top, mask = cursor.unpack("hQ")
        counts = [cursor.varint() if mask >> bucket & 1 else 0 for bucket in range(64)]
        histograms.append({"top": top, "counts": counts})
    return histograms


def read_raw(file: bytes, cursor: Cursor) -> dict[str, Any]:
    tensor, layout, offset, size, raw_size, codec, crc = cursor.unpack("IIQQQII")
    data = file[offset : offset + size]
    if codec != 0 or size != raw_size or offset % 64 != 0:
        raise ValueError("a raw value that this reader does not support")
    if crc32c(data) != crc:
        raise ValueError("a raw value fails its checksum")
    return {"tensor": tensor, "layout": layout, "hex": data.hex()}


def read_text(file: bytes, cursor: Cursor) -> dict[str, Any]:
    tensor, crc, offset, size = cursor.unpack("IIQQ")
    data = file[offset : offset + size]
    if crc32c(data) != crc:
        raise ValueError("a text fails its checksum")
    return {"tensor": tensor, "text": data.decode("utf-8")}


def read_step(file: bytes, payload: bytes) -> dict[str, Any]:
    cursor = Cursor(payload)
    step, mode_step, wall_time_ns, duration_ns, session, mode, _, head_size = cursor.unpack(
        "qqqqIBBH"
    )
    row_count, raw_count, text_count, column_count, columns_size, histograms_size = cursor.unpack(
        "IIIIII"
    )
    cursor.at = head_size
    raws = [read_raw(file, cursor) for _ in range(raw_count)]
    texts = [read_text(file, cursor) for _ in range(text_count)]
    columns = read_columns(cursor.take(columns_size), column_count, row_count)
    histograms = read_histograms(cursor.take(histograms_size), row_count)
    rows = [
        {
            "tensor": columns[0xF0][row],
            "layout": columns[0xF1][row],
            "statistics": {name: columns[code][row] for code, name in enumerate(STATISTICS)},
            "histogram": histograms[row],
        }
        for row in range(row_count)
    ]
    return {
        "step": step,
        "mode": MODES[mode],
        "mode_step": mode_step,
        "wall_time_ns": wall_time_ns,
        "duration_ns": duration_ns,
        "session": session,
        "rows": rows,
        "raws": raws,
        "texts": texts,
    }


def read_segment(path: Path) -> dict[str, Any]:
    """Everything in a segment, in the shape of tests/golden/v1/expected.json."""
    file = path.read_bytes()
    if file[:8] != SEGMENT_MAGIC or struct.unpack("<I", file[60:64])[0] != crc32c(file[:60]):
        raise ValueError(f"not a trace segment: {path}")
    major, _, features = struct.unpack("<HH36xQ", file[8:56])
    if major != 1 or features != 0:
        raise ValueError(f"written by a newer version: {path}")
    tensors: list[dict[str, Any]] = []
    layouts: list[dict[str, Any]] = []
    steps = []
    for kind, payload in frames(file):
        if kind == DICTIONARY:
            read_dictionary(payload, tensors, layouts)
        elif kind == STEP:
            steps.append(read_step(file, payload))
    return {"tensors": tensors, "layouts": layouts, "steps": steps}


if __name__ == "__main__":
    import sys

    print(json.dumps(read_segment(Path(sys.argv[1])), indent=1))
