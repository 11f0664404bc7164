"""The text of a file, or of whole lines of it, at each depth.

The code for an answer is masked before it is counted, because it may be sent to a model; strategies search
the unmasked code. A strategy may name any lines, but only whole units are shown. A unit is the innermost
definition that contains all of these lines. Outside of definitions, it is the chunks that the lines touch,
extended so that no definition is cut in half.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from cleveragents.context.code_index import ChunkLayout, CodePlace, CodeSnapshot, IndexStatus, Postings
from cleveragents.context.model.code import CodeFile, Definition, Field, FileAnalysis, LineSpan
from cleveragents.context.model.code_terms import terms_of
from cleveragents.context.model.context import Depth
from cleveragents.context.pipeline.steps import attempted
from cleveragents.core.text.redaction import redact_content_text

__all__ = [
    "CodeText",
    "LineUnit",
    "NoCode",
    "ShownCode",
    "printable",
    "touch",
    "unit_of",
    "without_crossings",
]


_MOST_MEMBERS: Final = 200
_MOST_NAMES: Final = 60

_DEEPEST: Final = 3
"""Maximum nesting of definitions that are named."""

_MATTER: Final = 4
"""The divisor of the share reserved for relevant definitions: with their parents, they stay below the total.
"""
_LONGEST_SIGNATURE: Final = 30
_LONGEST_LINE: Final = 2000
_LONGEST_COMMENT: Final = 60

_VALUES: Final = ("variable", "constant", "field", "property")
"""Kinds without a signature: their first line describes them."""
_QUOTES: Final = ('"""', "'''", '"', "'", 'r"""', "r'''")
_COMMENTS: Final = ("///", "//!", "//", "/**", "/*", "*", "#", "--", ";")
_COMMENTS_BUT_HASHES: Final = tuple(sign for sign in _COMMENTS if sign != "#")

_DIRECTIVES: Final = ("c", "cpp")
"""Languages in which `#` does not start a comment."""
T = TypeVar("T")
_MOST_CHARACTERS: Final = 4_000_000

_WITH_A_BODY: Final = ("function", "method", "constructor", "lambda", "macro", "closure")
"""Kinds whose head alone says too little: a function must not be cut, while a class may be shown by its head.
"""


def printable(text: str) -> str:
    """Return the text on one line, without characters that a terminal or a model could misinterpret."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


class CodeText:
    """One file: its lines and definitions. Immutable.

    If there are too many definitions to list, those with a `wanted` term or with lines in `near` are
    preferred.
    """

    def __init__(
        self,
        path: str,
        text: str,
        analysis: FileAnalysis,
        wanted: Mapping[str, float] | None = None,
        near: Sequence[LineSpan] = (),
    ) -> None:
        self.path = printable(path)
        self.analysis = analysis
        self._wanted = wanted or {}
        self._near = near
        self.lines: Sequence[str] = text.split("\n")
        if len(self.lines) > 1 and not self.lines[-1]:
            self.lines = self.lines[:-1]

    def at(self, depth: Depth, unit: LineUnit | None = None) -> str | None:
        """Return the text at a depth; None if there is nothing to show."""
        if depth is Depth.PATH:
            return self._heading(unit)
        if depth is Depth.MEMBERS:
            return self._members(unit)
        if depth is Depth.FULL:
            return self._full(unit)
        return self._signatures(unit, documented=depth is Depth.OUTLINE)

    def _heading(self, unit: LineUnit | None, how: str = "") -> str:
        what = f" ({how})" if how else ""
        if unit is None:
            return f"### {self.path}{what}"
        named = "" if unit.definition is None else f" {printable(self.analysis.qualified(unit.definition))}"
        return f"### {self.path}:{unit.span.first}-{unit.span.last}{named}{what}"

    def _members(self, unit: LineUnit | None) -> str | None:
        positions = self._positions(unit)
        if not positions:
            return None
        named = self._foremost(positions, _MOST_NAMES)
        names = ", ".join(printable(self.analysis.qualified(position)) for position in named)
        more = f", and {len(positions) - len(named)} more" if len(positions) > len(named) else ""
        return f"{self._heading(unit, 'names')}\n{names}{more}"

    def _signatures(self, unit: LineUnit | None, *, documented: bool) -> str | None:
        positions = self._positions(unit)
        if not positions:
            return None
        how = "outline" if documented else "signatures"
        shown = [self._heading(unit, how)]
        foremost = self._foremost(positions, _MOST_MEMBERS)
        for position in foremost:
            shown.extend(self._signature(position, documented=documented))
        if len(positions) > len(foremost):
            shown.append(f"… and {len(positions) - len(foremost)} more")
        return "\n".join(shown)

    def _signature(self, position: int, *, documented: bool) -> Iterable[str]:
        definition = self.analysis.definitions[position]
        signature = definition.signature
        if definition.kind in _VALUES and self._lines(signature):
            more = " …" if definition.span.last > signature.first else ""
            return [f"{self.lines[signature.first - 1][:_LONGEST_LINE]}{more}"]
        last = min(signature.last, definition.span.last)
        if last - signature.first >= _LONGEST_SIGNATURE or not self._lines(signature):
            return [f"{definition.kind} {printable(self.analysis.qualified(position))}"]
        lines = self._lines(LineSpan(signature.first, last))
        if not documented:
            return lines
        below = self._words_below(definition.span, last)
        return [*lines, below] if below else [*self._words_above(signature.first), *lines]

    def _words_below(self, span: LineSpan, last: int) -> str | None:
        """Return the first words of a documentation string below the signature."""
        body = self.lines[last : min(span.last, len(self.lines))]
        if not body or not body[0].strip().startswith(_QUOTES):
            return None
        if body[0].strip() not in _QUOTES:
            return body[0][:_LONGEST_LINE]
        words = next((line.strip() for line in body[1:] if line.strip()), "")
        return f"{body[0].rstrip()}{words}"[:_LONGEST_LINE]

    def _words_above(self, first: int) -> list[str]:
        """Return the first line of the comment directly above."""
        signs = _COMMENTS if self.analysis.language not in _DIRECTIVES else _COMMENTS_BUT_HASHES
        above: list[str] = []
        for line in reversed(self.lines[max(0, first - 1 - _LONGEST_COMMENT) : first - 1]):
            if not line.strip().startswith((*signs, "@")):
                break
            above.insert(0, line)
        said = [line for line in above if line.strip().strip("/*!#-; ") and not line.strip().startswith("@")]
        return [line[:_LONGEST_LINE] for line in said[:1]]

    def _full(self, unit: LineUnit | None) -> str | None:
        lines = self.lines if unit is None else self._lines(unit.span)
        if not any(line.strip() for line in lines):
            return None
        return "\n".join([self._heading(unit), *lines])

    def _lines(self, span: LineSpan) -> list[str]:
        return list(self.lines[span.first - 1 : span.last])

    def _positions(self, unit: LineUnit | None) -> list[int]:
        """Return the positions of the definitions in the unit, or in the file if `unit` is None, in the order
        of their lines.
        """
        every = enumerate(self.analysis.definitions)
        if unit is None:
            chosen = [position for position, one in every if _depth(self.analysis, position) < _DEEPEST]
        else:
            chosen = [
                position
                for position, one in every
                if unit.span.contains(one.span) or position == unit.definition
            ]
        return sorted(chosen, key=lambda position: self.analysis.definitions[position].span)

    def _foremost(self, positions: list[int], most: int) -> list[int]:
        """Return at most `most` of the positions, in order: the positions of relevant definitions and their
        parents, filled up with the first of the others.
        """
        if len(positions) <= most:
            return positions
        worth = {position: self._worth(position) for position in positions}
        matter = sorted((one for one in positions if worth[one] > 0), key=lambda one: -worth[one])
        kept: set[int] = set()
        for position in matter[: most // _MATTER]:
            kept.update(self._with_parents(position))
        kept &= set(positions)
        kept.update([one for one in positions if one not in kept][: most - len(kept)])
        return [one for one in positions if one in kept]

    def _worth(self, position: int) -> float:
        definition = self.analysis.definitions[position]
        words = sum(self._wanted.get(term, 0.0) for term in terms_of(definition.name))
        lies_there = any(touch(definition.span, span) for span in self._near)
        return words + (1.0 if lies_there else 0.0)

    def _with_parents(self, position: int) -> Iterable[int]:
        at: int | None = position
        for _ in range(_DEEPEST):
            if at is None:
                return
            yield at
            at = self.analysis.definitions[at].parent


def _depth(analysis: FileAnalysis, position: int) -> int:
    depth = 0
    parent = analysis.definitions[position].parent
    while parent is not None and depth < _DEEPEST:
        depth += 1
        parent = analysis.definitions[parent].parent
    return depth


class ShownCode:
    """A `CodeSnapshot` that masks texts and caches them for one answer; unreadable files are noted.

    Any thread may use it: the cache only grows, and if two threads read a text at once, both get the same.
    """

    def __init__(self, code: CodeSnapshot, files: Sequence[CodeFile], note: Callable[[str], None]) -> None:
        self._code = code
        self._files = files
        self._note = note
        self._texts: dict[str, str] = {}

    @property
    def source(self) -> CodeSnapshot:
        """The snapshot itself, with its texts unmasked: for searches, never for an answer."""
        return self._code

    @property
    def place(self) -> CodePlace:
        return self._code.place

    @property
    def files(self) -> Sequence[CodeFile]:
        return self._files

    @property
    def status(self) -> IndexStatus:
        return self._code.status

    @property
    def chunks(self) -> ChunkLayout:
        return self._code.chunks

    def postings(self, field: Field, terms: Sequence[str]) -> Mapping[str, Postings]:
        return self._code.postings(field, terms)

    def analyses(self, documents: Sequence[int]) -> Mapping[int, FileAnalysis]:
        return self._asked(lambda: self._code.analyses(documents), "what files define")

    def text(self, path: str) -> str:
        found = self._texts.get(path)
        if found is None:
            found = self._texts[path] = self._asked(lambda: self._masked(path), path)
        return found

    def _masked(self, path: str) -> str:
        text = self._code.text(path)
        if len(text) > _MOST_CHARACTERS:  # guard: masking takes time, and none of it would be shown
            raise ValueError(f"it has more than {_MOST_CHARACTERS:,} characters")
        return redact_content_text(text)  # before it is counted

    def _asked(self, act: Callable[[], T], what: str) -> T:
        outcome = attempted(act)
        if not outcome.given:
            self._note(f"{printable(what)} could not be read: it {outcome.problem}")
            raise LookupError(what)
        return outcome.given[0]


class NoCode:
    """A `CodeSnapshot` of a place that could not be opened; it is empty. Immutable."""

    files: Sequence[CodeFile] = ()
    status = IndexStatus(0, 0)

    def __init__(self, place: CodePlace) -> None:
        self.place = place

    @property
    def chunks(self) -> ChunkLayout:
        raise KeyError("nothing was opened")

    def postings(self, field: Field, terms: Sequence[str]) -> Mapping[str, Postings]:
        return {}

    def analyses(self, documents: Sequence[int]) -> Mapping[int, FileAnalysis]:
        return {}

    def text(self, path: str) -> str:
        raise KeyError(path)


@dataclass(frozen=True, slots=True)
class LineUnit:
    """Whole lines; `definition` is the position of the definition that they are or belong to."""

    span: LineSpan
    definition: int | None


def unit_of(span: LineSpan, analysis: FileAnalysis) -> LineUnit | None:
    """Return the unit that contains these lines; None if the file has no such lines."""
    if span.first > analysis.lines:
        return None
    within = LineSpan(span.first, min(span.last, max(span.first, analysis.lines)))
    for chunk in analysis.chunks:
        if chunk.span.contains(within) and chunk.definition is not None:
            return _unit_of_chunk(chunk.span, chunk.definition, analysis)
    position = _innermost(within, analysis.definitions)
    if position is None:
        return LineUnit(_whole(within, analysis), None)
    return LineUnit(analysis.definitions[position].span, position)


def without_crossings(units: Iterable[LineUnit]) -> list[LineUnit]:
    """Return the units in order, without units that partly overlap an earlier unit."""
    kept: list[LineUnit] = []
    for unit in units:
        if unit not in kept and not any(_cross(unit.span, other.span) for other in kept):
            kept.append(unit)
    return kept


def _innermost(span: LineSpan, definitions: tuple[Definition, ...]) -> int | None:
    found: int | None = None
    size = 0
    for position, definition in enumerate(definitions):
        if definition.span.contains(span):
            lines = definition.span.last - definition.span.first
            if found is None or lines <= size:
                found, size = position, lines
    return found


def _unit_of_chunk(chunk: LineSpan, position: int, analysis: FileAnalysis) -> LineUnit:
    """Return the definition of the chunk with the comments above it. For a chunk of a class, return the chunk
    itself if it cuts no member in half.
    """
    definition = analysis.definitions[position]
    if chunk.contains(definition.span):
        return LineUnit(LineSpan(chunk.first, definition.span.last), position)
    members = [one.span for one in analysis.definitions if one.parent == position]
    with_a_body = _is_body(position, analysis.definitions)
    cut = any(touch(chunk, member) and not chunk.contains(member) for member in members)
    if with_a_body or cut or not members:  # guard: no definition is cut in half
        return LineUnit(definition.span, position)
    return LineUnit(chunk, position)


def _is_body(position: int | None, definitions: tuple[Definition, ...]) -> bool:
    """Return whether a definition is a function or lies within a function."""
    while position is not None:
        definition = definitions[position]
        if any(word in definition.kind for word in _WITH_A_BODY):
            return True
        position = definition.parent
    return False


def _whole(span: LineSpan, analysis: FileAnalysis) -> LineSpan:
    """Extend the lines so that they include every chunk and definition that they touch."""
    chunks = [chunk.span for chunk in analysis.chunks if touch(chunk.span, span)]
    whole = _around(span, chunks)
    outer = [definition.span for definition in analysis.definitions if definition.parent is None]
    while True:
        wider = _around(whole, [one for one in outer if touch(one, whole)])
        if wider == whole:
            return whole
        whole = wider


def _around(span: LineSpan, others: list[LineSpan]) -> LineSpan:
    first = min([span.first, *(other.first for other in others)])
    return LineSpan(first, max([span.last, *(other.last for other in others)]))


def touch(one: LineSpan, other: LineSpan) -> bool:
    """Return whether two spans have a line in common."""
    return one.first <= other.last and other.first <= one.last


def _cross(one: LineSpan, other: LineSpan) -> bool:
    return touch(one, other) and not one.contains(other) and not other.contains(one)
