#!/usr/bin/env python3
"""Counts the exceptions to the house's habits; the counts may only fall.

    tools/check_ratchet.py            fails when a count is above tools/ratchet.json
    tools/check_ratchet.py --list     prints where the exceptions are
    tools/check_ratchet.py --update   lowers the record to what is there

The record never rises by a command: who must make an exception edits it by hand, so that a
review sees it.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_SOURCE_LINES = 400
MAX_HEADER_LINES = 150
MAX_FUNCTION_LINES = 50

CPP_FOLDERS = ("src", "python/bindings")
PYTHON_FOLDERS = ("python", "tools", "bench", "examples")

# kind -> places, as "file:line: what"
Exceptions = dict[str, list[str]]

KINDS = {
    "nolint": "NOLINT comments",
    "reinterpret_cast": "reinterpret_cast in C++",
    "type_ignore": "`type: ignore` in Python",
    "long_sources": f"sources over {MAX_SOURCE_LINES} lines",
    "long_headers": f"headers over {MAX_HEADER_LINES} lines",
    "long_functions": f"functions over {MAX_FUNCTION_LINES} lines",
}

# What may hold braces, quotes and semicolons that are no code.
CPP_NO_CODE = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
      | R"(?P<mark>[^()\s\\]{0,16})\(.*?\)(?P=mark)"
      | (?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'
      | "(?:\\.|[^"\\\n])*"
      | ^[ \t]*\#(?:\\\n|[^\n])*
    """,
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
SCOPE_HEAD = re.compile(r"(?:inline\s+)?(?:namespace|class|struct|union|enum|extern)\b")

ACCESS_LABELS = ("public", "private", "protected")


def blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def without_template_head(head: str) -> str:
    """Drop a leading `template <...>`, whose parameters may say `class`."""
    while head.startswith("template"):
        depth = 0
        for i, c in enumerate(head):
            depth += (c == "<") - (c == ">")
            if c == ">" and depth == 0:
                head = head[i + 1 :].strip()
                break
        else:
            return head
    return head


def cpp_functions(text: str) -> Iterator[tuple[int, int]]:
    """First and last line of each function that is not inside another one.

    Counts braces: what stands before an opening one tells a namespace or class (looked into) from a
    function (has parentheses) and an initializer (has none).
    """
    text = CPP_NO_CODE.sub(blank, text)
    depth_inside = 0  # of a function or initializer; 0 in a namespace or class
    head, head_line, is_function = "", 0, False
    line = 1
    for i, c in enumerate(text):
        if c == "\n":
            line += 1
        if depth_inside:
            depth_inside += (c == "{") - (c == "}")
            if depth_inside == 0:
                # `: a_{1}, b_{2} {` goes on to the body.
                if text[i + 1 :].lstrip()[:1] in (",", "{"):
                    continue
                if is_function:
                    yield head_line, line
                head = ""
        elif c == "{":
            start = without_template_head(head.strip())
            if SCOPE_HEAD.match(start):
                head = ""
            else:
                depth_inside, is_function = 1, "(" in start
        elif c in ";}" or (c == ":" and head.strip() in ACCESS_LABELS):
            head = ""
        else:
            if not head.strip() and not c.isspace():
                head, head_line = "", line
            head += c


def python_functions(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """First line and number of lines of each function, its documentation not counted."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if ast.get_docstring(node) is not None:
                doc = node.body[0]
                lines -= (doc.end_lineno or doc.lineno) - doc.lineno + 1
            yield node.lineno, lines


def count_cpp_file(path: str, text: str, exceptions: Exceptions) -> None:
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        exceptions["nolint"] += [f"{path}:{number}"] * len(re.findall(r"\bNOLINT", line))
    code = CPP_NO_CODE.sub(blank, text).splitlines()
    for number, line in enumerate(code, 1):
        casts = len(re.findall(r"\breinterpret_cast\b", line))
        exceptions["reinterpret_cast"] += [f"{path}:{number}"] * casts
    limit, kind = (
        (MAX_HEADER_LINES, "long_headers")
        if path.endswith(".h")
        else (MAX_SOURCE_LINES, "long_sources")
    )
    if len(lines) > limit:
        exceptions[kind].append(f"{path}:1: {len(lines)} lines")
    for first, last in cpp_functions(text):
        if last - first + 1 > MAX_FUNCTION_LINES:
            exceptions["long_functions"].append(f"{path}:{first}: {last - first + 1} lines")


def count_python_file(path: str, text: str, exceptions: Exceptions) -> None:
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if re.search(r"#\s*type:\s*ignore", line):
            exceptions["type_ignore"].append(f"{path}:{number}")
    if len(lines) > MAX_SOURCE_LINES:
        exceptions["long_sources"].append(f"{path}:1: {len(lines)} lines")
    for first, count in python_functions(ast.parse(text, path)):
        if count > MAX_FUNCTION_LINES:
            exceptions["long_functions"].append(f"{path}:{first}: {count} lines")


def find_exceptions(root: Path) -> Exceptions:
    """All exceptions in a tree, by kind."""
    exceptions: Exceptions = {kind: [] for kind in KINDS}
    for folders, suffixes, count in (
        (CPP_FOLDERS, (".h", ".cc"), count_cpp_file),
        (PYTHON_FOLDERS, (".py",), count_python_file),
    ):
        for folder in folders:
            for file in sorted((root / folder).rglob("*")):
                if file.suffix in suffixes:
                    text = file.read_text(errors="replace")
                    count(file.relative_to(root).as_posix(), text, exceptions)
    return exceptions


def compare(found: dict[str, int], record: dict[str, int], exceptions: Exceptions) -> int:
    """Print what differs from the record; 1 when a count rose."""
    rose = False
    fell = False
    for kind, name in KINDS.items():
        if found[kind] > record.get(kind, 0):
            rose = True
            print(f"{name}: {found[kind]}, but at most {record.get(kind, 0)} are recorded:")
            print("".join(f"  {place}\n" for place in exceptions[kind]), end="")
        elif found[kind] < record.get(kind, 0):
            fell = True
            print(f"{name}: fell from {record[kind]} to {found[kind]}")
    if fell:
        print("Lower the record with: tools/check_ratchet.py --update")
    if not rose:
        print("check_ratchet: no count rose")
    return 1 if rose else 0


def update(found: dict[str, int], record: dict[str, int], path: Path) -> int:
    """Lower the record; the first time, write it."""
    lowered = {kind: min(found[kind], record.get(kind, found[kind])) for kind in KINDS}
    path.write_text(json.dumps(lowered, indent=2) + "\n")
    rose = [kind for kind in KINDS if found[kind] > lowered[kind]]
    for kind in rose:
        print(f"{KINDS[kind]}: not raised from {lowered[kind]} to {found[kind]}")
    return 1 if rose else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Counts exceptions; the counts may only fall.")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--list", action="store_true", help="print every exception")
    parser.add_argument("--update", action="store_true", help="lower the record")
    arguments = parser.parse_args()

    exceptions = find_exceptions(arguments.root)
    found = {kind: len(places) for kind, places in exceptions.items()}
    if arguments.list:
        for kind, places in exceptions.items():
            print(f"{KINDS[kind]}: {len(places)}")
            print("".join(f"  {place}\n" for place in places), end="")
        return 0
    path = arguments.root / "tools" / "ratchet.json"
    record = json.loads(path.read_text()) if path.exists() else {}
    if arguments.update:
        return update(found, record, path)
    return compare(found, record, exceptions)


if __name__ == "__main__":
    sys.exit(main())
