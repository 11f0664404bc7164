"""Where a guard stands: every `with` on a lock, and every `if` marked `# guard: …`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Mutant", "mutants_of"]

_LOCKISH = re.compile(r"(lock|condition|changed|wakeup|gate)$")
_MARK = re.compile(r"#\s*guard:")


@dataclass(frozen=True)
class Mutant:
    """A module with one guard gone."""

    module: Path
    line: int
    where: str
    guard: str
    source: str

    @property
    def key(self) -> str:
        """Stable while the code around it moves: the place by name, the guard by its text."""
        return f"{self.module.name}::{self.where}::{self.guard}"


def mutants_of(module: Path) -> Iterator[Mutant]:
    """Each way to delete one guard from the module."""
    source = module.read_text(encoding="utf-8")
    lines = source.splitlines(keepends=True)
    for where, node in _walk(ast.parse(source), ()):
        for guard, expression, replacement in _guards(node, lines):
            changed = _replace(lines, expression, replacement)
            yield Mutant(module, expression.lineno, ".".join(where), guard, changed)


def _walk(node: ast.AST, where: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], ast.AST]]:
    for child in ast.iter_child_nodes(node):
        named = isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        inner = (*where, child.name) if named else where
        yield inner, child
        yield from _walk(child, inner)


def _guards(node: ast.AST, lines: list[str]) -> Iterator[tuple[str, ast.expr, str]]:
    if isinstance(node, ast.With):
        for item in node.items:
            name = item.context_expr
            if isinstance(name, ast.Attribute) and _LOCKISH.search(name.attr):
                yield f"with {ast.unparse(name)}", name, '__import__("contextlib").nullcontext()'
    if isinstance(node, ast.If) and _MARK.search(lines[node.test.end_lineno - 1]):
        yield f"if {ast.unparse(node.test)}", node.test, "False"


def _replace(lines: list[str], expression: ast.expr, replacement: str) -> str:
    first, last = expression.lineno - 1, expression.end_lineno - 1
    # Offsets count bytes of UTF-8.
    head = lines[first].encode()[: expression.col_offset].decode()
    tail = lines[last].encode()[expression.end_col_offset :].decode()
    return "".join([*lines[:first], head + replacement + tail, *lines[last + 1 :]])
