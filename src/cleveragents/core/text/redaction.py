"""Redaction: mask secrets in everything that people or programs read.

A secret is found in three ways, because none suffices alone: by its value, if known (`KnownSecrets`), by the
name before it, and by its shape (`secret_patterns`). All are searched in the original text; overlapping or
adjacent matches are merged and masked once. So a known value within a longer secret never exposes the rest of
that secret. In doubt, text is masked: too much masking is an inconvenience, while a leaked secret cannot be
taken back.

File contents are different: a model reads them and writes them back. `password = load()` is not a secret, and
masking it would destroy it. So there are two levels. `redact` and `redact_text` search by name and shape: for
logs, errors, goals, command lines and command output. `redact_content` and `redact_content_text` are for file
contents: they mask only known secrets and unmistakable shapes, and keep every line number.

Texts that a person approves, trusts or reviews must be exact: masking by name or shape could hide code, as in
`PASSWORD="$(rm -rf .)" ls`. For these texts, `redact_known` and `redact_known_text` mask only known values.

`PieceMask` masks a text that arrives in pieces exactly like the whole text. A piece may end in the middle of
a secret, or between a name and its value. So the end of the received text is held back while it may be part
of a secret: the last word, a name without its value, a quoted value without its closing quote, a private key
without its end, or the beginning of a known value. The text is never cut inside a secret or right after one.
Memory is bounded: a secret longer than the limit is masked to the end of its line, or of its key.

`KnownSecrets` holds secrets whose exact values are known. A component that obtains a secret (the key of a
provider, a variable of an MCP server) adds it to a `KnownSecrets`, which belongs to the composition root or
to the component. While that object exists and has not been cleared, every redaction in this process masks its
values, because a secret of one thread may reach a log line or an error in any other thread. Only the object
holds the values; this module keeps weak references to the objects.
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
"""The shortest prefix of a known value that is masked if the text ends inside the value."""
_MOST_HELD = 3 * LONGEST_WORD

_LONGEST_END = 64
"""The maximum length of the pattern that ends a secret too long to be buffered."""

_SHORTEST = 8
"""Shorter secrets are ignored: they would match inside ordinary words."""
_lock = threading.RLock()  # reentrant: a finalizer that runs while it is held may create or drop an owner


class KnownSecrets:
    """The secrets of one owner, held only in memory.

    Thread safety: any thread may add, forget or redact at any time. Changes happen under one lock; readers
    take no lock and see a value either before or after it was added.
    """

    def __init__(self) -> None:
        self._values: frozenset[str] = frozenset()

    @property
    def values(self) -> frozenset[str]:
        """The strings to mask: each secret as it is, and as it is written in JSON."""
        return self._values

    def add(self, secret: str) -> None:
        """Mask the secret from now on, in every redaction of this process.

        Secrets that are too short are ignored.
        """
        if len(secret) < _SHORTEST:
            return
        spelled = (json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False))
        global _owners
        with _lock:  # concurrent additions of secrets or owners are all kept
            if not self._values:
                _owners = (*_owners_except(self), weakref.ref(self))
            self._values = self._values.union((secret, *spelled))

    def forget(self) -> None:
        """Drop all values. Secrets added afterwards are masked again."""
        global _owners
        with _lock:
            self._values = frozenset()
            _owners = _owners_except(self)


_owners: tuple[weakref.ref[KnownSecrets], ...] = ()
"""The owners with at least one secret. Most owners never have one, and every redaction checks all in this
set.
"""


def redact_text(text: str, secrets: Collection[str] = ()) -> str:
    """Return the text with everything masked that looks like a secret or is one of `secrets`."""
    found = [(start, end) for _, start, end in find_in_text(text)]
    return mask_spans(text, [*found, *value_spans(text, known_values().union(secrets))])


def redact(value: object, secrets: Collection[str] = (), *, depth: int = 0) -> object:
    """Return the value with secrets masked by name and by shape, also inside mappings and sequences."""
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
    """Return the text of a file with known and unmistakable secrets masked; names are ignored."""
    found = [(start, end) for _, start, end in find_in_content(text)]
    return mask_spans(text, [*found, *value_spans(text, known_values())])


def redact_content(value: object) -> object:
    """Return the value with each text, also inside mappings and sequences, masked like a file's text."""
    return _each_text(value, redact_content_text)


def redact_known_text(text: str) -> str:
    """Return the text with known secrets masked and everything else unchanged. Line breaks are kept."""
    spans = value_spans(text, known_values())
    return mask_spans(text, [line.span() for span in spans for line in _LINE.finditer(text, *span)])


def redact_known(value: object) -> object:
    """Return the value with known secrets masked in each text, also inside mappings and sequences."""
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
    """Return the password inside a URL as written, or None, so that it can be masked everywhere."""
    return next(iter(url_passwords(url)), None)


def mask_spans(text: str, spans: Iterable[Span], first: int = 0, last: int | None = None) -> str:
    """Return the text from `first` to `last` with the mask in place of each span.

    Overlapping or adjacent spans share one mask. No span may begin before `first` or end after `last`.
    """
    pieces: list[str] = []
    for start, end in _merged(spans):
        pieces += (text[first:start], MASK)
        first = end
    pieces.append(text[first:last])
    return "".join(pieces)


def spans_around(known: Collection[Span], others: Iterable[Span]) -> list[Span]:
    """Return the known spans, each extended by the other spans that overlap or touch it.

    So a longer secret that contains a known value is hidden completely.
    """
    starts = sorted(start for start, _ in known)
    merged = _merged([*known, *others]) if known else []
    return [span for span in merged if bisect_left(starts, span[0]) < bisect_left(starts, span[1])]


def end_of_cut_secret(before: str, behind: str) -> int:
    """Return the number of characters of `behind` that belong to a secret which begins in `before`, by name
    or by shape.

    A caller that drops `before` must drop these characters, too: alone, they are not recognized as a secret.
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
    """A mask for one text that arrives in pieces.

    Not thread-safe: use it in the thread that made it, or under the lock of its owner.

    `values` returns the known secrets and is called for each piece. With `only_known`, names and shapes alone
    are not masked: only known values are, and longer secrets that contain one.
    """

    def __init__(
        self, values: Callable[[], Collection[str]] = known_values, *, only_known: bool = False
    ) -> None:
        self._values = values
        self._only_known = only_known
        self._text = ""  # begins with one character already returned: it shows where a word begins
        self._told = 0
        self._until: re.Pattern[str] | None = None
        self._skipped = ""

    def feed(self, piece: str) -> str:
        """Return the part of the text whose masking is final, with secrets masked."""
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
            # The buffered text is not a known secret, so it is returned when it gets long.
            cut = max(cut, min(value_begins(text, values, first), len(text) - LONGEST_WORD))
        most = max(_MOST_HELD, 2 * max(map(len, values), default=0))
        if len(text) - cut > most:  # guard: memory stays bounded, and the secret stays hidden
            return self._skip_from(text, cut, matches, known)
        self._text, self._told = text[max(cut - 1, 0) :], min(cut, 1)
        return mask_spans(text, self._masked(matches, known, cut), first, cut)

    def pause(self) -> str:
        """Return the buffered text that cannot begin a secret, such as a prompt, after a long silence.

        Text that may be part of a secret stays buffered, however long the pause is.
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
        """Whether text is buffered, or the end of a secret has not arrived yet."""
        return self._until is not None or len(self._text) > self._told

    @property
    def rest(self) -> str:
        """Return the masked buffer as if no more text followed; a truncated known value is masked, too."""
        values, size = self._values(), len(self._text)
        known = value_spans(self._text, values, self._told)
        begins = value_begins(self._text, values, self._told)
        if size - begins >= SHORTEST_VALUE:  # guard: most of a secret is a secret
            known.append((begins, size))
        spans = self._masked(self._matches(self._text, known), known, size)
        return mask_spans(self._text, spans, self._told)

    def finish(self) -> str:
        """End the text: return the masked rest of the buffer."""
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
        """Return the position before which the masking is final, whatever text follows."""
        cut = value_begins(text, values, self._told)  # guard: a value that is cut in two is still a value
        cut = min(cut, undecided_from(text, self._told, paused=paused))
        for match in sorted(matches, reverse=True):
            if match.begin < cut <= match.end or match.end == len(text):
                cut = min(cut, match.begin)
        return cut

    def _skip_from(self, text: str, cut: int, matches: list[SecretMatch], known: list[Span]) -> str:
        """Return the text with the secret at `cut` masked, and skip the rest of the secret as it arrives."""
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
    """Return the spans of all values in the text, including overlapping ones."""
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
    """Return the first position at which one of the values begins but is cut off by the end of the text.

    Returns the length of the text if there is no such position.
    """
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
