"""Escapes for characters that control a terminal or change how the text around them reads.

These are control characters (C0, DEL, C1), format characters (bidirectional overrides, zero-width
characters, tags), line and paragraph separators, and lone surrogates.
"""

from __future__ import annotations

import unicodedata

__all__ = ["CONTROL_CATEGORIES", "escape_controls", "escape_controls_in_json"]

CONTROL_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories of the characters that are escaped."""

_REMEMBERED = 10_000


class _Escapes(dict[int, str]):
    """A table for `str.translate` that remembers the characters that it has seen, up to a bound."""

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
    """Keeps line feeds and tabs."""

    def escape(self, character: str) -> str:
        return character if character in "\n\t" else super().escape(character)


class _JsonEscapes(_Escapes):
    """Spells characters as JSON does, in UTF-16 code units; keeps the line feeds between its lines."""

    def escape(self, character: str) -> str:
        units = character.encode("utf-16-be", "surrogatepass").hex()
        spelt = "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))
        return character if character == "\n" else spelt


_ESCAPES, _LINE_ESCAPES, _JSON_ESCAPES = _Escapes(), _LineEscapes(), _JsonEscapes()


def escape_controls(text: str, *, keep_lines: bool = False) -> str:
    r"""Return the text with its control characters spelt out, such as `\x1b`.

    With `keep_lines`, line feeds and tabs stay; without, the result is one line. To escape twice changes
    nothing.
    """
    if text.isprintable():
        return text
    return text.translate(_LINE_ESCAPES if keep_lines else _ESCAPES)


def escape_controls_in_json(document: str) -> str:
    r"""Return the JSON document, of the same values, with control characters as `\uXXXX`."""
    return document if document.isprintable() else document.translate(_JSON_ESCAPES)
