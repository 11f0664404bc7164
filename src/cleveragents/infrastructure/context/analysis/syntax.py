"""What a grammar sees in a content: definitions, imports, and where documentation and strings stand.

The tree is read with one query and by byte offsets alone. That is fast, and it never makes a `Point` or a
`Node` of a node, whose reference counts are wrong in some releases of the binding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from cleveragents.domain.code import Definition, Field, Import, Span
from cleveragents.infrastructure.context.analysis.language import Grammar, Language, grammar_of
from cleveragents.infrastructure.context.analysis.lines import Lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import tree_sitter

__all__ = ["WHOLE_KINDS", "Passage", "Syntax", "read_syntax"]

WHOLE_KINDS = frozenset({"function", "method", "macro"})
"""Definitions that are one chunk with everything inside them."""

_SECONDS = 1.0
_FIRST_PIECE = 4096
_MOST_DEFINITIONS = 20_000
_MOST_IMPORTS = 2_000


class Passage(NamedTuple):
    """Bytes `start` up to `end` are documentation or a string."""

    start: int
    end: int
    field: Field


class _Found(NamedTuple):
    """A definition before its lines are known. `head_end` is where its head ends, if it has a body."""

    start: int
    end: int
    kind: str
    name: str
    name_at: int
    head_end: int | None


@dataclass(slots=True)
class Syntax:
    """`definitions` are in order, an outer one before what it contains; `named_on[i]` is the line, from 0, that
    the name of the i-th stands on. `passages` are in order and do not overlap."""

    definitions: list[Definition] = field(default_factory=list)
    named_on: list[int] = field(default_factory=list)
    imports: list[Import] = field(default_factory=list)
    passages: list[Passage] = field(default_factory=list)


def read_syntax(language: Language, lines: Lines) -> Syntax | None:
    """None if the grammar makes nothing of the content, or takes too long over it."""
    grammar = grammar_of(language)
    deadline = monotonic() + _SECONDS
    tree = _parse(grammar, lines.data, deadline)
    if tree is None:
        return None
    matches = _matches(grammar, tree, len(lines.data), deadline)
    if matches is None:
        return None
    reader = _Reader(language, lines)
    for match in matches:
        reader.take(match)
    if tree.root_node.type == "ERROR" and not reader.found:
        return None
    return reader.syntax()


def _parse(grammar: Grammar, data: bytes, deadline: float) -> tree_sitter.Tree | None:
    """Piece by piece, each twice as long as the last, on top of the tree so far.

    The parser cannot be stopped once it runs, and there are contents over which it takes time that grows with
    the square of their size. A piece that is slow tells so while there is little of it.
    """
    import tree_sitter

    parser = tree_sitter.Parser(grammar.language)
    size = _FIRST_PIECE
    tree = parser.parse(data[:size])
    while size < len(data):
        if monotonic() > deadline - _SECONDS / 2:
            return None  # guard: hostile content costs seconds, not minutes
        row = data.count(b"\n", 0, size)
        here = (row, size - data.rfind(b"\n", 0, size) - 1)
        longer = min(2 * size, len(data))
        after_row = data.count(b"\n", 0, longer)
        there = (after_row, longer - data.rfind(b"\n", 0, longer) - 1)
        tree.edit(size, size, longer, here, here, there)
        size = longer
        tree = parser.parse(data[:size], tree)
    return tree


def _matches(
    grammar: Grammar, tree: tree_sitter.Tree, size: int, deadline: float
) -> list[Mapping[str, list[tree_sitter.Node]]] | None:
    """A query cannot be stopped either, and broken code can make nodes with so many children that it is slow."""
    import tree_sitter

    root = tree.root_node
    cursor = tree_sitter.QueryCursor(grammar.query)
    if size <= _FIRST_PIECE or not root.has_error:
        return [captures for _, captures in cursor.matches(root)]
    found: list[Mapping[str, list[tree_sitter.Node]]] = []
    for start in range(0, size, _FIRST_PIECE):
        if monotonic() > deadline:
            return None  # guard: hostile content costs seconds, not minutes
        cursor.set_byte_range(start, min(start + _FIRST_PIECE, size))
        found += [captures for _, captures in cursor.matches(root)]
    return found


class _Reader:
    """Gathers what the matches say. Not thread-safe: it lives for one content."""

    def __init__(self, language: Language, lines: Lines) -> None:
        self._language = language
        self._lines = lines
        self._data = lines.data
        self.found: dict[tuple[int, int], _Found] = {}
        self._passages: dict[int, Passage] = {}
        self._leads: dict[int, int] = {}
        self._comments: dict[int, int] = {}
        self._imports: list[Import] = []
        self._takers: dict[str, Callable[[tree_sitter.Node], None]] = {
            "string": self._string,
            "comment": self._comment,
            "doc": self._doc,
            "lead": self._lead,
            "import": self._import,
        }

    def take(self, captures: Mapping[str, list[tree_sitter.Node]]) -> None:
        for capture, nodes in captures.items():
            taker = self._takers.get(capture)
            if taker is not None:
                taker(nodes[0])
            elif capture.startswith("definition."):
                self._definition(capture[11:], nodes[0], captures)

    def _string(self, node: tree_sitter.Node) -> None:
        start = node.start_byte
        self._passages.setdefault(start, Passage(start, node.end_byte, Field.STRING))

    def _doc(self, node: tree_sitter.Node) -> None:
        start = node.start_byte
        self._passages[start] = Passage(start, node.end_byte, Field.DOC)

    def _comment(self, node: tree_sitter.Node) -> None:
        self._doc(node)
        self._lead(node)
        self._comments[node.end_byte] = node.start_byte

    def _lead(self, node: tree_sitter.Node) -> None:
        """A lead that has its lines to itself may belong to what follows."""
        start = node.start_byte
        line = self._lines.at(start)
        if not self._data[self._lines.starts[line] : start].strip():
            self._leads[self._lines.at(max(node.end_byte - 1, start))] = line

    def _import(self, node: tree_sitter.Node) -> None:
        if len(self._imports) < _MOST_IMPORTS:
            text = self._data[node.start_byte : node.end_byte].decode("utf-8", "replace")
            self._imports += self._language.imports(text)

    def _definition(
        self, kind: str, node: tree_sitter.Node, captures: Mapping[str, list[tree_sitter.Node]]
    ) -> None:
        if len(self.found) >= _MOST_DEFINITIONS:
            return
        names = captures.get("name")
        start, end = node.start_byte, node.end_byte
        if not names or (start, end) in self.found:
            return
        name_at, name_end = names[0].start_byte, names[-1].end_byte
        name = self._data[name_at:name_end].decode("utf-8", "replace").strip()
        body = captures.get("body")
        if name:
            head_end = body[0].start_byte if body else None
            self.found[start, end] = _Found(start, end, kind, name, name_at, head_end)

    def syntax(self) -> Syntax:
        result = Syntax(imports=self._imports)
        enclosing: list[tuple[int, int]] = []
        for found in sorted(self.found.values(), key=lambda one: (one.start, -one.end)):
            while enclosing and enclosing[-1][0] <= found.start:
                enclosing.pop()
            parent = enclosing[-1][1] if enclosing else None
            enclosing.append((found.end, len(result.definitions)))
            result.definitions.append(self._placed(found, parent, result.definitions))
            result.named_on.append(self._lines.at(found.name_at))
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
        if kind == "function" and parent is not None and before[parent].kind not in WHOLE_KINDS:
            kind = "method"
        return Definition(
            found.name, kind, Span(first + 1, last + 1), self._signature(found, head, last), parent
        )

    def _signature(self, found: _Found, head: int, last: int) -> Span:
        """From the line where it begins to the one that ends its head."""
        if found.head_end is not None:
            end = self._without_comments(found.start, found.head_end)
            return Span(head + 1, max(self._lines.at(end - 1), head) + 1)
        return Span(head + 1, (last if found.kind in WHOLE_KINDS else head) + 1)

    def _without_comments(self, start: int, end: int) -> int:
        """Where the head really ends if its body begins at `end`: comments and blanks between them are neither's."""
        while True:
            end = start + len(self._data[start:end].rstrip())
            if end not in self._comments:
                return end
            end = self._comments[end]
