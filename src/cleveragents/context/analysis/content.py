"""Analyses the content of one file. It answers for any bytes, in bounded time.

Text that no grammar knows: chunks of some sixty lines, and sections where headings make them.

Which contents are not searched: what is no text, too large, or written by a program.
"""

from __future__ import annotations

import re
from itertools import takewhile

from cleveragents.context.analysis.chunking import Piece, chunks_of, cut
from cleveragents.context.analysis.language import language_of
from cleveragents.context.analysis.syntax import Lines, Passage, Syntax, read_syntax
from cleveragents.context.model.code import Definition, Field, FileAnalysis, Span

__all__ = ["ANALYSIS_VERSION", "LARGEST", "PROSE", "analyse", "decode", "opaque_because", "read_text"]


ANALYSIS_VERSION = 1
"""Goes up when the same content gets another analysis, so that an index knows what to work out again."""
_LARGEST_PARSED = 500_000  # what is larger is a table or a collection, and as text it costs a tenth

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
_SHORT_ENOUGH = 4096  # a file that is one long line and no longer than this is a small one, not a packed one
# A file that is left out cannot be found at all, so a part that is generated, or a mere plea, is not enough.
_GENERATED = re.compile(
    rb"@generated\b|\bgenerated\b.{,200}\bdo not (?:edit|modify)\b"
    rb"|\bdo not (?:edit|modify)\b.{,200}\bgenerated\b"
    rb"|\b(?:file|code|module) (?:is|was|has been) (?:auto-?|automatically )generated\b",
    re.IGNORECASE | re.DOTALL,
)
_COMMENTS = (b"#", b"//", b"/*", b"*", b"--", b";", b"<!--", b"<?", b"%")

PROSE = (".md", ".rst", ".txt", ".adoc", ".markdown", ".org")
"""Endings of files that people write for people: all of it is documentation, and lines may be long."""


def analyse(path: str, data: bytes) -> FileAnalysis:
    """What `data` says if it stands in a file called `path`, of which only the name's form matters."""
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


def opaque_because(path: str, data: bytes) -> str | None:
    """Why `data` is not searched, or None if it is."""
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
    """Whether the comment that a file begins with says so; further down it may be said of other files."""
    if _GENERATED.search(head) is None:
        return False
    lines = map(bytes.strip, head.split(b"\n"))
    comment = takewhile(lambda line: not line or line.startswith(_COMMENTS), lines)
    return _GENERATED.search(b"\n".join(comment)) is not None


def decode(data: bytes) -> bytes:
    """The same text in UTF-8 without a byte order mark; what is not UTF-8 is read as Latin-1."""
    if data.isascii():
        return data
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1").encode("utf-8")
    return data
