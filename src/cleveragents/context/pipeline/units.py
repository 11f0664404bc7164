"""Which whole lines a found place stands for: a definition, the head of a class, or what lies between.

A strategy may name any lines. What is shown of them is whole: the innermost definition that has them all, or,
outside of definitions, the chunks that they touch, with every definition that these would cut in half.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cleveragents.context.model.code import Definition, FileAnalysis, Span

__all__ = ["Unit", "touch", "unit_of", "without_crossings"]

_WITH_A_BODY: Final = ("function", "method", "constructor", "lambda", "macro", "closure")
"""Kinds whose head alone says too little: half of a function is cut in half, the head of a class is not."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Whole lines; `definition` is the position of the definition that they are or belong to."""

    span: Span
    definition: int | None


def unit_of(span: Span, analysis: FileAnalysis) -> Unit | None:
    """The unit that has these lines; None when the file has no such lines."""
    if span.first > analysis.lines:
        return None
    within = Span(span.first, min(span.last, max(span.first, analysis.lines)))
    for chunk in analysis.chunks:
        if chunk.span.contains(within) and chunk.definition is not None:
            return _unit_of_chunk(chunk.span, chunk.definition, analysis)
    position = _innermost(within, analysis.definitions)
    if position is None:
        return Unit(_whole(within, analysis), None)
    return Unit(analysis.definitions[position].span, position)


def without_crossings(units: Iterable[Unit]) -> list[Unit]:
    """The units, the first ones first, without those that have some but not all lines of one before."""
    kept: list[Unit] = []
    for unit in units:
        if unit not in kept and not any(_cross(unit.span, other.span) for other in kept):
            kept.append(unit)
    return kept


def _innermost(span: Span, definitions: tuple[Definition, ...]) -> int | None:
    found: int | None = None
    size = 0
    for position, definition in enumerate(definitions):
        if definition.span.contains(span):
            lines = definition.span.last - definition.span.first
            if found is None or lines <= size:
                found, size = position, lines
    return found


def _unit_of_chunk(chunk: Span, position: int, analysis: FileAnalysis) -> Unit:
    """The chunk's definition, with the comments above it; or a class's chunk, if it cuts no member."""
    definition = analysis.definitions[position]
    if chunk.contains(definition.span):
        return Unit(Span(chunk.first, definition.span.last), position)
    members = [one.span for one in analysis.definitions if one.parent == position]
    with_a_body = _is_body(position, analysis.definitions)
    cut = any(touch(chunk, member) and not chunk.contains(member) for member in members)
    if with_a_body or cut or not members:  # guard: no definition is cut in half
        return Unit(definition.span, position)
    return Unit(chunk, position)


def _is_body(position: int | None, definitions: tuple[Definition, ...]) -> bool:
    """Whether it is what a function does, or lies within that."""
    while position is not None:
        definition = definitions[position]
        if any(word in definition.kind for word in _WITH_A_BODY):
            return True
        position = definition.parent
    return False


def _whole(span: Span, analysis: FileAnalysis) -> Span:
    """The lines with all of every chunk and definition that they touch."""
    chunks = [chunk.span for chunk in analysis.chunks if touch(chunk.span, span)]
    whole = _around(span, chunks)
    outer = [definition.span for definition in analysis.definitions if definition.parent is None]
    while True:
        wider = _around(whole, [one for one in outer if touch(one, whole)])
        if wider == whole:
            return whole
        whole = wider


def _around(span: Span, others: list[Span]) -> Span:
    first = min([span.first, *(other.first for other in others)])
    return Span(first, max([span.last, *(other.last for other in others)]))


def touch(one: Span, other: Span) -> bool:
    """Whether they have a line in common."""
    return one.first <= other.last and other.first <= one.last


def _cross(one: Span, other: Span) -> bool:
    return touch(one, other) and not one.contains(other) and not other.contains(one)
