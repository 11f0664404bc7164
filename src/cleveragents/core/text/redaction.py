"""Keeps secrets out of whatever people or programs get to read.

A secret is found in three ways, because none suffices alone: by its value where that is known
(`known_secrets`), by the name before it, and by its shape (`secret_patterns`). All are looked for in the text
as it was written; what they find is merged where it overlaps or touches, and masked once. So a known value
within a longer secret never leaves the rest of it. Redacting too much costs a look at the configuration;
redacting too little cannot be undone.

That does not hold for the contents of files, which a model reads and writes back: `password = load()` is no
secret, and masked it would be lost. So there are two levels. `redact` and `redact_text` go by name and by
shape: for logs, errors, goals, command lines and what commands print. `redact_content` and
`redact_content_text` are for the contents of files: only known secrets, and shapes that nothing else has.
These mask within lines, so that every line keeps its number.

What a person approves, trusts or reviews must be the exact text: a name or a shape could hide code from
them, as in `PASSWORD="$(rm -rf .)" ls`. There, `redact_known` and `redact_known_text` mask only known values.

Masks a text that comes in pieces as the whole of it would be masked.

A piece may end in the middle of a secret, or between a name and its value. So the end of what came is held
back, as it was written, until what follows shows that nothing of it is part of a secret: the last word, a
name whose value may follow, a quoted value without its closing quote, a private key without its end, the
beginning of a known value. The text is never cut inside a secret or right behind one, so the pieces together
are masked as the whole text is.

Memory is bounded. A secret that is longer than the bound is masked to the end of its line, or of its key.

Secrets whose exact values are known, and who holds them.

A component that gets hold of a secret (a provider's key, a variable of an MCP server) adds it to a
`KnownSecrets`, which belongs to the composition root or to the component itself. As long as that object
exists and was not told to forget, every redaction in this process masks the values: a secret that one thread
holds may reach a log line or an error in any other, so masking must not depend on where it happens. The
values live in the object alone. This module keeps weak references to the objects, and no value.
"""

from __future__ import annotations

import json
import re
import threading
import weakref
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping

from cleveragents.core.text.secret_patterns import (
    LONGEST_WORD,
    SECRET_NAME,
    SecretMatch,
    end_of_masking,
    find_in_content,
    find_in_text,
    undecided_from,
    url_passwords,
)

__all__ = [
    "MASK",
    "SHORTEST_VALUE",
    "KnownSecrets",
    "PieceMask",
    "Span",
    "end_of_cut_secret",
    "known_values",
    "mask_spans",
    "redact",
    "redact_content",
    "redact_content_text",
    "redact_known",
    "redact_known_text",
    "redact_text",
    "spans_around",
    "url_password",
    "value_begins",
    "value_spans",
]


MASK = "***"
Span = tuple[int, int]
_DEPTH_LIMIT = 16
_LINE = re.compile(r"[^\r\n]+")

SHORTEST_VALUE = 6
"""At the end of the text, so much of a known value that is cut off is masked."""
_MOST_HELD = 3 * LONGEST_WORD

_LONGEST_END = 64
"""What ends a secret that is too long to be held is shorter."""

_SHORTEST = 8
"""A shorter secret would be found within ordinary words, and all of them masked."""
_lock = threading.RLock()  # reentrant: a finalizer that runs while it is held may create or drop an owner


class KnownSecrets:
    """The secrets that one owner knows, held in memory alone.

    Thread safety: any thread may add, forget or redact at any time. Changes happen under one lock; readers
    take no lock and see a value either before or after it was added.
    """

    def __init__(self) -> None:
        self._values: frozenset[str] = frozenset()

    @property
    def values(self) -> frozenset[str]:
        """Everything to mask: each secret as it is, and as it stands in JSON."""
        return self._values

    def add(self, secret: str) -> None:
        """Mask the secret from now on, wherever this process redacts. One that is too short is ignored."""
        if len(secret) < _SHORTEST:
            return
        spelled = (json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False))
        global _owners
        with _lock:  # two secrets that are added at once are both kept, and so are two owners
            if not self._values:
                _owners = (*_owners_except(self), weakref.ref(self))
            self._values = self._values.union((secret, *spelled))

    def forget(self) -> None:
        """Drop all values. A secret that is added afterwards is masked again."""
        global _owners
        with _lock:
            self._values = frozenset()
            _owners = _owners_except(self)


_owners: tuple[weakref.ref[KnownSecrets], ...] = ()
"""Those that know a secret. Most never do, and every redaction asks all of these."""


def redact_text(text: str, secrets: Collection[str] = ()) -> str:
    """The same text with everything that looks like a secret, or is one of `secrets`, masked."""
    found = [(start, end) for _, start, end in find_in_text(text)]
    return mask_spans(text, [*found, *value_spans(text, known_values().union(secrets))])


def redact(value: object, secrets: Collection[str] = (), *, depth: int = 0) -> object:
    """The same value, through mappings and sequences, with secrets masked by name and by shape."""
    if isinstance(value, str):
        return redact_text(value, secrets)
    if depth >= _DEPTH_LIMIT:
        return redact_text(repr(value), secrets)
    if isinstance(value, Mapping):
        return {
            _redact_key(key, secrets): MASK
            if item and _is_secret_name(key)
            else redact(item, secrets, depth=depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [redact(item, secrets, depth=depth + 1) for item in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return redact_text(str(value), secrets)


def redact_content_text(text: str) -> str:
    """The same text of a file with known secrets masked, and what can only be one; names mean nothing."""
    found = [(start, end) for _, start, end in find_in_content(text)]
    return mask_spans(text, [*found, *value_spans(text, known_values())])


def redact_content(value: object) -> object:
    """The same value, through mappings and sequences, with each text of it masked as that of a file is."""
    return _each_text(value, redact_content_text)


def redact_known_text(text: str) -> str:
    """Return the text with known secrets masked and everything else as it is. Line breaks are kept."""
    spans = value_spans(text, known_values())
    return mask_spans(text, [line.span() for span in spans for line in _LINE.finditer(text, *span)])


def redact_known(value: object) -> object:
    """Return the value, through mappings and sequences, with known secrets masked in each text."""
    return _each_text(value, redact_known_text)


def _each_text(value: object, masked: Callable[[str], str], depth: int = 0) -> object:
    if isinstance(value, str):
        return masked(value)
    if depth >= _DEPTH_LIMIT:
        return masked(repr(value))
    if isinstance(value, Mapping):
        return {_each_text(key, masked): _each_text(item, masked, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_each_text(item, masked, depth + 1) for item in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return masked(str(value))


def url_password(url: str) -> str | None:
    """The password inside a URL as it was written, or None; so that it can be masked wherever it turns up."""
    return next(iter(url_passwords(url)), None)


def mask_spans(text: str, spans: Iterable[Span], first: int = 0, last: int | None = None) -> str:
    """The text from `first` to `last` with the mask in place of each span; of those that overlap or touch,
    one. No span may begin before `first` or end after `last`."""
    pieces: list[str] = []
    for start, end in _merged(spans):
        pieces += (text[first:start], MASK)
        first = end
    pieces.append(text[first:last])
    return "".join(pieces)


def spans_around(known: Collection[Span], others: Iterable[Span]) -> list[Span]:
    """The known spans, each with all of the others that overlap or touch it: a known value within a longer
    secret hides all of it."""
    starts = sorted(start for start, _ in known)
    merged = _merged([*known, *others]) if known else []
    return [span for span in merged if bisect_left(starts, span[0]) < bisect_left(starts, span[1])]


def end_of_cut_secret(before: str, behind: str) -> int:
    """Return how many characters of `behind` belong to a secret that begins in `before`, by name or by shape.

    Without `before` the rest of such a secret could not be recognized, so it must not be kept either.
    """
    first = end = len(before)
    for match in sorted(find_in_text(before + behind)):
        if match.begin < end:
            end = max(end, match.end)
    return end - first


def _merged(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(span for span in spans if span[0] < span[1]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _redact_key(key: object, secrets: Collection[str]) -> object:
    return redact_text(key, secrets) if isinstance(key, str) else key


def _is_secret_name(name: object) -> bool:
    return isinstance(name, str) and SECRET_NAME.search(name) is not None


def known_values() -> frozenset[str]:
    """Return the values of all owners in this process."""
    return frozenset().union(*(owner.values for owner in map(_alive, _owners) if owner is not None))


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


def value_spans(text: str, values: Iterable[str], first: int = 0) -> list[tuple[int, int]]:
    """Return where any of the values stands in the text, also where they overlap."""
    spans: list[tuple[int, int]] = []
    for value in values:
        start = text.find(value, first) if value else -1
        while start >= 0:
            end, following = start + len(value), text.find(value, start + 1)
            while 0 <= following <= end:  # one span for a value that overlaps itself
                end, following = following + len(value), text.find(value, following + 1)
            spans.append((start, end))
            start = following
    return spans


def value_begins(text: str, values: Iterable[str], first: int = 0) -> int:
    """Return where the end of the text may be the beginning of a value; its length where it is none."""
    begins = len(text)
    for value in filter(None, values):
        place = text.find(value[0], max(first, len(text) - len(value) + 1), begins)
        while place >= 0 and not value.startswith(text[place:]):
            place = text.find(value[0], place + 1, begins)
        begins = begins if place < 0 else place
    return begins


def _owners_except(left_out: KnownSecrets) -> tuple[weakref.ref[KnownSecrets], ...]:
    return tuple(owner for owner in _owners if owner() not in (None, left_out))


def _alive(owner: weakref.ref[KnownSecrets]) -> KnownSecrets | None:
    return owner()
