"""Masks the values that a program was given in all that it says, as it says it.

A program is read in pieces that end anywhere, so the end of a piece that a value may begin with waits for the
next one. What a program encodes or takes apart before it says it, nobody can find.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from cleveragents.domain.redaction import MASK

__all__ = ["NO_SECRETS", "SHORTEST_VALUE", "MaskedStream", "SecretMask"]

SHORTEST_VALUE = 6
"""A shorter value, such as `1` or `true`, is found within ordinary words."""

_SHORTEST_LINE = 16


class SecretMask:
    """Knows some values, as they are and as they stand in JSON. Immutable: any thread may share it."""

    def __init__(self, values: Iterable[str], *, in_bytes: bool = False) -> None:
        """`in_bytes`: in texts that have a character for each byte."""
        self._values = tuple(values)
        spellings = {spelling for value in self._values for spelling in _spellings(value)}
        known = {_a_character_a_byte(one) for one in spellings} if in_bytes else spellings
        self._spellings = tuple(sorted(known, key=len, reverse=True))  # the longest that fits is masked
        self._longest = max(map(len, known), default=1)
        self._found = re.compile("|".join(map(re.escape, self._spellings))) if known else None

    def text(self, text: str) -> str:
        """The same without them."""
        return text if self._found is None else self._found.sub(MASK, text)

    def value(self, value: object) -> object:
        """The same through mappings and sequences, in their keys, too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.value(key): self.value(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in value]
        return value

    def stream(self) -> MaskedStream:
        """For one stream of text."""
        return MaskedStream(self)

    def stream_of_bytes(self) -> MaskedStream:
        """For one stream of bytes, each decoded as a character (Latin-1)."""
        return MaskedStream(SecretMask(self._values, in_bytes=True))

    def begun_at_the_end(self, text: str) -> int:
        """How many of the last characters may be the beginning of a value."""
        for number in range(min(len(text), self._longest - 1), 0, -1):
            end = text[-number:]
            if any(len(one) > number and one.startswith(end) for one in self._spellings):
                return number
        return 0


NO_SECRETS = SecretMask(())
"""For programs that were given nothing."""


class MaskedStream:
    """One stream of text, in pieces. Not thread-safe: its reader's own."""

    def __init__(self, mask: SecretMask) -> None:
        self._mask = mask
        self._held = ""

    def feed(self, piece: str) -> str:
        """What can be told by now."""
        text = self._mask.text(self._held + piece)
        held = self._mask.begun_at_the_end(text)  # guard: a value that is cut in two is a value
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    @property
    def rest(self) -> str:
        """What was held back, if this is the end: of a value that was cut off not even its beginning."""
        return MASK if len(self._held) >= SHORTEST_VALUE else self._held

    def finish(self) -> str:
        """The rest; nothing is held back any more."""
        rest, self._held = self.rest, ""
        return rest


def _spellings(value: str) -> set[str]:
    stripped = value.strip()
    lines = [line.strip() for line in stripped.splitlines()]
    whole = [value, stripped] if len(stripped) >= SHORTEST_VALUE else []
    plain = {*whole, *(line for line in lines if len(line) >= _SHORTEST_LINE)}
    quoted = {json.dumps(one, ensure_ascii=plainly)[1:-1] for one in plain for plainly in (True, False)}
    return plain | quoted


def _a_character_a_byte(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("latin-1")
