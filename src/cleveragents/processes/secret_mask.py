"""Masks the values that a program was given in all that it says, as it says it.

What a program encodes or takes apart before it says it cannot be found.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

from cleveragents.core.text.known_secrets import value_spans
from cleveragents.core.text.redaction import mask_spans, spans_around
from cleveragents.core.text.redaction_in_pieces import SHORTEST_VALUE, PieceMask
from cleveragents.core.text.secret_patterns import find_in_text

__all__ = ["NO_SECRETS", "SecretMask"]

_SHORTEST_LINE = 16


class SecretMask:
    """Knows some values, as they are and as they stand in JSON. Immutable: any thread may share it.

    A value shorter than `SHORTEST_VALUE`, such as `1` or `true`, is ignored: ordinary words contain it.
    """

    def __init__(self, values: Iterable[str]) -> None:
        self._spellings = frozenset(spelling for value in values for spelling in _spellings(value))

    def text(self, text: str) -> str:
        """The same without them, and without any longer secret that one of them is a part of."""
        known = value_spans(text, self._spellings)
        if not known:
            return text
        return mask_spans(text, spans_around(known, [(start, end) for _, start, end in find_in_text(text)]))

    def value(self, value: object) -> object:
        """The same through mappings and sequences, in their keys, too."""
        return _each_text(value, self.text)

    def exact(self, value: object) -> object:
        """Return the value with the known values masked, and nothing else: a person approves what it says,
        and a longer secret around a known value may be code."""
        return _each_text(value, lambda text: mask_spans(text, value_spans(text, self._spellings)))

    def stream(self) -> PieceMask:
        """For one stream of text."""
        return PieceMask(lambda: self._spellings, only_known=True)

    def stream_of_bytes(self) -> PieceMask:
        """For one stream of bytes, each decoded as a character (Latin-1)."""
        spellings = frozenset(map(_a_character_a_byte, self._spellings))
        return PieceMask(lambda: spellings, only_known=True)


NO_SECRETS = SecretMask(())
"""For programs that were given nothing."""


def _each_text(value: object, masked: Callable[[str], str]) -> object:
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, Mapping):
        return {_each_text(key, masked): _each_text(item, masked) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_each_text(item, masked) for item in value]
    return value


def _spellings(value: str) -> set[str]:
    stripped = value.strip()
    lines = [line.strip() for line in stripped.splitlines()]
    whole = [value, stripped] if len(stripped) >= SHORTEST_VALUE else []
    plain = {*whole, *(line for line in lines if len(line) >= _SHORTEST_LINE)}
    quoted = {json.dumps(one, ensure_ascii=plainly)[1:-1] for one in plain for plainly in (True, False)}
    return plain | quoted


def _a_character_a_byte(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("latin-1")
