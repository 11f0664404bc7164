"""Why a text is not in a file: the place that was probably meant, and the first line where they part.

Whoever sent the edit sees the mistake at once, and does not send the same edit again. The work is bounded:
the file is gone through a few times, and lines are compared closely only where few enough are left.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from difflib import SequenceMatcher
from itertools import accumulate

from cleveragents.tools.files.text_files import line_at, uses_crlf

__all__ = ["diagnose"]

_SHOWN_CHARACTERS = 120
# A line that is everywhere says nothing about the place.
_COMMON_LINE = 200
_CLOSE_LOOKS = 3000
_CLOSE_LOOK_CHARACTERS = 400
_ALIKE = 0.6
# Shorter texts are found by chance.
_TELLING_CHARACTERS = 8


def diagnose(text: str, old: str, new: str) -> str:
    """One sentence about `old`, which is not in `text`."""
    if not text:
        return "the file is empty"
    return _where_they_part(text, old) + _made_already(text, new)


def _where_they_part(text: str, old: str) -> str:
    if "\n" in old and "\r" not in old and uses_crlf(text) and old.replace("\n", "\r\n") in text:
        line = line_at(text, text.find(old.replace("\n", "\r\n")))
        return (
            f"only the line endings differ from line {line} on: the file has CRLF and `old` has LF; "
            'say line_endings "file", or write \\r\\n'
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
    return f" (`new` is there already, at line {line_at(text, text.find(new))}: was this edit made before?)"


def _start_ignoring_blanks(have: list[str], old: str) -> int | None:
    """The line where `old` begins if blanks are left out on both sides."""
    wanted = _squeezed(old)
    squeezed = [_squeezed(line) for line in have]
    position = "".join(squeezed).find(wanted)
    if not wanted or position < 0:
        return None
    # Lines that are blank are no longer than nothing; the place belongs to the first line that goes past it.
    line = bisect_right(list(accumulate(map(len, squeezed))), position)
    return line - _leading_blank_lines(old)


def _leading_blank_lines(old: str) -> int:
    return old[: len(old) - len(old.lstrip())].count("\n")


def _start_by_votes(have: list[str], want: list[str]) -> int | None:
    """Where most lines of `old` fall into place; the longer a line, the more it tells."""
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
    """The line most like the first telling one of `old`."""
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
    # There is one: if every line did fit, `old` would be in the file.
    offset = next(number for number in range(len(want)) if not _fits(have, want, start, number))
    number, line = start + offset, want[offset]
    if not 0 <= number < len(have):
        side = "before the file begins" if number < 0 else "after the file ends"
        return f"line {offset + 1} of `old` would be {side}: {_shown(line, 0)}"
    found = have[number]
    column = _column(line, found)
    return (
        f"`old` parts from the file at line {number + 1} (line {offset + 1} of `old`): "
        f"expected {_shown(line, column)}, found {_shown(found, column)}"
        + (f"; {_difference(line, found)}" if only_blanks else "")
    )


def _fits(have: list[str], want: list[str], start: int, offset: int) -> bool:
    """Whether a line of `old` is the file's; the first may begin, and the last end, within a line."""
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
    """What kind of blanks two lines differ in."""
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
    """The line, quoted; of a long one, the part where it differs."""
    if len(line) <= _SHOWN_CHARACTERS:
        return repr(line)
    begin = max(0, min(column - _SHOWN_CHARACTERS // 2, len(line) - _SHOWN_CHARACTERS))
    piece = line[begin : begin + _SHOWN_CHARACTERS]
    before = "…" if begin else ""
    after = "…" if begin + _SHOWN_CHARACTERS < len(line) else ""
    return f"{before}{piece!r}{after}"


def _squeezed(line: str) -> str:
    return "".join(line.split())
