"""Where a guard stands: every `with` on a lock, and whatever is marked `# guard: …`.

The mark is at the end of the guard's line, or in a comment right above it. What deleting it means depends on
what it is: an `if` or `while` never holds, a condition inside a comprehension always does, a loop finds
nothing, a statement is not there. Where that is not it, `by_hand.py` says how the guard goes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.by_hand import BY_HAND

__all__ = ["Mutant", "mutants_of", "unjudged_marks"]

_LOCKISH = re.compile(r"(lock|condition|changed|wakeup|gate)$")
_MARK = re.compile(r"#\s*guard:\s*(.*)")
_NO_CONTEXT = '__import__("contextlib").nullcontext()'


@dataclass(frozen=True)
class Mutant:
    """A module with one guard gone."""

    module: Path
    line: int
    where: str
    guard: str
    source: str
    mark: int = 0
    """The line of the mark; 0 for a lock, which needs none."""

    @property
    def key(self) -> str:
        """Stable while the code around it moves: the place by name, the guard by its text."""
        return f"{self.module.name}::{self.where}::{self.guard}"


def mutants_of(module: Path) -> Iterator[Mutant]:
    """Each way to delete one guard from the module."""
    source = module.read_text(encoding="utf-8")
    lines = source.splitlines(keepends=True)
    by_hand = {mutant.mark: mutant for mutant in _by_hand(module, lines)}
    yield from by_hand.values()
    for where, node in _walk(ast.parse(source), ()):
        for mark, guard, site, replacement in _guards(node, lines):
            if mark not in by_hand:
                changed = _replace(lines, site, replacement)
                yield Mutant(module, site.lineno, ".".join(where), guard, changed, mark)


def unjudged_marks(module: Path) -> list[int]:
    """Lines with a mark that no mutant comes of: it stands where nothing is understood to be a guard."""
    lines = module.read_text(encoding="utf-8").splitlines()
    marked = {number for number, line in enumerate(lines, 1) if _MARK.search(line)}
    return sorted(marked - {mutant.mark for mutant in mutants_of(module)})


def _by_hand(module: Path, lines: list[str]) -> Iterator[Mutant]:
    for (name, words), (old, new) in BY_HAND.items():
        if not module.as_posix().endswith(f"cleveragents/{name}"):
            continue
        marks = ((number, _MARK.search(line)) for number, line in enumerate(lines, 1))
        mark = next((number for number, found in marks if found and words in found[1]), len(lines))
        head, rest = "".join(lines[: mark - 1]), "".join(lines[mark - 1 :])
        if old not in rest:
            raise LookupError(f"by_hand.py: {name} has {old!r} no more below a mark that says {words!r}")
        yield Mutant(module, mark, "by hand", words, head + rest.replace(old, new, 1), mark)


def _walk(node: ast.AST, where: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], ast.AST]]:
    for child in ast.iter_child_nodes(node):
        named = isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        inner = (*where, child.name) if named else where
        yield inner, child
        yield from _walk(child, inner)


def _guards(node: ast.AST, lines: list[str]) -> Iterator[tuple[int, str, ast.expr | ast.stmt, str]]:
    if isinstance(node, ast.With):
        for item in node.items:
            name = item.context_expr
            mark = _mark(lines, node.lineno, name)
            lockish = isinstance(name, ast.Attribute) and _LOCKISH.search(name.attr)
            if mark or lockish:
                yield mark, f"with {ast.unparse(name)}", name, _NO_CONTEXT
    elif isinstance(node, ast.comprehension):
        for condition in node.ifs:
            if mark := _mark(lines, 0, condition):
                yield mark, f"if {ast.unparse(condition)}", condition, "True"
    elif isinstance(node, (ast.If, ast.While)) and (mark := _mark(lines, node.lineno, node.test)):
        yield mark, f"{type(node).__name__.lower()} {ast.unparse(node.test)}", node.test, "False"
    elif isinstance(node, ast.For) and (mark := _mark(lines, node.lineno, node.iter)):
        yield mark, f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}", node.iter, "()"
    elif isinstance(node, ast.Expr) and (mark := _mark(lines, node.lineno, node)):
        yield mark, ast.unparse(node), node, "..."


def _mark(lines: list[str], first: int, end: ast.expr | ast.stmt) -> int:
    """The line of the mark of what begins in line `first` and whose guard ends with `end`; or 0."""
    last = end.end_lineno
    # A test of several lines ends before its closing bracket.
    if last < len(lines) and lines[last].lstrip().startswith("):"):
        last += 1
    if _MARK.search(lines[last - 1]):
        return last
    above = first - 1
    while above > 0 and lines[above - 1].lstrip().startswith("#"):
        if _MARK.search(lines[above - 1]):
            return above
        above -= 1
    return 0


def _replace(lines: list[str], site: ast.expr | ast.stmt, replacement: str) -> str:
    first, last = site.lineno - 1, site.end_lineno - 1
    # Offsets count bytes of UTF-8.
    head = lines[first].encode()[: site.col_offset].decode()
    tail = lines[last].encode()[site.end_col_offset :].decode()
    return "".join([*lines[:first], head + replacement + tail, *lines[last + 1 :]])
