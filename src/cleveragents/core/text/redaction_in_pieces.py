"""Masks a text that comes in pieces as the whole of it would be masked.

A piece may end in the middle of a secret, or between a name and its value. So the end of what came is held
back, as it was written, until what follows shows that nothing of it is part of a secret: the last word, a
name whose value may follow, a quoted value without its closing quote, a private key without its end, the
beginning of a known value. The text is never cut inside a secret or right behind one, so the pieces together
are masked as the whole text is.

Memory is bounded. A secret that is longer than the bound is masked to the end of its line, or of its key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable

from cleveragents.core.text.known_secrets import known_values, value_begins, value_spans
from cleveragents.core.text.redaction import Span, mask_spans, spans_around
from cleveragents.core.text.secret_patterns import (
    LONGEST_WORD,
    SecretMatch,
    end_of_masking,
    find_in_text,
    undecided_from,
)

__all__ = ["SHORTEST_VALUE", "PieceMask"]

SHORTEST_VALUE = 6
"""At the end of the text, so much of a known value that is cut off is masked."""

_MOST_HELD = 3 * LONGEST_WORD
_LONGEST_END = 64
"""What ends a secret that is too long to be held is shorter."""


class PieceMask:
    """Mask one text that comes in pieces. Not thread-safe: use it in the thread that made it, or under its
    owner's lock.

    `values` are the known secrets, asked for with each piece. With `only_known` names and shapes alone are
    left as they are: what is masked is each of the values, and any longer secret that it is a part of.
    """

    def __init__(
        self, values: Callable[[], Collection[str]] = known_values, *, only_known: bool = False
    ) -> None:
        self._values = values
        self._only_known = only_known
        self._text = ""  # behind one character that was told already: it shows where a word begins
        self._told = 0
        self._until: re.Pattern[str] | None = None
        self._skipped = ""

    def feed(self, piece: str) -> str:
        """Return what can be told by now, without secrets."""
        if self._until is not None:
            piece = self._after_skipped(self._until, piece)
        text, first = self._text + piece, self._told
        values = self._values()
        if self._only_known and not values and not self._text:
            return piece
        known = value_spans(text, values, first)
        matches = self._matches(text, known)
        cut = self._cut(text, values, matches)
        if self._only_known and not any(end > cut for _, end in known):
            # What is held is no known secret: it is told when it gets long.
            cut = max(cut, min(value_begins(text, values, first), len(text) - LONGEST_WORD))
        most = max(_MOST_HELD, 2 * max(map(len, values), default=0))
        if len(text) - cut > most:  # guard: memory stays bounded, and the secret hidden
            return self._skip_from(text, cut, matches, known)
        self._text, self._told = text[max(cut - 1, 0) :], min(cut, 1)
        return mask_spans(text, self._masked(matches, known, cut), first, cut)

    def pause(self) -> str:
        """Return what is held back and no secret can begin with, such as a prompt: nothing came for long.

        What may be a part of a secret stays held, however long the pause is.
        """
        if self._until is not None:
            return ""
        text, first, values = self._text, self._told, self._values()
        known = value_spans(text, values, first)
        matches = self._matches(text, known)
        cut = self._cut(text, values, matches, paused=True)
        self._text, self._told = text[max(cut - 1, 0) :], min(cut, 1)
        return mask_spans(text, self._masked(matches, known, cut), first, cut)

    @property
    def holds(self) -> bool:
        """Whether something is held back, or the end of a secret is still to come."""
        return self._until is not None or len(self._text) > self._told

    @property
    def rest(self) -> str:
        """What is held back, if this is the end: of a known value that was cut off not even its beginning."""
        values, size = self._values(), len(self._text)
        known = value_spans(self._text, values, self._told)
        begins = value_begins(self._text, values, self._told)
        if size - begins >= SHORTEST_VALUE:  # guard: most of a secret is a secret
            known.append((begins, size))
        spans = self._masked(self._matches(self._text, known), known, size)
        return mask_spans(self._text, spans, self._told)

    def finish(self) -> str:
        """Return the rest: nothing more comes."""
        rest = self.rest
        self._text, self._told, self._until, self._skipped = "", 0, None, ""
        return rest

    def _matches(self, text: str, known: list[Span]) -> list[SecretMatch]:
        matches = find_in_text(text, self._told) if known or not self._only_known else []
        return matches + [SecretMatch(start, start, end) for start, end in known]

    def _masked(self, matches: Iterable[SecretMatch], known: Iterable[Span], last: int) -> list[Span]:
        spans = [(start, end) for _, start, end in matches if end <= last]
        return spans_around([span for span in known if span[1] <= last], spans) if self._only_known else spans

    def _cut(
        self, text: str, values: Collection[str], matches: Iterable[SecretMatch], *, paused: bool = False
    ) -> int:
        """Up to where all is decided, whatever comes next."""
        cut = value_begins(text, values, self._told)  # guard: a value that is cut in two is a value
        cut = min(cut, undecided_from(text, self._told, paused=paused))
        for match in sorted(matches, reverse=True):
            if match.begin < cut <= match.end or match.end == len(text):
                cut = min(cut, match.begin)
        return cut

    def _skip_from(self, text: str, cut: int, matches: list[SecretMatch], known: list[Span]) -> str:
        """Mask from there on, to where the secret ends."""
        start = min((match.start for match in matches if match.begin == cut), default=cut)
        spans = [*self._masked(matches, known, cut), (start, len(text))]
        told = mask_spans(text, spans, self._told)
        self._text, self._told, self._until = "", 0, end_of_masking(text, cut)
        return told

    def _after_skipped(self, until: re.Pattern[str], piece: str) -> str:
        text = self._skipped + piece
        end = until.search(text)
        if end is None:
            self._skipped = text[-_LONGEST_END:]
            return ""
        self._until, self._skipped = None, ""
        return text[end.start() :]
