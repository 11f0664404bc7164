"""What makes the audit log tamper-evident: each row carries the hash of its predecessor and its own.

The hash covers the predecessor's hash and the row's text, not its position: so a row whose text was changed
no longer fits its own hash, while one that was moved still does but does not fit its neighbours, and a
verification can tell the two apart.

What an anchor states about the audit log, and which anchors a verification is given.

The head attests the log on this machine, and with its key an attacker can attest another log. An anchor is
the same statement, signed and kept outside the machine: the number of events, the hash of the last, and the
time. As each hash covers all events before it, one anchor covers the log from its first event on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from cleveragents.core.errors import AuditLogBroken
from cleveragents.core.event import PreparedEvent

__all__ = ["EMPTY", "GENESIS", "Anchor", "AnchorSet", "LogRow", "Tip", "extend", "follow_chain", "row_hash"]


GENESIS = "0" * 64
"""The predecessor of row 1."""


class Tip(NamedTuple):
    """The end of a chain: how many rows it has, and the hash of the last."""

    rows: int
    hash: str


EMPTY = Tip(0, GENESIS)


class LogRow(NamedTuple):
    """A row of the audit log."""

    position: int
    event_id: str
    event_type: str
    subject: str
    occurred_at: str
    payload: str
    previous_hash: str
    hash: str

    def expected_hash(self) -> str:
        """The hash that this row's own text calls for."""
        text = PreparedEvent(self.event_id, self.event_type, self.subject, self.occurred_at, self.payload)
        return row_hash(self.previous_hash, text)


def row_hash(previous_hash: str, event: PreparedEvent) -> str:
    """SHA-256 over an unambiguous text of both."""
    text = json.dumps([previous_hash, *event], ensure_ascii=False, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


def extend(tip: Tip, batch: Iterable[PreparedEvent]) -> list[LogRow]:
    """The rows that the events become after `tip`."""
    rows: list[LogRow] = []
    position, previous = tip
    for event in batch:
        position += 1
        own = row_hash(previous, event)
        rows.append(LogRow(position, *event, previous, own))
        previous = own
    return rows


def follow_chain(tip: Tip, rows: Iterable[LogRow]) -> Tip:
    """The tip after these rows; `AuditLogBroken` at the first that does not chain on."""
    for row in rows:
        if row.position != tip.rows + 1:
            raise AuditLogBroken(tip.rows + 1, "it is missing")
        if row.previous_hash != tip.hash:
            raise AuditLogBroken(row.position, "it does not follow on from its predecessor")
        if row.expected_hash() != row.hash:
            raise AuditLogBroken(row.position, "its content was changed")
        tip = Tip(row.position, row.hash)
    return tip


@dataclass(frozen=True, slots=True)
class Anchor:
    """At `time`, the log whose first event has the hash `log` ended with `tip`."""

    log: str
    tip: Tip
    time: str


@dataclass(frozen=True, slots=True)
class AnchorSet:
    """The anchors at `source` with a valid signature, and what is wrong with other lines there."""

    source: str
    anchors: tuple[Anchor, ...]
    problems: tuple[str, ...] = ()
