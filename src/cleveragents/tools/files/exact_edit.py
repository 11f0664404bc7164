"""Exact replacements in a text, with a diagnosis if the text to replace is missing.

The diagnosis names the probable place and the first line that differs, so that the model sees its mistake and
does not repeat the same edit. The effort is bounded: the file is scanned a few times, and only a limited
number of lines is compared by similarity.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import accumulate
from typing import Literal

from cleveragents.core.errors import EditMismatch
from cleveragents.core.text.redaction import MASK, redact_content_text, redact_text
from cleveragents.tools.files.text_files import HIDDEN, line_at, uses_crlf

__all__ = ["Edited", "ExactEdit", "diagnose"]


_PLACES_SHOWN = 20

_SHOWN_CHARACTERS = 120
# A very common line does not identify a place.
_COMMON_LINE = 200
_CLOSE_LOOKS = 3000
_CLOSE_LOOK_CHARACTERS = 400
_ALIKE = 0.6
# Shorter texts occur by chance.
_TELLING_CHARACTERS = 8


@dataclass(frozen=True, slots=True)
class Edited:
    """The new text, the number of replacements, and the line numbers of the first replacements, in the old
    text.
    """

    text: str
    replacements: int
    lines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ExactEdit:
    """A replacement of `old` by `new`: of a unique occurrence, or everywhere.

    `endings`: "exact" uses `old` and `new` as given; "file" converts their line endings to those of the file,
    if the file uses only one kind.
    """

    old: str
    new: str
    count: Literal[1, "all"] = 1
    endings: Literal["exact", "file"] = "exact"

    def apply(self, path: str, text: str) -> Edited:
        """Return the edited text. Raises `EditMismatch` if `old` is missing, or if it occurs several times
        but must be unique.
        """
        old, new = self._as_in_file(self.old, text), self._as_in_file(self.new, text)
        if old == new:
            raise EditMismatch(path, "`old` and `new` are the same")
        if old not in text:
            raise EditMismatch(path, HIDDEN if _is_masked(old, text) else diagnose(text, old, new))
        if self.count == 1:
            # Occurrences may overlap: each could be the intended one.
            places = _places(text, old, step=1)
            if len(places) > 1:  # guard: the first place may be the wrong one
                raise EditMismatch(path, _ambiguous(text, places))
        if uses_crlf(text) and new.count("\n") > new.count("\r\n"):
            reason = (
                '`new` has LF line endings, but the file has CRLF; use line_endings "file", or write \\r\\n'
            )
            raise EditMismatch(path, reason)
        lines = tuple(line_at(text, place) for place in _places(text, old, step=len(old)))
        return Edited(text.replace(old, new), text.count(old), lines)

    def _as_in_file(self, given: str, text: str) -> str:
        if self.endings == "exact":
            return given
        plain = given.replace("\r\n", "\n")
        if uses_crlf(text):
            return plain.replace("\n", "\r\n")
        return given if "\r\n" in text else plain


def _is_masked(old: str, text: str) -> bool:
    """Return whether `old` was copied from the masked view of the text."""
    return MASK in old and (old in redact_content_text(text) or old in redact_text(text))


def _places(text: str, old: str, *, step: int) -> list[int]:
    """Return the first positions of `old` in the text, at least `step` apart."""
    places: list[int] = []
    position = text.find(old)
    while position >= 0 and len(places) < _PLACES_SHOWN:
        places.append(position)
        position = text.find(old, position + step)
    return places


def _ambiguous(text: str, places: list[int]) -> str:
    lines = ", ".join(map(str, sorted({line_at(text, place) for place in places})))
    times = f"{len(places)} times" if len(places) < _PLACES_SHOWN else f"{_PLACES_SHOWN} times or more"
    return f'`old` occurs {times} (line {lines}); include more of the surrounding text, or use count "all"'


def diagnose(text: str, old: str, new: str) -> str:
    """Explain in one sentence why `old` is not in `text`."""
    if not text:
        return "the file is empty"
    return _where_they_part(text, old) + _made_already(text, new)


def _where_they_part(text: str, old: str) -> str:
    if "\n" in old and "\r" not in old and uses_crlf(text) and old.replace("\n", "\r\n") in text:
        line = line_at(text, text.find(old.replace("\n", "\r\n")))
        return (
            f"only the line endings differ, from line {line} on: the file has CRLF and `old` has LF; "
            'use line_endings "file", or write \\r\\n'
        )
    have, want = text.split("\n"), old.split("\n")
    only_blanks = _start_ignoring_blanks(have, old)
    start = _start_by_votes(have, want) if only_blanks is None else only_blanks
    if start is None:
        start = _start_by_likeness(have, want)
    if start is None:
        return "no line of the file resembles the first line of `old`"
    return _first_difference(have, want, start, only_blanks is not None)


def _made_already(text: str, new: str) -> str:
    if len(new.strip()) < _TELLING_CHARACTERS or new not in text:
        return ""
    return f" (`new` already exists at line {line_at(text, text.find(new))}: was this edit already made?)"


def _start_ignoring_blanks(have: list[str], old: str) -> int | None:
    """Return the line where `old` begins if whitespace is ignored on both sides."""
    wanted = _squeezed(old)
    squeezed = [_squeezed(line) for line in have]
    position = "".join(squeezed).find(wanted)
    if not wanted or position < 0:
        return None
    # Blank lines have length 0; the place belongs to the first line that ends after it.
    line = bisect_right(list(accumulate(map(len, squeezed))), position)
    return line - _leading_blank_lines(old)


def _leading_blank_lines(old: str) -> int:
    return old[: len(old) - len(old.lstrip())].count("\n")


def _start_by_votes(have: list[str], want: list[str]) -> int | None:
    """Return the line of the file at which `old` would begin so that most of its lines match; longer lines
    count more.
    """
    places: dict[str, list[int]] = defaultdict(list)
    for number, line in enumerate(have):
        places[_squeezed(line)].append(number)
    votes: Counter[int] = Counter()
    for offset, line in enumerate(want):
        squeezed = _squeezed(line)
        found = places.get(squeezed, [])
        if squeezed and len(found) <= _COMMON_LINE:
            for number in found:
                votes[number - offset] += len(squeezed)
    if not votes:
        return None
    return min(votes, key=lambda start: (-votes[start], start))


def _start_by_likeness(have: list[str], want: list[str]) -> int | None:
    """Return the line most similar to the first non-blank line of `old`."""
    offset = next((number for number, line in enumerate(want) if line.strip()), None)
    if offset is None:
        return None
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(want[offset].strip()[:_CLOSE_LOOK_CHARACTERS])
    best, best_ratio = None, _ALIKE
    for number, line in enumerate(have[:_CLOSE_LOOKS]):
        matcher.set_seq1(line.strip()[:_CLOSE_LOOK_CHARACTERS])
        if matcher.real_quick_ratio() > best_ratio and matcher.quick_ratio() > best_ratio:
            ratio = matcher.ratio()
            if ratio > best_ratio:
                best, best_ratio = number - offset, ratio
    return best


def _first_difference(have: list[str], want: list[str], start: int, only_blanks: bool) -> str:
    # There is one: if every line matched, `old` would be in the file.
    offset = next(number for number in range(len(want)) if not _fits(have, want, start, number))
    number, line = start + offset, want[offset]
    if not 0 <= number < len(have):
        side = "before the file begins" if number < 0 else "after the file ends"
        return f"line {offset + 1} of `old` would be {side}: {_shown(line, 0)}"
    found = have[number]
    column = _column(line, found)
    return (
        f"`old` differs from the file at line {number + 1} (line {offset + 1} of `old`): "
        f"expected {_shown(line, column)}, found {_shown(found, column)}"
        + (f"; {_difference(line, found)}" if only_blanks else "")
    )


def _fits(have: list[str], want: list[str], start: int, offset: int) -> bool:
    """Return whether the line `offset` of `old` matches the file if `old` begins at the line `start`. The
    first line of `old` may begin, and its last line may end, within a line of the file.
    """
    number, line = start + offset, want[offset]
    if not 0 <= number < len(have):
        return False
    found = have[number]
    if len(want) == 1:
        return line in found
    if offset == 0:
        return found.endswith(line)
    return found.startswith(line) if offset == len(want) - 1 else found == line


def _difference(line: str, found: str) -> str:
    """Describe the whitespace difference between two lines."""
    if line.rstrip("\r") == found.rstrip("\r"):
        return "only the line ending differs"
    if line.strip() == found.strip():
        same = _indentation(line) == _indentation(found)
        return "only trailing whitespace differs" if same else "only the indentation differs"
    same = _squeezed(line) == _squeezed(found)
    return "only whitespace differs" if same else "only blanks and line breaks differ"


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _column(line: str, found: str) -> int:
    return next(
        (number for number, (a, b) in enumerate(zip(line, found, strict=False)) if a != b),
        min(len(line), len(found)),
    )


def _shown(line: str, column: int) -> str:
    """Return the line, quoted; of a long line, the part that differs."""
    if len(line) <= _SHOWN_CHARACTERS:
        return repr(line)
    begin = max(0, min(column - _SHOWN_CHARACTERS // 2, len(line) - _SHOWN_CHARACTERS))
    piece = line[begin : begin + _SHOWN_CHARACTERS]
    before = "…" if begin else ""
    after = "…" if begin + _SHOWN_CHARACTERS < len(line) else ""
    return f"{before}{piece!r}{after}"


def _squeezed(line: str) -> str:
    return "".join(line.split())
