"""Marks of a merge that are still in a text that was edited since.

Those of the sides name the plans, so nobody else writes them. The line between the sides is only a row of
signs, which a text may well have for itself, as a heading or as an example: such a line counts as a mark only
where the merge wrote it, and only while the text has more of that line than either side ever had.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

__all__ = ["MarkedText", "mark_left_in"]


@dataclass(frozen=True, slots=True)
class MarkedText:
    """What a merge left, with both sides in it, and what either side had been."""

    left: bytes
    ours: bytes
    theirs: bytes


def mark_left_in(text: bytes, merged: MarkedText, labels: tuple[str, str]) -> str | None:
    """A mark of that merge that the text still has; None if there is none. `labels` name the sides."""
    opening, closing = (re.escape(label).encode("utf-8") for label in labels)
    sides = re.compile(b"^(<{7,}) " + opening + b"|^(>{7,}) " + closing, flags=re.MULTILINE)
    found = sides.search(text)
    if found is not None:  # guard: what nobody decided is not decided
        return found[0].decode("utf-8", "replace")
    now, left = _lines(text), _lines(merged.left)
    ours, theirs = _lines(merged.ours), _lines(merged.theirs)
    between = [
        place
        for place in _between(left, ours, theirs, sides)
        if now.count(left[place]) > max(ours.count(left[place]), theirs.count(left[place]))
    ]
    kept = _kept_marks(left, now) if between else frozenset()
    mark = next((place for place in between if place in kept), None)
    return None if mark is None else left[mark].decode("utf-8", "replace")


def _lines(text: bytes) -> list[bytes]:
    return [line.rstrip(b"\r\n") for line in text.splitlines(keepends=True)]


def _between(
    left: Sequence[bytes], ours: Sequence[bytes], theirs: Sequence[bytes], sides: re.Pattern[bytes]
) -> Iterator[int]:
    """Where the merge wrote the lines that divide a marked place."""
    begun: tuple[int, int] | None = None
    for place, line in enumerate(left):
        found = sides.match(line)
        if found is None:
            continue
        if found[1] is not None:
            begun = place, len(found[1])
        elif begun is not None:
            yield from _dividing(left[begun[0] + 1 : place], begun, ours, theirs)
            begun = None


def _dividing(
    inside: Sequence[bytes], begun: tuple[int, int], ours: Sequence[bytes], theirs: Sequence[bytes]
) -> Iterator[int]:
    """The line between the sides: what is above it one side had, what is below it the other. Above it there
    may be what both began with, under a mark of its own."""
    first, length = begun[0] + 1, begun[1]
    for middle in (place for place, line in enumerate(inside) if line == b"=" * length):
        if not _has(theirs, inside[middle + 1 :]):
            continue
        bars = [place for place in range(middle) if _is_bar(inside[place], length)]
        for above in (middle, *bars):
            if _has(ours, inside[:above]):
                yield first + middle
                if above != middle:
                    yield first + above
                return


def _is_bar(line: bytes, length: int) -> bool:
    return line.startswith(b"|" * length) and line[length : length + 1] in (b"", b" ")


def _has(lines: Sequence[bytes], some: Sequence[bytes]) -> bool:
    """Whether these follow one another in it."""
    if not some:
        return True
    last = len(lines) - len(some)
    return any(lines[at] == some[0] and lines[at : at + len(some)] == some for at in range(last + 1))


def _kept_marks(before: Sequence[bytes], after: Sequence[bytes]) -> frozenset[int]:
    """The places of the lines that an edit left as they were."""
    blocks = SequenceMatcher(None, before, after).get_matching_blocks()
    return frozenset(place for block in blocks for place in range(block.a, block.a + block.size))
