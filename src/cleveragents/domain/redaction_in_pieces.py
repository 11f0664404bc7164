"""Masks a text that comes in pieces as the whole of it would be masked.

A piece may end in the middle of a secret, or between a name and its value. So the end of what came is held
back until what follows shows that nothing of it is one: the last words of a line that goes on, a line whose
value may stand on the next, a private key without its end. It is held as it came, because half a secret that
was masked is no longer seen to be the half of one.
"""

from __future__ import annotations

import re

from cleveragents.domain.redaction import MASK, redact_text

__all__ = ["PieceMask"]

_FEWEST = 64
"""Characters of an unended line that wait, at least: as many as there are between a name and its value."""

_LONGEST_WORD = 8192
"""What is longer than that without a space, no token is; as far may a quoted value reach."""

_WINDOW = 2 * _LONGEST_WORD
"""As far back is looked for a secret that a border would cut in two."""

_TRIES = 8
_NAME_AND_GAP = 80
_VALUE_FOLLOWS = re.compile(
    r"""
    (?: [:=]>? | \b(?:bearer|basic|digest|negotiate) | (?:pass(?:word|wd|phrase)|pwd|secret|key|token|cookie
    |authorization|credential)\w{0,40} ) \\{0,3}["']?\s*\Z
    """,
    re.IGNORECASE | re.VERBOSE,
)
_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----")
_UNCLOSED = re.compile(r"[\"']" + re.escape(MASK) + r"(?=[\r\n])")


class PieceMask:
    """One text, in pieces. Not thread-safe: use it in the thread that made it, or under its owner's lock."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """What can be told by now, without secrets."""
        text = self._held + piece
        end = _safe_end(text)
        told = redact_text(text[:end])
        if _UNCLOSED.search(told[-_LONGEST_WORD:]):  # guard: a quoted value may have many lines
            end = _line_start(text, max(0, end - _WINDOW))
            told = redact_text(text[:end])
        self._held = text[end:]  # a secret that is cut in two is a secret
        if len(self._held) > _WINDOW + _LONGEST_WORD:
            self._held = redact_text(self._held)  # a key without an end is held as its first line alone
        return told

    def finish(self) -> str:
        """The rest: nothing more comes."""
        rest, self._held = redact_text(self._held), ""
        return rest


def _safe_end(text: str) -> int:
    """Up to where nothing can become a part of a secret, whatever comes next."""
    end = _end_of_words(text)
    keys = [match.start() for match in _KEY_BEGINS.finditer(text)]
    if keys and text.find("-----END ", keys[-1]) < 0:  # guard: the lines of a key have no name
        end = min(end, keys[-1])
    window = max(0, end - _WINDOW)
    masked = redact_text(text[window:])
    for _ in range(_TRIES):
        if redact_text(text[window:end]) + redact_text(text[end:]) == masked:
            return end
        end = max(window, _line_start(text, end - 1))
    return window


def _end_of_words(text: str) -> int:
    """The end of the whole lines, unless a value may follow them; within a long line, the end of a word."""
    lines = _line_start(text, len(text))
    spaces = len(text) - _FEWEST
    if spaces > lines:
        word = max(text.rfind(" ", lines, spaces), text.rfind("\t", lines, spaces)) + 1
        return word or max(lines, len(text) - _LONGEST_WORD)
    if _VALUE_FOLLOWS.search(text[max(0, lines - _NAME_AND_GAP) : lines]):
        return _line_start(text, len(text[:lines].rstrip()))
    return lines


def _line_start(text: str, before: int) -> int:
    return max(text.rfind("\n", 0, before), text.rfind("\r", 0, before)) + 1
