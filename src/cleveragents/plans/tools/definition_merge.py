"""Merge a piece of code into a file by the names of its definitions.

Small models answer with the functions they changed, not with the whole file. A definition of the piece
replaces the definition of the same name in the file, a new definition is added, missing imports are added,
and everything else in the file stays as it is. Nothing is ever deleted. The grammars of the code search find
the definitions, so the merge works for every language with such a grammar.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cleveragents.context.analysis.content import analyse
from cleveragents.context.analysis.syntax import THIN_KINDS, WHOLE_KINDS
from cleveragents.context.model.code import Definition, FileAnalysis, LineSpan

__all__ = ["MergeRefused", "MergedCode", "elision_in", "merge_definitions", "names_in"]

_IMPORT = re.compile(r"(?:import|from|use|using|require|#include|extern crate|include)\b")
_ELISION = re.compile(
    r"^\s*(?:#|//|/\*|--|<!--|%)\s*(?:\.{3}|…|\(?(?:the )?(?:rest|remaining|existing|other|previous)\b"
    r".{0,40}\b(?:code|function|method|class|file|content|implementation|unchanged|same)|\(?unchanged\b)",
    re.IGNORECASE | re.MULTILINE,
)
_MAIN = re.compile(r"if __name__ ==")
_OPENERS, _CLOSERS = "([{", ")]}"


class MergeRefused(ValueError):
    """The piece cannot be merged. The text tells the reason to the model that wrote the piece."""


@dataclass(frozen=True, slots=True)
class MergedCode:
    """The new text of the file, and the names that were replaced and added."""

    text: str
    replaced: tuple[str, ...]
    added: tuple[str, ...]


def elision_in(code: str) -> str | None:
    """Return the first comment that stands for omitted code, such as `# ... rest unchanged`; else None."""
    found = _ELISION.search(code)
    return found.group().strip() if found else None


def names_in(path: str, code: str, *, nested: bool = False) -> tuple[str, ...]:
    """Return the names of the functions, classes and similar definitions in a piece of code: only the
    outermost ones, or also nested ones.
    """
    analysis = analyse(path, code.encode())
    definitions = analysis.definitions if nested else _tops(analysis)
    return tuple(one.name for one in definitions if one.kind not in THIN_KINDS)


def merge_definitions(path: str, old: str, piece: str) -> MergedCode:
    """Merge the definitions of the piece into the file: replace definitions of the same name, and add the
    others.

    Raises `MergeRefused` if the piece has no definitions, a name is ambiguous, or a function is incomplete.
    """
    merge = _Merge.of(path, old, piece)
    tops = list({one.name: one for one in _tops(merge.new)}.values())  # of two with one name, the last counts
    if not tops:
        raise MergeRefused("the block contains no function or class")
    if _covers(merge, tops):
        return MergedCode(piece, tuple(one.name for one in tops), ())
    before: int | None = None
    for one in tops:
        before = merge.place(one, before)
    merge.add_imports(tops)
    return MergedCode(merge.text(), tuple(merge.replaced), tuple(merge.added))


def _tops(analysis: FileAnalysis) -> list[Definition]:
    return [one for one in analysis.definitions if one.parent is None]


def _covers(merge: _Merge, tops: Sequence[Definition]) -> bool:
    """Return whether the piece is a whole new file: it has every definition and every import of the file."""
    if elision_in("\n".join(merge.piece)):
        return False
    known = {one.name for one in tops}
    written = {_squeezed(part) for part in _imports(merge.piece, tops)}
    gone = [one for one in _tops(merge.old) if one.name not in known]
    lost = [part for part in _imports(merge.lines, _tops(merge.old)) if _squeezed(part) not in written]
    inside = [one for one in tops if _missing_children(merge, one)]
    opening = next((line for line in merge.lines if line.strip()), "")
    return not gone and not lost and not inside and opening in merge.piece


def _missing_children(merge: _Merge, one: Definition) -> bool:
    old = [known for known in _tops(merge.old) if known.name == one.name]
    if len(old) != 1:
        return False
    return bool(
        {c.name for c in merge.children(merge.old, old[0])} - {c.name for c in merge.children(merge.new, one)}
    )


@dataclass(slots=True)
class _Merge:
    """A merge in progress. `edits` are line ranges of the old file and the lines that replace them."""

    old: FileAnalysis
    new: FileAnalysis
    lines: list[str]
    piece: list[str]
    edits: list[tuple[int, int, list[str]]] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, path: str, old: str, piece: str) -> _Merge:
        known, new = analyse(path, old.encode()), analyse(path, piece.encode())
        if known.opaque or new.opaque:
            raise MergeRefused(f"the file is {known.opaque or new.opaque}; write the whole file")
        return cls(known, new, old.split("\n"), piece.split("\n"))

    def children(self, analysis: FileAnalysis, one: Definition) -> list[Definition]:
        position = analysis.definitions.index(one)
        return [child for child in analysis.definitions if child.parent == position]

    def place(self, one: Definition, before: int | None) -> int | None:
        """Put one outermost definition into the file; return the line after which the next one belongs."""
        target = self._target(one)
        if target is None:
            after = self._end() if before is None else before
            self._insert(after, self._body(one), apart=1 if one.kind in THIN_KINDS else self._apart)
            self.added.append(one.name)
            return after
        members = self.children(self.new, one)
        kept = {child.name for child in self.children(self.old, target)} - {child.name for child in members}
        if members and kept and one.kind not in WHOLE_KINDS:
            self._merge_members(one, target)
        else:
            self._replace(target, one)
        return target.span.last

    def _target(self, one: Definition) -> Definition | None:
        """Return the definition that `one` replaces; None if it is new."""
        same = [known for known in _tops(self.old) if known.name == one.name]
        if not same and one.kind in WHOLE_KINDS:  # a method that is written without its class
            same = [known for known in self.old.definitions if known.name == one.name]
        if len(same) > 1:
            signature = _squeezed(self._head(self.piece, one))
            same = [known for known in same if _squeezed(self._head(self.lines, known)) == signature] or same
        if len(same) > 1:  # guard: the first place may be the wrong one
            raise MergeRefused(
                f"the file has {len(same)} definitions of {one.name}; write the class around it, too"
            )
        return same[0] if same else None

    def _head(self, lines: Sequence[str], one: Definition) -> str:
        return "\n".join(lines[one.signature.first - 1 : one.signature.last])

    def _merge_members(self, one: Definition, target: Definition) -> None:
        known = self.children(self.old, target)
        for child in self.children(self.new, one):
            same = [old for old in known if old.name == child.name]
            if len(same) == 1:
                self._replace(same[0], child)
            elif not same:
                last = max([old.span.last for old in known] or [target.span.last])
                self._insert(last, self._body(child), apart=1)
                self.added.append(f"{one.name}.{child.name}")

    def _replace(self, target: Definition, one: Definition) -> None:
        body = self._body(one)
        indent = _indent(self.lines[target.span.first - 1])
        shift = len(indent) - len(_indent(body[0]))
        if shift > 0:
            body = [f"{indent[:shift]}{line}" if line.strip() else line for line in body]
        elif shift < 0:
            body = [line[-shift:] if not line[:-shift].strip() else line for line in body]
        if body != self.lines[target.span.first - 1 : target.span.last]:
            self.edits.append((target.span.first - 1, target.span.last, body))
            self.replaced.append(one.name)

    def _body(self, one: Definition) -> list[str]:
        above = self.piece[one.span.first - 1 : one.signature.first - 1]
        body = self.piece[one.signature.first - 1 : one.span.last]
        omitted = elision_in("\n".join(body))
        if omitted and one.kind in WHOLE_KINDS:  # guard: half a function would replace a whole one
            raise MergeRefused(f"{one.name} is incomplete: {omitted!r}; write all of its lines")
        return [*(line for line in above if not elision_in(line)), *body]

    def _insert(self, after: int, body: list[str], *, apart: int) -> None:
        self.edits.append((after, after, [*([""] * apart if after else []), *body]))

    @property
    def _apart(self) -> int:
        return 2 if self.old.language == "python" else 1

    def _end(self) -> int:
        """Return the number of the line after which new definitions are inserted: the last line before the
        main block.
        """
        end = next((at for at, line in enumerate(self.lines) if _MAIN.match(line)), len(self.lines))
        while end and not self.lines[end - 1].strip():
            end -= 1
        return end

    def add_imports(self, tops: Sequence[Definition]) -> None:
        """Add the imports of the piece that the file lacks, after the last import of the file."""
        present = {_squeezed(part) for part in _imports(self.lines, _tops(self.old))}
        new = [part for part in _imports(self.piece, tops) if _squeezed(part) not in present]
        if not new:
            return
        lines = [line for part in new for line in part.split("\n")]
        last = max((end for _, end in _import_spans(self.lines, _tops(self.old))), default=0)
        if last:
            self.edits.append((last, last, lines))
            return
        start = _after_opening(self.lines)
        self.edits.append((start, start, [*([""] if start else []), *lines, *([] if start else [""])]))

    def text(self) -> str:
        lines = list(self.lines)
        for first, last, body in sorted(self.edits, key=lambda edit: edit[:2], reverse=True):
            lines[first:last] = body
        return "\n".join(lines).rstrip("\n") + "\n"


def _imports(lines: Sequence[str], tops: Sequence[Definition]) -> list[str]:
    return ["\n".join(lines[first:last]) for first, last in _import_spans(lines, tops)]


def _import_spans(lines: Sequence[str], tops: Sequence[Definition]) -> Iterator[tuple[int, int]]:
    """Yield the line ranges of imports outside of definitions, including those of several lines."""
    spans = sorted(one.span for one in tops)
    at = 0
    while at < len(lines):
        if not _IMPORT.match(lines[at]) or _is_inside(at + 1, spans):
            at += 1
            continue
        end, depth = at, 0
        while end < len(lines):
            depth += sum(lines[end].count(sign) for sign in _OPENERS)
            depth -= sum(lines[end].count(sign) for sign in _CLOSERS)
            end += 1
            if depth <= 0:
                break
        yield at, end
        at = end


def _is_inside(line: int, spans: Sequence[LineSpan]) -> bool:
    before = bisect_left(spans, line + 1, key=lambda span: span.first) - 1
    return before >= 0 and line <= spans[before].last


def _after_opening(lines: Sequence[str]) -> int:
    """Return the line after the comments and the documentation at the top of a file."""
    at = 0
    while at < len(lines) and (lines[at].startswith(("#", "//")) or not lines[at].strip()):
        at += 1
    quote = next((mark for mark in ('"""', "'''") if at < len(lines) and lines[at].startswith(mark)), None)
    if quote is None:
        return at if at and lines[at - 1].strip() else 0
    at += 1
    if lines[at - 1].count(quote) == 1:
        while at < len(lines) and quote not in lines[at]:
            at += 1
        at += 1
    return min(at, len(lines))


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _squeezed(code: str) -> str:
    return " ".join(code.split())
