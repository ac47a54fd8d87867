#!/usr/bin/env python3
"""Checks every `#include` and every Python import against layers.txt.

    tools/check_layers.py [--root DIR]

Prints `file:line: what is wrong` for each violation. Exit code 0 when there is none, 1 otherwise.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')
BINDINGS = "python/bindings"


@dataclass(frozen=True)
class Violation:
    """One broken rule; `path` is relative to the root."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


@dataclass
class Layers:
    """What layers.txt says."""

    order: list[str] = field(default_factory=list)
    leaves: list[str] = field(default_factory=list)
    headers: dict[str, list[str]] = field(default_factory=dict)  # header -> places
    python: dict[str, str] = field(default_factory=dict)  # module -> folder

    def leaf_of(self, path: str) -> str | None:
        """The leaf folder that a path relative to src/ lies in."""
        return next((leaf for leaf in self.leaves if path.startswith(leaf + "/")), None)


def read_layers(path: Path) -> Layers:
    """Read layers.txt; raises ValueError on a line that fits no section."""
    layers = Layers()
    section = ""
    for number, raw in enumerate(path.read_text().splitlines(), 1):
        words = raw.split()
        if not words or raw.startswith("#"):
            continue
        if raw.startswith("["):
            section = raw.strip().strip("[]")
        elif section == "order":
            layers.order.append(words[0])
        elif section == "leaves" and len(words) == 1:
            layers.leaves.append(words[0])
        elif section == "headers" and len(words) >= 2:
            layers.headers[words[0]] = words[1:]
        elif section == "python" and len(words) == 2:
            layers.python[words[0]] = words[1]
        else:
            raise ValueError(f"{path}:{number}: not understood in section [{section}]: {raw}")
    return layers


def stem_of(path: PurePosixPath) -> str:
    """The name that x.h, x.cc, x_test.cc, x_bench.cc, x_fuzzer.cc and x-inl.h have in common."""
    return re.sub(r"(_test|_bench|_fuzzer|-inl)$", "", path.stem)


class IncludeChecker:
    """Checks the C++ files of one tree."""

    def __init__(self, root: Path, layers: Layers):
        self.root = root
        self.layers = layers

    def check(self) -> Iterator[Violation]:
        for folder in ("src", BINDINGS):
            for file in sorted((self.root / folder).rglob("*")):
                if file.suffix in (".h", ".cc"):
                    yield from self.check_file(file)

    def check_file(self, file: Path) -> Iterator[Violation]:
        path = file.relative_to(self.root).as_posix()
        if path.startswith("src/") and path.split("/")[1] not in self.layers.order:
            yield Violation(path, 1, f"the folder {path.split('/')[1]}/ is not in layers.txt")
            return
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
            match = INCLUDE.match(line)
            if match:
                for message in self.check_include(path, match[2], is_quoted=match[1] == '"'):
                    yield Violation(path, number, message)

    def check_include(self, path: str, header: str, *, is_quoted: bool) -> Iterator[str]:
        guarded = self.guarded_name(header)
        if guarded:
            if not self.may_include_guarded(path, guarded):
                places = ", ".join(self.layers.headers[guarded])
                yield f"may not include {header}: only {places} may"
        elif (self.root / "src" / header).is_file():
            yield from self.check_own(path, header)
        elif is_quoted and path.startswith("src/"):
            yield f"{header} is not under src/ (ours are named from src/, others go in <>)"
        elif is_quoted and not (self.root / "python" / header).is_file():
            yield f"{header} is neither under src/ nor under python/"

    def guarded_name(self, header: str) -> str | None:
        for name in self.layers.headers:
            if header == name or (name.endswith("/") and header.startswith(name)):
                return name
        return None

    def may_include_guarded(self, path: str, name: str) -> bool:
        place_of_file = path.removeprefix("src/")
        for place in self.layers.headers[name]:
            folder, star, suffix = place.partition("*")
            if star and not place_of_file.endswith(suffix):
                continue
            folder = folder.rstrip("/")
            if not folder or place_of_file.startswith(folder + "/"):
                return True
        return False

    def check_own(self, path: str, header: str) -> Iterator[str]:
        order = self.layers.order
        storey = header.split("/")[0]
        file = path.removeprefix("src/")
        if storey in order and path.startswith("src/"):
            own = file.split("/")[0]
            if order.index(storey) > order.index(own):
                yield f"{own}/ may not include {header}: {storey}/ comes after it in layers.txt"
        leaf = self.layers.leaf_of(header)
        if leaf is None:
            return
        if self.layers.leaf_of(file) != leaf:
            yield f"may not include {header}: {leaf}/ is a leaf, known by its generated list alone"
        elif stem_of(PurePosixPath(file)) != stem_of(PurePosixPath(header)):
            yield f"may not include {header}: files of the leaf {leaf}/ stand alone"


@dataclass(frozen=True)
class Import:
    module: str
    line: int
    at_start: bool  # runs when the importing module is imported


def imports_of(tree: ast.Module, package: str) -> Iterator[Import]:
    """All imports of a module by absolute name; relative ones start from `package`."""

    def visit(node: ast.AST, at_start: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, at_start)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = parts[: len(parts) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # `from a import b` may name the module a.b.
            for alias in node.names:
                yield Import(f"{module}.{alias.name}", node.lineno, at_start)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for statement in node.body:
                yield from visit(statement, False)
            for statement in node.orelse:
                yield from visit(statement, at_start)
            return
        in_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for child in ast.iter_child_nodes(node):
            yield from visit(child, at_start and not in_function)

    yield from visit(tree, True)


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


class ImportChecker:
    """Checks the Python files below python/."""

    def __init__(self, root: Path, layers: Layers):
        self.root = root
        self.layers = layers
        folders = sorted(set(layers.python.values()))
        # python/tensortap/pytorch -> tensortap.pytorch
        self.frameworks = {f: f.removeprefix("python/").replace("/", ".") for f in folders}

    def check(self) -> Iterator[Violation]:
        for file in sorted((self.root / "python").rglob("*.py")):
            path = file.relative_to(self.root).as_posix()
            try:
                tree = ast.parse(file.read_text())
            except SyntaxError as error:
                yield Violation(path, error.lineno or 1, f"not Python: {error.msg}")
                continue
            package = ".".join(PurePosixPath(path).parts[1:-1])
            seen: set[tuple[int, str]] = set()
            for found in imports_of(tree, package):
                for message in self.check_import(path, found):
                    if (found.line, message) not in seen:
                        seen.add((found.line, message))
                        yield Violation(path, found.line, message)

    def check_import(self, path: str, found: Import) -> Iterator[str]:
        own = next((f for f in self.frameworks if path.startswith(f + "/")), None)
        for module, folder in self.layers.python.items():
            if is_within(found.module, module) and own != folder:
                yield f"may not import {module}: only {folder}/ may"
        for folder, package in self.frameworks.items():
            if folder == own or not is_within(found.module, package):
                continue
            if own is not None:
                yield f"may not import {package}: it belongs to another framework"
            elif found.at_start:
                yield f"may import {package} inside a function only"


def check(root: Path) -> list[Violation]:
    """All violations of a tree, in the order of its files."""
    layers = read_layers(root / "layers.txt")
    return [*IncludeChecker(root, layers).check(), *ImportChecker(root, layers).check()]


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks includes and imports against layers.txt.")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    violations = check(parser.parse_args().root)
    for violation in violations:
        print(violation)
    print(f"check_layers: {len(violations) or 'no'} violation{'' if len(violations) == 1 else 's'}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
