"""Text that no grammar knows: chunks of some sixty lines, and sections where headings make them."""

from __future__ import annotations

import re

from cleveragents.context.analysis.chunking import Piece
from cleveragents.context.analysis.lines import Lines
from cleveragents.context.analysis.opacity import PROSE
from cleveragents.context.analysis.syntax import Passage, Syntax
from cleveragents.context.model.code import Definition, Field, Span

__all__ = ["read_text"]

_LINES = 60
_MOST_SECTIONS = 2_000
_LONGEST_NAME = 200

_MARKED = re.compile(rb"^(#{1,6})[ \t]+(\S[^\n]*?)[ \t#]*$")
_UNDERLINE = re.compile(rb"^([=\-~^\"'`#*+.:_])\1{2,}[ \t\r]*$")
_FENCE = re.compile(rb"^[ \t]*(?:```|~~~)")


def read_text(path: str, lines: Lines) -> tuple[Syntax, list[Piece]]:
    """Its sections, if it is of a kind that has headings, and the pieces it falls into."""
    headings = _headings(path.lower(), lines)
    syntax = Syntax()
    if path.lower().endswith(PROSE):
        syntax.passages.append(Passage(0, len(lines.data), Field.DOC))
    open_sections: list[tuple[int, int]] = []
    for number, (line, level, name, head_lines) in enumerate(headings):
        while open_sections and open_sections[-1][0] >= level:
            open_sections.pop()
        ends = next((one[0] for one in headings[number + 1 :] if one[1] <= level), lines.count)
        parent = open_sections[-1][1] if open_sections else None
        open_sections.append((level, number))
        span, head = Span(line + 1, ends), Span(line + 1, line + head_lines)
        syntax.definitions.append(Definition(name, "section", span, head, parent))
        syntax.names.append((line, name))
    return syntax, _pieces([heading[0] for heading in headings], lines.count)


def _headings(path: str, lines: Lines) -> list[tuple[int, int, str, int]]:
    """Line, level, name and number of lines of each heading."""
    if path.endswith((".md", ".markdown")):
        return _marked(lines)
    if path.endswith(".rst"):
        return _underlined(lines)
    return []


def _marked(lines: Lines) -> list[tuple[int, int, str, int]]:
    found: list[tuple[int, int, str, int]] = []
    fenced = False
    for number, line in enumerate(lines.data.split(b"\n")):
        if _FENCE.match(line):
            fenced = not fenced
        elif (
            not fenced
            and line.startswith(b"#")
            and (match := _MARKED.match(line))
            and len(found) < _MOST_SECTIONS
        ):
            found.append((number, len(match[1]), _name(match[2]), 1))
    return found


def _underlined(lines: Lines) -> list[tuple[int, int, str, int]]:
    """A line that is underlined by a sign is a heading; the sign that comes first is the highest level."""
    found: list[tuple[int, int, str, int]] = []
    signs: list[bytes] = []
    all_lines = lines.data.split(b"\n")
    for number in range(1, len(all_lines)):
        match = _UNDERLINE.match(all_lines[number])
        title = all_lines[number - 1].strip()
        if (
            match is None
            or not title
            or _UNDERLINE.match(title)
            or len(title) > len(all_lines[number].strip())
        ):
            continue
        if len(found) == _MOST_SECTIONS:
            break
        if match[1] not in signs:
            signs.append(match[1])
        found.append((number - 1, signs.index(match[1]), _name(title), 2))
    return found


def _name(title: bytes) -> str:
    return title.decode("utf-8", "replace").strip()[:_LONGEST_NAME]


def _pieces(headings: list[int], count: int) -> list[Piece]:
    """A section is a piece if it is no longer than a chunk should be; a longer one is several."""
    bounds = sorted({0, *headings})
    pieces: list[Piece] = []
    positions = {line: number for number, line in enumerate(headings)}
    for first, end in zip(bounds, [*bounds[1:], count], strict=True):
        starts = range(first, end, _LINES)
        pieces += [Piece(start, min(start + _LINES, end), positions.get(first)) for start in starts]
    return pieces
