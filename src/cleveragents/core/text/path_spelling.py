"""Names of files as people and models see them: on one line, harmless, and each spelt in one way only.

A name on disk may hold line breaks, what steers a terminal, and bytes that are no Unicode. Such a name is put
into quotes with these spelt out, as git does it; every other name is shown as it is.
"""

from __future__ import annotations

import re
import unicodedata

from cleveragents.core.text.control_characters import CONTROL_CATEGORIES

__all__ = ["named_by", "shown"]

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


def shown(path: str) -> str:
    """The path as text that can be shown and told back."""
    spelt = "".join(map(_spelt, path))
    return path if spelt == path else f'"{spelt}"'  # guard: no two names are spelt alike


def named_by(text: str) -> str:
    """The path that is shown as that text; a text that is no spelling names itself."""
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
    """As on disk. A model may tell what no name there can hold, half a character."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _meant(escape: re.Match[bytes]) -> bytes:
    told = escape[1].decode("ascii")
    return _LONG[told].encode("ascii") if told in _LONG else bytes([int(told, 8)])
