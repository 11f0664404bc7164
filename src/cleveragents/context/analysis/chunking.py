"""How a file's lines fall into chunks: whole functions, and what lies between them.

The lines of a definition that contains others are its own except for those of the functions in it. They may
be several chunks, all of the same definition.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from cleveragents.context.analysis.lines import Lines
from cleveragents.context.analysis.syntax import THIN_KINDS, WHOLE_KINDS
from cleveragents.context.model.code import Definition

__all__ = ["Piece", "cut"]

_MOST_LINES = 200
_TRAILING = 2


class Piece(NamedTuple):
    """Lines `first` up to, not including, `end`, from 0."""

    first: int
    end: int
    definition: int | None


def cut(definitions: list[Definition], lines: Lines) -> list[Piece]:
    """Pieces in order that cover all lines."""
    pieces: list[Piece] = []
    for piece in _runs(_owners(definitions, lines.count)):
        before = pieces[-1] if pieces else None
        if before is not None and _trails(piece, before, definitions, lines):
            pieces[-1] = before._replace(end=piece.end)
        elif piece.definition is not None and definitions[piece.definition].kind in WHOLE_KINDS:
            pieces.append(piece)
        else:
            pieces += _split(piece)
    return pieces


def _owners(definitions: list[Definition], count: int) -> list[int | None]:
    """Which definition each line belongs to: the innermost, but nothing inside a function."""
    owners: list[int | None] = [None] * count
    inside_whole = [False] * len(definitions)
    for position, definition in enumerate(definitions):
        parent = definition.parent
        if parent is not None and (inside_whole[parent] or definitions[parent].kind in WHOLE_KINDS):
            inside_whole[position] = True
        elif definition.kind not in THIN_KINDS:
            first, last = definition.span.first, definition.span.last
            owners[first - 1 : last] = [position] * (last - first + 1)
    return owners


def _runs(owners: list[int | None]) -> list[Piece]:
    runs: list[Piece] = []
    first = 0
    for line in range(1, len(owners) + 1):
        if line == len(owners) or owners[line] != owners[first]:
            runs.append(Piece(first, line, owners[first]))
            first = line
    return runs


def _trails(piece: Piece, before: Piece, definitions: list[Definition], lines: Lines) -> bool:
    """A line or two after a function are searched with it: alone they would be too short to be compared."""
    if before.definition is None or definitions[before.definition].kind not in WHOLE_KINDS:
        return False
    if piece.definition is not None and definitions[piece.definition].span.first == piece.first + 1:
        return False
    return lines.slice(piece.first, piece.end).strip().count(b"\n") < _TRAILING


def _split(piece: Piece) -> list[Piece]:
    length = piece.end - piece.first
    parts = -(-length // _MOST_LINES)
    bounds = [piece.first + length * part // parts for part in range(parts + 1)]
    return [Piece(first, end, piece.definition) for first, end in pairwise(bounds)]
