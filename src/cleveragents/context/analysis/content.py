"""Analysis of one file's content. It accepts any bytes and takes bounded time.

Text without a grammar is split into chunks of about sixty lines, or into sections at headings. Binary, very
large and generated contents are not searched. Code is split into whole functions and the lines between them.
The lines of a class between its functions belong to the class, and may form several chunks. The same holds
for other definitions that contain functions. The terms of each chunk are counted by field.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import pairwise, takewhile
from typing import NamedTuple

from cleveragents.context.analysis.language import language_of
from cleveragents.context.analysis.syntax import THIN_KINDS, WHOLE_KINDS, Lines, Passage, Syntax, read_syntax
from cleveragents.context.model.code import Chunk, Definition, Field, FileAnalysis, LineSpan
from cleveragents.context.model.code_terms import TermCache, count_terms, terms_of_name, words_of

__all__ = [
    "ANALYSIS_VERSION",
    "LARGEST",
    "PROSE",
    "LineRange",
    "analyse",
    "chunks_of",
    "cut",
    "decode",
    "opaque_because",
    "read_text",
]


ANALYSIS_VERSION = 1
"""Increased when the same content yields a different analysis, so that an index knows what to recompute."""
_LARGEST_PARSED = (
    500_000  # larger files are tables or collections, and reading them as text is ten times cheaper
)
_LINES = 60
_MOST_SECTIONS = 2_000
_LONGEST_NAME = 200
_MARKED = re.compile(rb"^(#{1,6})[ \t]+(\S[^\n]*?)[ \t#]*$")
_UNDERLINE = re.compile(rb"^([=\-~^\"'`#*+.:_])\1{2,}[ \t\r]*$")
_FENCE = re.compile(rb"^[ \t]*(?:```|~~~)")
LARGEST = 1_000_000
_HEAD = 8192
_MARKED_WITHIN = 1024
_LONG_LINES = 400
_SHORT_ENOUGH = 4096  # a file of one long line up to this size is a small file, not a minified one
# A file that is left out can never be found. So a generated part, or a mere request not to edit, is not
# enough.
_GENERATED = re.compile(
    rb"@generated\b|\bgenerated\b.{,200}\bdo not (?:edit|modify)\b"
    rb"|\bdo not (?:edit|modify)\b.{,200}\bgenerated\b"
    rb"|\b(?:file|code|module) (?:is|was|has been) (?:auto-?|automatically )generated\b",
    re.IGNORECASE | re.DOTALL,
)
_COMMENTS = (b"#", b"//", b"/*", b"*", b"--", b";", b"<!--", b"<?", b"%")

PROSE = (".md", ".rst", ".txt", ".adoc", ".markdown", ".org")
"""Suffixes of files written for people: all of it is documentation, and lines may be long."""

_MOST_LINES = 200
_TRAILING = 2
_MOST_NAMES = 100_000
Terms = dict[Field, dict[str, int]]


def analyse(path: str, data: bytes) -> FileAnalysis:
    """Analyse a content. `path` only determines the kind of file."""
    because = opaque_because(path, data)
    language = language_of(path, data[:256])
    name = language.name if language is not None else "text"
    if because is not None:
        return FileAnalysis(name, data.count(b"\n") + (not data.endswith(b"\n")), opaque=because)
    lines = Lines(decode(data))
    syntax = read_syntax(language, lines) if language is not None and len(data) <= _LARGEST_PARSED else None
    keywords = language.keywords if language is not None else frozenset[str]()
    if syntax is not None:
        pieces = cut(syntax.definitions, lines)
    else:
        syntax, pieces = read_text(path, lines)
        name, keywords = "text", frozenset()
    chunks = chunks_of(pieces, syntax, lines, keywords)
    return FileAnalysis(name, lines.count, tuple(syntax.definitions), tuple(syntax.imports), tuple(chunks))


def read_text(path: str, lines: Lines) -> tuple[Syntax, list[LineRange]]:
    """Return the sections of a text (none if its kind of file has no headings) and its pieces."""
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
        span, head = LineSpan(line + 1, ends), LineSpan(line + 1, line + head_lines)
        syntax.definitions.append(Definition(name, "section", span, head, parent))
        syntax.names.append((line, name))
    return syntax, _pieces([heading[0] for heading in headings], lines.count)


def _headings(path: str, lines: Lines) -> list[tuple[int, int, str, int]]:
    """Return the line, level, name and number of lines of each heading."""
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
    """Return the headings that are underlined with a repeated character. The character that occurs first is
    the highest level.
    """
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


def _pieces(headings: list[int], count: int) -> list[LineRange]:
    """Split a text at its sections; a section longer than a chunk becomes several pieces."""
    bounds = sorted({0, *headings})
    pieces: list[LineRange] = []
    positions = {line: number for number, line in enumerate(headings)}
    for first, end in zip(bounds, [*bounds[1:], count], strict=True):
        starts = range(first, end, _LINES)
        pieces += [LineRange(start, min(start + _LINES, end), positions.get(first)) for start in starts]
    return pieces


def opaque_because(path: str, data: bytes) -> str | None:
    """Return the reason why `data` is not searched, or None if it is searched."""
    if b"\0" in data[:_HEAD]:
        return "binary"
    if len(data) > LARGEST:
        return "too large"
    if not path.lower().endswith(PROSE) and _is_marked(data[:_MARKED_WITHIN]):
        return "generated"
    lines = data.count(b"\n") + 1
    if len(data) > max(_SHORT_ENOUGH, lines * _LONG_LINES) and not path.lower().endswith(PROSE):
        return "generated"
    return None


def _is_marked(head: bytes) -> bool:
    """Return whether a comment at the start of the file marks it as generated.

    Only the start counts, because a comment further down may refer to other files.
    """
    if _GENERATED.search(head) is None:
        return False
    lines = map(bytes.strip, head.split(b"\n"))
    comment = takewhile(lambda line: not line or line.startswith(_COMMENTS), lines)
    return _GENERATED.search(b"\n".join(comment)) is not None


def decode(data: bytes) -> bytes:
    """Return the text in UTF-8 without a byte order mark. Other encodings are read as Latin-1."""
    if data.isascii():
        return data
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1").encode("utf-8")
    return data


class LineRange(NamedTuple):
    """Lines from `first` up to but excluding `end`, counted from 0."""

    first: int
    end: int
    definition: int | None


def cut(definitions: list[Definition], lines: Lines) -> list[LineRange]:
    """Split a content into ordered pieces that cover all lines."""
    pieces: list[LineRange] = []
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
    """Return the definition that each line belongs to: the innermost definition. Everything inside a function
    belongs to the function.
    """
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


def _runs(owners: list[int | None]) -> list[LineRange]:
    runs: list[LineRange] = []
    first = 0
    for line in range(1, len(owners) + 1):
        if line == len(owners) or owners[line] != owners[first]:
            runs.append(LineRange(first, line, owners[first]))
            first = line
    return runs


def _trails(piece: LineRange, before: LineRange, definitions: list[Definition], lines: Lines) -> bool:
    """Return whether a piece is joined to the function before it, because a piece of one or two lines would
    be too short to be searched by itself.
    """
    if before.definition is None or definitions[before.definition].kind not in WHOLE_KINDS:
        return False
    if piece.definition is not None and definitions[piece.definition].span.first == piece.first + 1:
        return False
    return lines.slice(piece.first, piece.end).strip().count(b"\n") < _TRAILING


def _split(piece: LineRange) -> list[LineRange]:
    length = piece.end - piece.first
    parts = -(-length // _MOST_LINES)
    bounds = [piece.first + length * part // parts for part in range(parts + 1)]
    return [LineRange(first, end, piece.definition) for first, end in pairwise(bounds)]


def chunks_of(
    pieces: Sequence[LineRange], syntax: Syntax, lines: Lines, keywords: frozenset[str]
) -> list[Chunk]:
    """Return one chunk for each piece with terms; a piece without terms joins the previous piece."""
    counter = _TermCounter(syntax, lines, keywords)
    chunks: list[Chunk] = []
    first = 0
    for piece in pieces:
        terms = counter.count(piece)
        if terms:
            chunks.append(Chunk(LineSpan(first + 1, piece.end), piece.definition, terms))
        elif chunks:
            last = chunks[-1]
            chunks[-1] = Chunk(LineSpan(last.span.first, piece.end), last.definition, last.terms)
        else:
            continue
        first = piece.end
    if not chunks and lines.count:
        chunks.append(Chunk(LineSpan(1, lines.count), None))
    return chunks


class _TermCounter:
    """Counts the terms of a file from top to bottom. Not thread-safe: one per content."""

    def __init__(self, syntax: Syntax, lines: Lines, keywords: frozenset[str]) -> None:
        self._lines = lines
        self._wholes = _wholes_of(keywords)
        self._passages = syntax.passages
        self._next_passage = 0
        self._names = sorted(syntax.names)
        self._next_name = 0

    def count(self, piece: LineRange) -> Terms:
        texts: dict[Field, list[bytes]] = {}
        code = words_of(self._part(self._lines.starts[piece.first], self._lines.starts[piece.end], texts))
        names = words_of("\n".join(self._names_before(piece.end)))
        everything = code
        terms: Terms = {}
        for field, passages in texts.items():
            words = words_of(_text(passages))
            terms[field] = count_terms(words)
            everything = everything + words
        terms[Field.BODY] = count_terms(everything)
        terms[Field.NAME] = count_terms(names)
        terms[Field.REFERENCE] = self._references(code, names)
        return {field: counts for field, counts in terms.items() if counts}

    def _part(self, start: int, end: int, texts: dict[Field, list[bytes]]) -> str:
        """Return the code between two offsets and add its passages to `texts`."""
        data = self._lines.data
        passages = self._passages
        code: list[bytes] = []
        at = start
        while self._next_passage < len(passages) and passages[self._next_passage].start < end:
            passage = passages[self._next_passage]
            opens, closes = max(passage.start, start), min(passage.end, end)
            code.append(data[at:opens])
            texts.setdefault(passage.field, []).append(data[opens:closes])
            at = closes
            if passage.end > end:
                break
            self._next_passage += 1
        code.append(data[at:end])
        return _text(code)

    def _names_before(self, end: int) -> list[str]:
        names = []
        while self._next_name < len(self._names) and self._names[self._next_name][0] < end:
            names.append(self._names[self._next_name][1])
            self._next_name += 1
        return names

    def _references(self, code: list[str], names: list[str]) -> dict[str, int]:
        used = Counter(map(self._wholes.__getitem__, code))
        used.subtract(map(self._wholes.__getitem__, names))
        del used[""]
        return {term: times for term, times in used.items() if times > 0}


def _text(pieces: list[bytes]) -> str:
    return b"\n".join(pieces).decode("utf-8", "replace")


@cache
def _wholes_of(keywords: frozenset[str]) -> TermCache[str]:
    """Return a cache that maps a name to the term for the whole name (`whole_of`), and any other word to an
    empty string.
    """

    def whole(word: str) -> str:
        terms = terms_of_name(word)
        return terms[-1] if terms and word not in keywords else ""

    return TermCache(whole, _MOST_NAMES)
