"""Reads git's differences: hunks and their lines, by file.

How long a hunk is, its header says; what is in it is never taken for a header, whatever it looks like.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Hunk", "Line", "hunks_by_path"]

Line = tuple[str, int | None, int | None, str]
"""Its kind (context, add or remove), its number before and after, and its text."""

_HEADER = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_ESCAPE = re.compile(r"\\([abfnrtv\\\"]|[0-7]{3})")
_PLAIN = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92, '"': 34}
_KINDS = {" ": "context", "+": "add", "-": "remove"}
_NOTHING = "/dev/null"


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines that belong together."""

    header: str
    old_start: int
    new_start: int
    lines: Sequence[Line]


def hunks_by_path(diff: bytes) -> Mapping[str, Sequence[Hunk]]:
    """The hunks of each file that has lines; the prefixes are `a/` and `b/`."""
    lines = diff.decode("utf-8", "surrogateescape").split("\n")
    found: dict[str, list[Hunk]] = {}
    before = path = ""
    place = 0
    while place < len(lines):
        line = lines[place]
        place += 1
        if line.startswith("--- "):
            before = _named(line)
        elif line.startswith("+++ "):
            after = _named(line)
            path = before if after == _NOTHING else after
        elif header := _HEADER.match(line):
            hunk, place = _hunk(line, header, lines, place)
            found.setdefault(path, []).append(hunk)
    return found


def _hunk(title: str, header: re.Match[str], lines: Sequence[str], place: int) -> tuple[Hunk, int]:
    """The hunk, and where what follows it begins."""
    old, new = int(header[1]), int(header[3])
    left = [int(header[2] or 1), int(header[4] or 1)]
    starts = old, new
    found: list[Line] = []
    while place < len(lines) and (left != [0, 0] or lines[place].startswith("\\")):
        sign, text = lines[place][:1], lines[place][1:]
        place += 1
        if sign == "\\":  # no newline at the end of the file
            continue
        is_old, is_new = sign != "+", sign != "-"
        found.append((_KINDS[sign], old if is_old else None, new if is_new else None, _shown(text)))
        old += is_old
        new += is_new
        left = [left[0] - is_old, left[1] - is_new]
    return Hunk(_shown(title), starts[0], starts[1], found), place


def _shown(text: str) -> str:
    """Bytes that are no text are spelt out."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _named(line: str) -> str:
    """The path in a header: without its prefix, and as it is, however git had to spell it."""
    name = line[4:].removesuffix("\t")
    if name.startswith('"'):
        raw = b""
        rest = 1
        for escape in _ESCAPE.finditer(name):
            raw += name[rest : escape.start()].encode("utf-8", "surrogateescape")
            raw += bytes([_PLAIN[escape[1]] if escape[1] in _PLAIN else int(escape[1], 8)])
            rest = escape.end()
        raw += name[rest:-1].encode("utf-8", "surrogateescape")
        name = raw.decode("utf-8", "surrogateescape")
    return name if name == _NOTHING else name[2:]
