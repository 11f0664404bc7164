"""What a file, or whole lines of it, look like at each depth. Text in, text out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from cleveragents.application.services.context_units import Unit
from cleveragents.domain.code import FileAnalysis, Span
from cleveragents.domain.context_answer import Depth

__all__ = ["CodeText", "printable"]

_MOST_MEMBERS: Final = 200
_MOST_NAMES: Final = 60
_LONGEST_SIGNATURE: Final = 30
_LONGEST_LINE: Final = 2000
_LONGEST_COMMENT: Final = 60
_VALUES: Final = ("variable", "constant", "field", "property")
"""Kinds without a signature: their first line says what they are."""
_QUOTES: Final = ('"""', "'''", '"', "'", 'r"""', "r'''")
_COMMENTS: Final = ("///", "//!", "//", "/**", "/*", "*", "#", "--", ";")
_COMMENTS_BUT_HASHES: Final = tuple(sign for sign in _COMMENTS if sign != "#")
_DIRECTIVES: Final = ("c", "cpp")
"""Languages in which a hash begins no comment."""


def printable(text: str) -> str:
    """The text on one line, with nothing in it that a terminal or a model would take for something else."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


class CodeText:
    """One file: its lines and what they define. Immutable."""

    def __init__(self, path: str, text: str, analysis: FileAnalysis) -> None:
        self.path = printable(path)
        self.analysis = analysis
        self.lines: Sequence[str] = text.split("\n")
        if len(self.lines) > 1 and not self.lines[-1]:
            self.lines = self.lines[:-1]

    def at(self, depth: Depth, unit: Unit | None = None) -> str | None:
        """How it is shown; None where there is nothing to show at that depth."""
        if depth is Depth.PATH:
            return self._heading(unit)
        if depth is Depth.MEMBERS:
            return self._members(unit)
        if depth is Depth.FULL:
            return self._full(unit)
        return self._signatures(unit, documented=depth is Depth.OUTLINE)

    def _heading(self, unit: Unit | None, how: str = "") -> str:
        what = f" ({how})" if how else ""
        if unit is None:
            return f"### {self.path}{what}"
        named = "" if unit.definition is None else f" {printable(self.analysis.qualified(unit.definition))}"
        return f"### {self.path}:{unit.span.first}-{unit.span.last}{named}{what}"

    def _members(self, unit: Unit | None) -> str | None:
        names = [printable(self.analysis.qualified(position)) for position in self._positions(unit)]
        if not names:
            return None
        more = f", and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        return f"{self._heading(unit, 'names')}\n{', '.join(names[:_MOST_NAMES])}{more}"

    def _signatures(self, unit: Unit | None, *, documented: bool) -> str | None:
        positions = self._positions(unit)
        if not positions:
            return None
        how = "outline" if documented else "signatures"
        shown = [self._heading(unit, how)]
        for position in positions[:_MOST_MEMBERS]:
            shown.extend(self._signature(position, documented=documented))
        if len(positions) > _MOST_MEMBERS:
            shown.append(f"… and {len(positions) - _MOST_MEMBERS} more")
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
        lines = self._lines(Span(signature.first, last))
        if not documented:
            return lines
        below = self._words_below(definition.span, last)
        return [*lines, below] if below else [*self._words_above(signature.first), *lines]

    def _words_below(self, span: Span, last: int) -> str | None:
        """The first words of a documentation string that begins below the signature."""
        body = self.lines[last : min(span.last, len(self.lines))]
        if not body or not body[0].strip().startswith(_QUOTES):
            return None
        if body[0].strip() not in _QUOTES:
            return body[0][:_LONGEST_LINE]
        words = next((line.strip() for line in body[1:] if line.strip()), "")
        return f"{body[0].rstrip()}{words}"[:_LONGEST_LINE]

    def _words_above(self, first: int) -> list[str]:
        """The first line of the comment right above."""
        signs = _COMMENTS if self.analysis.language not in _DIRECTIVES else _COMMENTS_BUT_HASHES
        above: list[str] = []
        for line in reversed(self.lines[max(0, first - 1 - _LONGEST_COMMENT) : first - 1]):
            if not line.strip().startswith((*signs, "@")):
                break
            above.insert(0, line)
        said = [line for line in above if line.strip().strip("/*!#-; ") and not line.strip().startswith("@")]
        return [line[:_LONGEST_LINE] for line in said[:1]]

    def _full(self, unit: Unit | None) -> str | None:
        lines = self.lines if unit is None else self._lines(unit.span)
        if not any(line.strip() for line in lines):
            return None
        return "\n".join([self._heading(unit), *lines])

    def _lines(self, span: Span) -> list[str]:
        return list(self.lines[span.first - 1 : span.last])

    def _positions(self, unit: Unit | None) -> list[int]:
        """The definitions of the file, or those that the unit has, in the order of their lines."""
        every = enumerate(self.analysis.definitions)
        if unit is None:
            chosen = [position for position, one in every if _depth(self.analysis, position) < 3]
        else:
            chosen = [
                position
                for position, one in every
                if unit.span.contains(one.span) or position == unit.definition
            ]
        return sorted(chosen, key=lambda position: self.analysis.definitions[position].span)


def _depth(analysis: FileAnalysis, position: int) -> int:
    depth = 0
    parent = analysis.definitions[position].parent
    while parent is not None and depth < 3:
        depth += 1
        parent = analysis.definitions[parent].parent
    return depth
