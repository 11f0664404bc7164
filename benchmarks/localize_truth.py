"""The definitions that a real fix touched, from the lines that it changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleveragents.context.code_index import CodeSnapshot
from cleveragents.context.model.code import FileAnalysis

if TYPE_CHECKING:
    from benchmarks.localize import Case

__all__ = ["TrueDefinition", "TrueDefinitions", "touched", "true_definitions"]

_FUNCTIONS = frozenset({"function", "method"})

TrueDefinition = tuple[str, str, int, int]
"""The path, the qualified name, and the first and last line."""


@dataclass(frozen=True, slots=True)
class TrueDefinitions:
    """The innermost functions and the innermost classes around the lines that the fix touched."""

    functions: tuple[TrueDefinition, ...]
    classes: tuple[TrueDefinition, ...]


def true_definitions(case: Case, code: CodeSnapshot) -> TrueDefinitions:
    """Return the definitions that the fix of `case` touched in the code before it."""
    documents = {file.path: file.document for file in code.files if file.path in case.lines}
    analyses = code.analyses(sorted(set(documents.values())))
    functions: dict[TrueDefinition, None] = {}
    classes: dict[TrueDefinition, None] = {}
    for path, lines in case.lines.items():
        analysis = analyses.get(documents[path]) if path in documents else None
        if analysis is not None:
            functions |= dict.fromkeys(touched(path, analysis, lines, _FUNCTIONS))
            classes |= dict.fromkeys(touched(path, analysis, lines, frozenset({"class"})))
    return TrueDefinitions(tuple(functions), tuple(classes))


def touched(
    path: str, analysis: FileAnalysis, lines: Mapping[str, Iterable[int]], kinds: frozenset[str]
) -> list[TrueDefinition]:
    """Return the innermost definitions of these kinds around the changed lines.

    Inserted lines count for the definition that contains the line before them.
    """
    found: list[TrueDefinition] = []
    for line in sorted({*lines.get("changed", ()), *lines.get("inserted_after", ())}):
        # An inner definition comes after the one around it.
        around = [
            position
            for position, one in enumerate(analysis.definitions)
            if one.kind in kinds and one.span.first <= line <= one.span.last
        ]
        if around:
            span = analysis.definitions[around[-1]].span
            found.append((path, analysis.qualified(around[-1]), span.first, span.last))
    return list(dict.fromkeys(found))
