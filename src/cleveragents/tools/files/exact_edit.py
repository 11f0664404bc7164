"""One exact replacement in a text: that very text and no other, or a refusal that says why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cleveragents.core.errors import EditMismatch
from cleveragents.core.text.redaction import MASK, redact_content_text, redact_text
from cleveragents.tools.files.edit_diagnosis import diagnose
from cleveragents.tools.files.text_files import line_at, uses_crlf
from cleveragents.tools.mask_guard import HIDDEN

__all__ = ["Edited", "ExactEdit"]

_PLACES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Edited:
    """The new text, how often something was replaced, and the first lines (of the old text) where it was."""

    text: str
    replacements: int
    lines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ExactEdit:
    """`old` becomes `new`, where it occurs once, or everywhere.

    `endings`: "exact" takes both as they are given; "file" gives their lines the endings of the file's lines,
    if those are all the same.
    """

    old: str
    new: str
    count: Literal[1, "all"] = 1
    endings: Literal["exact", "file"] = "exact"

    def apply(self, path: str, text: str) -> Edited:
        """`EditMismatch` if the text has no such place, or more than one and one is meant."""
        old, new = self._as_in_file(self.old, text), self._as_in_file(self.new, text)
        if old == new:
            raise EditMismatch(path, "`old` and `new` are the same")
        if old not in text:
            raise EditMismatch(path, HIDDEN if _is_masked(old, text) else diagnose(text, old, new))
        if self.count == 1:
            # Occurrences may overlap: each could be the one that is meant.
            places = _places(text, old, step=1)
            if len(places) > 1:  # guard: the first place is as likely the wrong one
                raise EditMismatch(path, _ambiguous(text, places))
        if uses_crlf(text) and new.count("\n") > new.count("\r\n"):
            reason = '`new` would bring LF into a CRLF file; say line_endings "file", or write \\r\\n'
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
    """Whether it is not the text that `old` was taken from, but what was shown of it."""
    return MASK in old and (old in redact_content_text(text) or old in redact_text(text))


def _places(text: str, old: str, *, step: int) -> list[int]:
    """The first positions, `step` apart at least."""
    places: list[int] = []
    position = text.find(old)
    while position >= 0 and len(places) < _PLACES_SHOWN:
        places.append(position)
        position = text.find(old, position + step)
    return places


def _ambiguous(text: str, places: list[int]) -> str:
    lines = ", ".join(map(str, sorted({line_at(text, place) for place in places})))
    times = f"{len(places)} times" if len(places) < _PLACES_SHOWN else f"{_PLACES_SHOWN} times or more"
    return (
        f"`old` occurs {times} (line {lines}); give more of the text around the one that is meant, "
        'or say count "all"'
    )
