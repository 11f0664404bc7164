"""Escapes for control characters and for unusual file names.

The escaped characters are those that control a terminal or change how the surrounding text reads: control
characters (C0, DEL, C1), format characters (bidirectional overrides, zero-width characters, tags), line and
paragraph separators, and lone surrogates.

A file name on disk may hold line breaks, terminal controls and bytes that are not Unicode. Such a name is
quoted and escaped, as in git; every other name is shown unchanged. No two names are displayed alike.
"""

from __future__ import annotations

import re
import unicodedata

__all__ = [
    "CONTROL_CATEGORIES",
    "IGNORED_BY_HFS",
    "escape_controls",
    "escape_controls_in_json",
    "named_by",
    "shown",
]

IGNORED_BY_HFS = dict.fromkeys(
    [*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF]
)
"""Characters that macOS file systems ignore in names, for `str.translate`."""


CONTROL_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories of the characters that are escaped."""
_REMEMBERED = 10_000

_SHORT = {
    "\a": "\\a",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\v": "\\v",
    "\f": "\\f",
    "\r": "\\r",
    '"': '\\"',
    "\\": "\\\\",
}
_LONG = {short[1]: character for character, short in _SHORT.items()}
_QUOTED = re.compile(r'"(?:[^"\\]|\\[0-3][0-7]{2}|\\[abtnvfr"\\])*"')
_ESCAPE = re.compile(rb'\\([0-3][0-7]{2}|[abtnvfr"\\])')


class _Escapes(dict[int, str]):
    """A table for `str.translate` that caches the characters it has seen, up to a limit."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if unicodedata.category(character) in CONTROL_CATEGORIES:
            character = self.escape(character)
        if len(self) < _REMEMBERED:
            self[code] = character
        return character

    def escape(self, character: str) -> str:
        return character.encode("unicode_escape").decode("ascii")


class _LineEscapes(_Escapes):
    """A table that keeps line feeds and tabs."""

    def escape(self, character: str) -> str:
        return character if character in "\n\t" else super().escape(character)


class _JsonEscapes(_Escapes):
    """A table that escapes characters as JSON does, in UTF-16 code units, and keeps line feeds."""

    def escape(self, character: str) -> str:
        units = character.encode("utf-16-be", "surrogatepass").hex()
        spelt = "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))
        return character if character == "\n" else spelt


_ESCAPES, _LINE_ESCAPES, _JSON_ESCAPES = _Escapes(), _LineEscapes(), _JsonEscapes()


def escape_controls(text: str, *, keep_lines: bool = False) -> str:
    r"""Return the text with its control characters escaped, such as `\x1b`.

    With `keep_lines`, line feeds and tabs stay; otherwise the result is one line. Escaping is idempotent.
    """
    if text.isprintable():
        return text
    return text.translate(_LINE_ESCAPES if keep_lines else _ESCAPES)


def escape_controls_in_json(document: str) -> str:
    r"""Return the JSON document with control characters as `\uXXXX`; its values do not change."""
    return document if document.isprintable() else document.translate(_JSON_ESCAPES)


def shown(path: str) -> str:
    """Return the path as text that can be displayed, and converted back by `named_by`."""
    spelt = "".join(map(_spelt, path))
    return path if spelt == path else f'"{spelt}"'  # guard: no two names have the same spelling


def named_by(text: str) -> str:
    """Return the path that `shown` displays as this text; any other text is returned unchanged."""
    if _QUOTED.fullmatch(text) is None:
        return text
    return _ESCAPE.sub(_meant, _bytes(text[1:-1])).decode("utf-8", "surrogateescape")


def _spelt(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    if unicodedata.category(character) not in CONTROL_CATEGORIES:
        return character
    return "".join(f"\\{byte:03o}" for byte in _bytes(character))


def _bytes(text: str) -> bytes:
    """Return the name as bytes on disk. A model may send a lone surrogate, which no name on disk can hold."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _meant(escape: re.Match[bytes]) -> bytes:
    told = escape[1].decode("ascii")
    return _LONG[told].encode("ascii") if told in _LONG else bytes([int(told, 8)])
