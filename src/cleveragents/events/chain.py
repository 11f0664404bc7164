"""The hash chain of the audit log, and the anchors that attest it.

Each row has its own hash and that of its predecessor, which makes the log tamper-evident. A hash covers the
predecessor's hash and the row's text, but not its position. So a changed row no longer matches its own hash,
while a moved row matches its own hash but not its neighbours. A verification can distinguish the two.

The head attests the log on this machine: the number of its events and the hash of the last one. An attacker
with the key of the head can attest a different log. An anchor makes the same statement, with the time, signed
and kept outside the machine. Each hash covers all events before it, so one anchor covers the log from its
first event.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

from msgspec import Struct

from cleveragents.core.errors import AuditLogBroken
from cleveragents.core.event import PreparedEvent

__all__ = ["EMPTY", "GENESIS", "Anchor", "AnchorSet", "LogRow", "Tip", "extend", "follow_chain", "row_hash"]


GENESIS = "0" * 64
"""The predecessor of row 1."""


class Tip(NamedTuple):
    """The end of a chain: its number of rows, and the hash of the last."""

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
        """Return the hash computed from the text of this row."""
        text = PreparedEvent(self.event_id, self.event_type, self.subject, self.occurred_at, self.payload)
        return row_hash(self.previous_hash, text)


def row_hash(previous_hash: str, event: PreparedEvent) -> str:
    """Return the SHA-256 of the previous hash and the event, encoded unambiguously."""
    text = json.dumps([previous_hash, *event], ensure_ascii=False, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


def extend(tip: Tip, batch: Iterable[PreparedEvent]) -> list[LogRow]:
    """Return the rows that append the events of `batch` to a chain that ends with `tip`."""
    rows: list[LogRow] = []
    position, previous = tip
    for event in batch:
        position += 1
        own = row_hash(previous, event)
        rows.append(LogRow(position, *event, previous, own))
        previous = own
    return rows


def follow_chain(tip: Tip, rows: Iterable[LogRow]) -> Tip:
    """Return the tip after these rows.

    Raises `AuditLogBroken` at the first row that does not continue the chain.
    """
    for row in rows:
        if row.position != tip.rows + 1:
            raise AuditLogBroken(tip.rows + 1, "the row is missing")
        if row.previous_hash != tip.hash:
            raise AuditLogBroken(row.position, "the row does not continue the hash chain of the row before")
        if row.expected_hash() != row.hash:
            raise AuditLogBroken(row.position, "the content of the row was changed")
        tip = Tip(row.position, row.hash)
    return tip


class Anchor(Struct, frozen=True):
    """A statement: at `time`, the log whose first event has the hash `log` ended with `tip`."""

    log: str
    tip: Tip
    time: str


class AnchorSet(Struct, frozen=True):
    """The anchors at `source` with a valid signature, and the problems of other lines."""

    source: str
    anchors: tuple[Anchor, ...]
    problems: tuple[str, ...] = ()
