"""The syntax of a content: definitions, imports, documentation and strings.

The tree is read with one query, and only byte offsets of its nodes are used. This is fast, and avoids two
bugs in release 0.26.0 of the tree-sitter binding: it miscounts references to points, and crashes when it gets
a callback.

A line ends with a line feed; an empty content has no lines.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate
from time import thread_time
from typing import TYPE_CHECKING, NamedTuple

from cleveragents.context.analysis.language import Grammar, Language, grammar_of
from cleveragents.context.model.code import Definition, Field, Import, LineSpan

__all__ = ["THIN_KINDS", "WHOLE_KINDS", "Lines", "Passage", "Syntax", "read_syntax"]


if TYPE_CHECKING:
    from collections.abc import Callable

    import tree_sitter

    Clock = Callable[[], float]
    _Captures = dict[str, list[tree_sitter.Node]]

WHOLE_KINDS = frozenset({"function", "method", "macro"})
"""Kinds of definitions that form one chunk with everything inside them."""

THIN_KINDS = frozenset({"variable", "type", "declaration"})
"""Kinds of definitions that form no chunk but belong to the surrounding one."""
_HAVE_METHODS = frozenset({"class", "struct", "union", "enum", "interface", "trait", "impl", "variable"})
_ALL_HEAD = WHOLE_KINDS | {"declaration"}
_SCOPE = re.compile(r"::(?=.)")
_COMMENTS = (b"#", b"//", b"/*")
_SECONDS = 0.1
_SLOWEST = 250_000  # bytes per second; no machine is this slow with code that people write
_FIRST_PIECE = 4096
_LONGEST_PIECE = 32_768
_MOST_BROKEN = 20_000
_MOST_DEFINITIONS = 20_000
_MOST_IMPORTS = 2_000


class Passage(NamedTuple):
    """Bytes from `start` up to `end` are documentation or a string."""

    start: int
    end: int
    field: Field


class _Found(NamedTuple):
    """A definition before its lines are known. `head_end` is the end of its head if it has a body."""

    start: int
    end: int
    kind: str
    name: str
    name_at: int
    head_end: int | None

    def says_more_than(self, other: _Found) -> bool:
        """Return whether this match is better than another match of the same node: it has a body, or it is
        not just a variable.
        """
        return (self.kind not in THIN_KINDS, self.head_end is not None) > (
            other.kind not in THIN_KINDS,
            other.head_end is not None,
        )


@dataclass(slots=True)
class Syntax:
    """The syntax of a content.

    `definitions` are in order, an outer definition before those inside it. `names` are their names, verbatim,
    with their lines, counted from 0. `passages` are in order and do not overlap.
    """

    definitions: list[Definition] = field(default_factory=list)
    names: list[tuple[int, str]] = field(default_factory=list)
    imports: list[Import] = field(default_factory=list)
    passages: list[Passage] = field(default_factory=list)


def read_syntax(language: Language, lines: Lines, clock: Clock = thread_time) -> Syntax | None:
    """Parse a content. Return None if the grammar cannot read it or takes too long.

    Only the CPU time of this thread counts, so that a busy machine does not change the result.
    """
    import tree_sitter

    grammar = grammar_of(language)
    tree = _parse(grammar, lines.data, _Patience(clock))
    if tree is None:
        return None
    root = tree.root_node
    if root.has_error and _is_tangled(root):
        return None
    reader = _Reader(language, lines)
    for pattern, captures in tree_sitter.QueryCursor(grammar.query).matches(root):
        reader.take(grammar.roles[pattern], captures)
    if root.type == "ERROR" and not reader.found:
        return None
    return reader.syntax()


class _Patience:
    """A time limit that grows with the number of bytes that were parsed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock()

    def is_over(self, done: int) -> bool:
        """Return whether `done` bytes took too long."""
        return self._clock() - self._began > _SECONDS + done / _SLOWEST


def _parse(grammar: Grammar, data: bytes, patience: _Patience) -> tree_sitter.Tree | None:
    """Parse in increasing pieces, each on top of the previous tree.

    A running parser cannot be stopped, and some contents take quadratic time. Increasing pieces reveal such a
    content while the pieces are still small.
    """
    import tree_sitter

    parser = tree_sitter.Parser(grammar.language)
    size = _FIRST_PIECE
    tree = parser.parse(data[:size])
    while size < len(data):
        if patience.is_over(size):
            return None  # hostile content costs seconds, not minutes
        longer = min(2 * size, size + _LONGEST_PIECE, len(data))
        here = _point(data, size)
        tree.edit(size, size, longer, here, here, _point(data, longer))
        size = longer
        tree = parser.parse(data[:size], tree)
    return tree


def _point(data: bytes, offset: int) -> tuple[int, int]:
    return data.count(b"\n", 0, offset), offset - data.rfind(b"\n", 0, offset) - 1


def _is_tangled(root: tree_sitter.Node) -> bool:
    """Return whether syntax errors gave the tree so many sibling nodes that a query would take quadratic
    time.
    """
    broken = [root]
    left = _MOST_BROKEN
    while broken:
        node = broken.pop()
        left -= node.child_count
        if left < 0:
            return True  # a query cannot be stopped either
        broken += [child for child in node.children if child.has_error]
    return False


class _Reader:
    """Collects the results of the matches. Not thread-safe: one per content."""

    def __init__(self, language: Language, lines: Lines) -> None:
        self._language = language
        self._lines = lines
        self._data = lines.data
        self.found: dict[tuple[int, int], _Found] = {}
        self._passages: dict[int, Passage] = {}
        self._leads: dict[int, int] = {}
        self._comments: dict[int, int] = {}
        self._imports: dict[int, str] = {}

    def take(self, role: str, captures: _Captures) -> None:
        """Process one match. Strings and comments are the most frequent, so they are checked first."""
        if role == "string":
            node = captures["string"][0]
            start = node.start_byte
            if start not in self._passages:
                self._passages[start] = Passage(start, node.end_byte, Field.STRING)
        elif role in ("comment", "doc", "lead"):
            self._beside(role, captures[role][0], captures.get("body", captures[role])[0])
        elif role == "import":
            node = captures[role][0]
            self._imports[node.start_byte] = self._text(node)
        else:
            self._definition(role, captures)

    def _beside(self, role: str, first: tree_sitter.Node, last: tree_sitter.Node) -> None:
        """Store documentation, and lines that may belong to the definition below them."""
        start, end = first.start_byte, last.end_byte
        if role != "lead":
            self._passages[start] = Passage(start, end, Field.DOC)
        if role == "comment" and end > start:
            self._comments[end] = start
        if role != "doc":
            self._maybe_lead(start, max(end, start + 1))

    def _maybe_lead(self, start: int, end: int) -> None:
        starts = self._lines.starts
        first, last = self._lines.at(start), self._lines.at(end - 1)
        after = self._data[end : starts[last + 1]].strip()
        if not self._data[starts[first] : start].strip() and (not after or after.startswith(_COMMENTS)):
            self._leads[last] = first

    def _definition(self, role: str, captures: _Captures) -> None:
        node = captures[role][0]
        start, end = node.start_byte, node.end_byte
        name_node = captures["name"][0]
        name_at = name_node.start_byte
        name = self._text(name_node)
        body = captures.get("body")
        head_end = body[0].start_byte if body else None
        found = _Found(start, end, role.partition(".")[2], name, name_at, head_end)
        known = self.found.get((start, end))
        if name and (found.says_more_than(known) if known else len(self.found) < _MOST_DEFINITIONS):
            self.found[start, end] = found

    def _text(self, node: tree_sitter.Node) -> str:
        return self._data[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def syntax(self) -> Syntax:
        result = Syntax()
        for _, statement in sorted(self._imports.items())[:_MOST_IMPORTS]:
            result.imports += self._language.imports(statement)
        enclosing: list[tuple[int, int]] = []
        for found in sorted(self.found.values(), key=lambda one: (one.start, -one.end)):
            while enclosing and enclosing[-1][0] <= found.start:
                enclosing.pop()
            parent = enclosing[-1][1] if enclosing else None
            enclosing.append((found.end, len(result.definitions)))
            result.definitions.append(self._placed(found, parent, result.definitions))
            result.names.append((self._lines.at(found.name_at), found.name))
        end = 0
        for start in sorted(self._passages):
            passage = self._passages[start]
            if start >= end:
                result.passages.append(passage)
                end = passage.end
        return result

    def _placed(self, found: _Found, parent: int | None, before: list[Definition]) -> Definition:
        lines = self._lines
        head = lines.at(found.start)
        first = head
        while first - 1 in self._leads:
            first = self._leads[first - 1]
        last = lines.at(max(found.end - 1, found.start))
        kind = found.kind
        if parent is not None:
            first = max(first, before[parent].span.first - 1)
            if kind == "function" and before[parent].kind in _HAVE_METHODS:
                kind = "method"
        signature = self._signature(found, head, last)
        name = _SCOPE.split(found.name)[-1]
        return Definition(name, kind, LineSpan(first + 1, last + 1), signature, parent)

    def _signature(self, found: _Found, head: int, last: int) -> LineSpan:
        """Return the lines from the start of a definition to the end of its head."""
        if found.head_end is not None:
            end = self._without_comments(found.start, found.head_end)
            return LineSpan(head + 1, max(self._lines.at(end - 1), head) + 1)
        return LineSpan(head + 1, (last if found.kind in _ALL_HEAD else head) + 1)

    def _without_comments(self, start: int, end: int) -> int:
        """Return the end of the head of a definition whose body starts at `end`. A comment between head and
        body belongs to neither.
        """
        while end > start:
            end = start + len(self._data[start:end].rstrip())
            if end not in self._comments:
                break
            end = self._comments[end]
        return max(end, start + 1)


class Lines:
    """The lines of a content, counted from 0. `starts` has one extra entry: the end of the content."""

    __slots__ = ("count", "data", "starts")

    def __init__(self, data: bytes) -> None:
        self.data = data
        pieces = data.split(b"\n")
        starts = list(accumulate(map(len, pieces), lambda at, length: at + length + 1, initial=0))
        if not pieces[-1]:
            starts.pop()
        else:
            starts[-1] -= 1
        self.starts = starts
        self.count = len(starts) - 1

    def at(self, offset: int) -> int:
        """Return the line that contains the byte at `offset`."""
        return min(max(bisect_right(self.starts, offset) - 1, 0), max(self.count - 1, 0))

    def slice(self, first: int, end: int) -> bytes:
        """Return the lines from `first` up to but excluding `end`."""
        return self.data[self.starts[first] : self.starts[end]]
