"""Is the audit log what it was when it was written? Every row that is not gets named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Connection, select

from cleveragents.errors import AuditLogBroken
from cleveragents.infrastructure.events.chain import EMPTY, GENESIS, LogRow, Tip
from cleveragents.infrastructure.events.sequencer import rows_after
from cleveragents.infrastructure.persistence.tables import events

__all__ = ["AuditReport", "Finding", "find_problems"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something is wrong at this position (0: with the head as such)."""

    position: int
    problem: str

    def __str__(self) -> str:
        return f"row {self.position}: {self.problem}" if self.position else self.problem


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What a verification saw: `rows` in the database, of which the head attests the first `attested`."""

    rows: int
    attested: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def raise_if_broken(self) -> None:
        """`AuditLogBroken` with the first finding, for callers that want one error."""
        if self.findings:
            raise AuditLogBroken(self.findings[0].position, self.findings[0].problem)


def find_problems(connection: Connection, head: Tip | AuditLogBroken) -> AuditReport:
    """Goes through the whole log, a page at a time, and compares it with itself and with the head."""
    findings: list[Finding] = []
    if isinstance(head, AuditLogBroken):
        findings.append(Finding(0, head.problem))
    last = EMPTY
    rows = 0
    attested_hash: str | None = GENESIS if head == EMPTY else None
    for row in rows_after(connection, 0):
        findings += _problems_of(connection, row, last)
        last = Tip(row.position, row.hash)
        rows += 1
        if isinstance(head, Tip) and row.position == head.rows:
            attested_hash = row.hash
    if isinstance(head, Tip):
        findings += _problems_of_head(head, last, attested_hash)
    attested = min(head.rows, last.rows) if isinstance(head, Tip) else 0
    return AuditReport(rows, attested, tuple(findings))


def _problems_of(connection: Connection, row: LogRow, last: Tip) -> Iterator[Finding]:
    if row.position != last.rows + 1:
        yield Finding(last.rows + 1, _missing(last.rows + 1, row.position - 1))
    if row.expected_hash() != row.hash:
        yield Finding(row.position, "its content was changed after it was written")
    if row.previous_hash != last.hash and row.position == last.rows + 1:
        yield Finding(row.position, _misplaced(connection, row))


def _misplaced(connection: Connection, row: LogRow) -> str:
    if row.previous_hash == GENESIS:
        return "it was the first row: rows were reordered"
    query = select(events.c.position).where(events.c.hash == row.previous_hash)
    before = connection.execute(query).scalar()
    if before is None:
        return "the row before it was removed or replaced"
    return f"it belongs right after the row now at {before}: rows were reordered"


def _missing(first: int, last: int) -> str:
    return "it was removed" if first == last else f"it and all rows up to {last} were removed"


def _problems_of_head(head: Tip, last: Tip, attested_hash: str | None) -> Iterator[Finding]:
    if head.rows > last.rows:
        yield Finding(last.rows + 1, f"{_missing(last.rows + 1, head.rows)} from the end of the log")
    elif attested_hash is not None and attested_hash != head.hash:
        yield Finding(head.rows, "it is not the row that the head attests: the log was rewritten")
