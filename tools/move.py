"""Moves modules and tests as `moves.toml` says, and rewrites all references to them.

    python -m tools.move        # in a clean checkout; then `ruff check --fix . && ruff format .`

For branches begun before the feature-first layout. It updates imports, dotted names in strings, and paths in
documents. The published import paths in documents stay unchanged.
"""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

__all__ = ["SUFFIXES", "Moves", "main", "rewritten"]

SUFFIXES = (".py", ".md", ".toml", ".robot", ".feature", ".yaml")
"""Files that may refer to modules."""

_ROOT = Path(__file__).parents[1]
_SOURCES = "src/cleveragents"
_DOTTED = re.compile(r"\bcleveragents\.([a-z_0-9]+(?:\.[a-z_0-9]+)*)")
_TEST = re.compile(r"\btests/unit/test_(\w+)\b|\btests\.unit\.test_(\w+)\b")
_ROOT_OF_TESTS = re.compile(r"(Path\(__file__\)(?:\.resolve\(\))?\.parents)\[2\]")
_OURS = ("moves.toml", "tools/move.py")
_PUBLISHED = (
    "application.services.async_worker",
    "application.services.acms_pipeline",
    "application.services.plan_execution_context",
    "infrastructure.events.reactive",
    "langgraph.bridge",
)


@dataclass(frozen=True)
class Moves:
    """Old names to new ones: modules and packages below `cleveragents`, and the folders of unit tests."""

    modules: Mapping[str, str]
    packages: Mapping[str, str]
    tests: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def names(self) -> Mapping[str, str]:
        return {**self.packages, **self.modules}

    @cached_property
    def slashed(self) -> re.Pattern[str]:
        """Return the paths below the folders that contain a moved file."""
        tops = "|".join(sorted({name.split(".")[0] for name in self.names}))
        return re.compile(rf"(?<![\w.])((?:{tops})(?:/\w+)+)(\.py)?\b")

    def dotted(self, name: str) -> str:
        """Return the new name of a module, or of something in it."""
        parts = name.split(".")
        for length in range(len(parts), 0, -1):
            found = self.names.get(".".join(parts[:length]))
            if found is not None:
                return ".".join([found, *parts[length:]])
        return name

    def path(self, path: str) -> str:
        """Return the new path of a file below `src/cleveragents`."""
        stem = path.removesuffix(".py").replace("/", ".")
        if path.endswith(".py") and stem in self.modules:
            return self.modules[stem].replace(".", "/") + ".py"
        folder = Path(path).parent
        for parent in (folder, *folder.parents):
            found = self.packages.get(".".join(parent.parts))
            if found is not None:
                return str(Path(*found.split("."), Path(path).relative_to(parent)))
        return path


def main() -> None:
    moves = Moves(**tomllib.loads((_ROOT / "moves.toml").read_text()))
    for old, new in _moved_files(moves):
        target = _ROOT / new
        target.parent.mkdir(parents=True, exist_ok=True)
        _git("mv", old, new)
    for path in _git("ls-files").splitlines():
        file = _ROOT / path
        if file.suffix in SUFFIXES and path not in _OURS:
            text = file.read_text(encoding="utf-8")
            changed = rewritten(moves, path, text)
            if path.startswith("tests/unit/") and path.count("/") == 3:
                changed = _ROOT_OF_TESTS.sub(r"\1[3]", changed)
            if changed != text:
                file.write_text(changed, encoding="utf-8")


def _moved_files(moves: Moves) -> list[tuple[str, str]]:
    moved = []
    for path in _git("ls-files", _SOURCES).splitlines():
        relative = path.removeprefix(f"{_SOURCES}/")
        moved.append((path, f"{_SOURCES}/{moves.path(relative)}"))
    for path in _git("ls-files", "tests/unit/test_*.py").splitlines():
        name = Path(path).stem.removeprefix("test_")
        if path.count("/") == 2 and name in moves.tests:
            moved.append((path, f"tests/unit/{moves.tests[name]}/test_{name}.py"))
    return [(old, new) for old, new in moved if old != new]


def rewritten(moves: Moves, path: str, text: str) -> str:
    """Return the content of a file with all references updated."""
    kept = _PUBLISHED if not path.endswith(".py") else ()
    if path.endswith(".py"):
        text = _modules_by_name(moves, text)
    text = _DOTTED.sub(lambda found: _dotted(moves, found, kept), text)
    text = moves.slashed.sub(lambda found: _slashed(moves, found), text)
    return _TEST.sub(lambda found: _test(moves, found), text)


def _dotted(moves: Moves, found: re.Match[str], kept: tuple[str, ...]) -> str:
    return found[0] if kept and found[1].startswith(kept) else f"cleveragents.{moves.dotted(found[1])}"


def _slashed(moves: Moves, found: re.Match[str]) -> str:
    parts = found[1].split("/")
    if found[2]:
        new = moves.modules.get(".".join(parts))
        return found[0] if new is None else f"{new.replace('.', '/')}.py"
    for length in range(len(parts), 1, -1):
        new = moves.packages.get(".".join(parts[:length]))
        if new is not None:
            return "/".join([*new.split("."), *parts[length:]])
    return found[0]


def _test(moves: Moves, found: re.Match[str]) -> str:
    name = found[1] or found[2]
    dot = "/" if found[1] else "."
    return dot.join(["tests", "unit", moves.tests[name], f"test_{name}"]) if name in moves.tests else found[0]


def _modules_by_name(moves: Moves, text: str) -> str:
    """Rewrite `from package import module` if the module has another parent or name now."""
    lines = text.splitlines(keepends=True)
    nodes = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cleveragents")
    ]
    for node in sorted(nodes, key=lambda node: -node.lineno):
        package = (node.module or "").removeprefix("cleveragents").lstrip(".")
        inside = {alias.name: ".".join(filter(None, [package, alias.name])) for alias in node.names}
        if not any(name in moves.names for name in inside.values()):
            continue
        written = []
        for alias in node.names:
            new = moves.names.get(inside[alias.name], f"{moves.dotted(package)}.{alias.name}".lstrip("."))
            parent, _, name = f"cleveragents.{new}".rpartition(".")
            called = alias.asname or (alias.name if name != alias.name else None)
            written.append(f"from {parent} import {name}" + (f" as {called}" if called else ""))
        indent = " " * node.col_offset
        lines[node.lineno - 1 : node.end_lineno] = [f"{indent}{line}\n" for line in written]
    return "".join(lines)


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=_ROOT, capture_output=True, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    main()
