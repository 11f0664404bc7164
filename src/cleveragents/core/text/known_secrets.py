"""Secrets whose exact values are known, and who holds them.

A component that gets hold of a secret (a provider's key, a variable of an MCP server) adds it to a
`KnownSecrets`, which belongs to the composition root or to the component itself. As long as that object
exists and was not told to forget, every redaction in this process masks the values: a secret that one thread
holds may reach a log line or an error in any other, so masking must not depend on where it happens. The
values live in the object alone. This module keeps weak references to the objects, and no value.
"""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Iterable

__all__ = ["KnownSecrets", "known_values", "value_begins", "value_spans"]

_SHORTEST = 8
"""A shorter secret would be found within ordinary words, and all of them masked."""

_lock = threading.RLock()  # reentrant: a finalizer that runs while it is held may create or drop an owner
_owners: tuple[weakref.ref[KnownSecrets], ...] = ()
"""Those that know a secret. Most never do, and every redaction asks all of these."""


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


def known_values() -> frozenset[str]:
    """Return the values of all owners in this process."""
    return frozenset().union(*(owner.values for owner in map(_alive, _owners) if owner is not None))


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
