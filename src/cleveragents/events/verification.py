"""Verification of the audit log: reports every row that changed since it was written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from sqlalchemy import Connection, select

from cleveragents.core.errors import AuditLogBroken
from cleveragents.events.chain import EMPTY, GENESIS, Anchor, AnchorSet, LogRow, Tip
from cleveragents.events.sequencer import rows_after
from cleveragents.storage.tables import events

__all__ = ["AuditReport", "Coverage", "LogFinding", "check_anchors", "find_problems", "hashes_at"]

_HASHES_AT_ONCE = 500


class LogFinding(Struct, frozen=True):
    """A problem with the event at `position`; position 0 means the head or an anchor."""

    position: int
    problem: str

    def __str__(self) -> str:
        return f"row {self.position}: {self.problem}" if self.position else self.problem


class Coverage(Struct, frozen=True):
    """The proven part of the log: the first `events` events are unchanged since `time`; 0 if no anchor
    matches.
    """

    source: str
    anchors: int
    events: int
    time: str | None


class AuditReport(Struct, frozen=True):
    """The result of a verification: `rows` in the database, of which the head attests the first `attested`.

    `coverage` has one entry for each set of anchors that the log was compared with.
    """

    rows: int
    attested: int
    findings: tuple[LogFinding, ...]
    coverage: tuple[Coverage, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there are no findings."""
        return not self.findings


def find_problems(
    connection: Connection, head: Tip | AuditLogBroken | None, anchors: Sequence[AnchorSet] = ()
) -> AuditReport:
    """Read the whole log, a page at a time, and compare it with itself, the head and the anchors.

    Without a head (None), only the anchors tell where the log ends.
    """
    findings: list[LogFinding] = []
    if isinstance(head, AuditLogBroken):
        findings.append(LogFinding(0, head.problem))
    anchored = {anchor.tip.rows for each in anchors for anchor in each.anchors}
    hashes: dict[int, str] = {}
    last = EMPTY
    rows = 0
    attested_hash: str | None = GENESIS if head == EMPTY else None
    for row in rows_after(connection, 0):
        findings += _problems_of(connection, row, last)
        last = Tip(row.position, row.hash)
        rows += 1
        if row.position == 1 or row.position in anchored:
            hashes[row.position] = row.hash
        if isinstance(head, Tip) and row.position == head.rows:
            attested_hash = row.hash
    if isinstance(head, Tip):
        findings += _problems_of_head(head, last, attested_hash)
    attested = min(head.rows, last.rows) if isinstance(head, Tip) else 0
    intact = min((finding.position for finding in findings if finding.position), default=last.rows + 1) - 1
    coverage: list[Coverage] = []
    for each in anchors:
        findings += check_anchors(each, hashes, last.rows)
        coverage.append(_coverage(each, hashes, intact))
    return AuditReport(rows, attested, tuple(findings), tuple(coverage))


def hashes_at(connection: Connection, positions: Iterable[int]) -> dict[int, str]:
    """Return the hashes of the rows at these positions, and of the first row."""
    wanted = sorted({1, *positions})
    found: dict[int, str] = {}
    for start in range(0, len(wanted), _HASHES_AT_ONCE):
        some = wanted[start : start + _HASHES_AT_ONCE]
        query = select(events.c.position, events.c.hash).where(events.c.position.in_(some))
        found.update({row.position: row.hash for row in connection.execute(query)})
    return found


def check_anchors(anchors: AnchorSet, hashes: Mapping[int, str], rows: int) -> Iterator[LogFinding]:
    """Yield the problems of the anchor set, and where its anchors contradict a log of `rows` rows.

    `hashes` are those of the log, by position. Each kind of contradiction is reported for one anchor only.
    """
    for problem in anchors.problems:
        yield LogFinding(0, f"{anchors.source}: {problem}")
    if not anchors.anchors:
        yield LogFinding(0, f"{anchors.source}: no valid anchor found")
        return
    most = max(anchors.anchors, key=lambda anchor: anchor.tip.rows)
    if most.tip.rows > rows:
        problem = f"the anchor of {most.time} records {most.tip.rows} events"
        yield LogFinding(rows + 1, f"{_missing(rows + 1, most.tip.rows)} from the end of the log: {problem}")
    foreign = [anchor for anchor in anchors.anchors if anchor.log != hashes.get(1)]
    if foreign and rows:
        problem = f"the row is not the first event of the log that the anchor of {foreign[0].time} records"
        yield LogFinding(1, f"{problem}: the log was rewritten, or {anchors.source} anchors another log")
    own = [anchor for anchor in anchors.anchors if anchor.log == hashes.get(1) and anchor.tip.rows <= rows]
    changed = [anchor for anchor in own if hashes.get(anchor.tip.rows) != anchor.tip.hash]
    if changed:
        first = min(changed, key=lambda anchor: anchor.tip.rows)
        below = (anchor.tip.rows for anchor in own if anchor.tip.rows < first.tip.rows)
        start = max(below, default=1) + 1
        which = f"events {start} to {first.tip.rows}" if start < first.tip.rows else "it"
        problem = f"the row is not the event that the anchor of {first.time} records: {which} changed since"
        yield LogFinding(first.tip.rows, problem)


def _coverage(anchors: AnchorSet, hashes: Mapping[int, str], intact: int) -> Coverage:
    matching = [
        anchor
        for anchor in anchors.anchors
        if anchor.log == hashes.get(1) and hashes.get(anchor.tip.rows) == anchor.tip.hash
    ]
    best: Anchor | None = max(matching, key=lambda anchor: anchor.tip.rows, default=None)
    covered = 0 if best is None else min(best.tip.rows, intact)
    time = None if best is None else best.time
    return Coverage(anchors.source, len(anchors.anchors), covered, time)


def _problems_of(connection: Connection, row: LogRow, last: Tip) -> Iterator[LogFinding]:
    if row.position != last.rows + 1:
        yield LogFinding(last.rows + 1, _missing(last.rows + 1, row.position - 1))
    if row.expected_hash() != row.hash:
        yield LogFinding(row.position, "the content of the row was changed after it was written")
    if row.previous_hash != last.hash and row.position == last.rows + 1:
        yield LogFinding(row.position, _misplaced(connection, row))


def _misplaced(connection: Connection, row: LogRow) -> str:
    if row.previous_hash == GENESIS:
        return "this was the first row: rows were reordered"
    query = select(events.c.position).where(events.c.hash == row.previous_hash)
    before = connection.execute(query).scalar()
    if before is None:
        return "the row before this one was removed or replaced"
    return f"the row belongs right after the row now at {before}: rows were reordered"


def _missing(first: int, last: int) -> str:
    return "the row was removed" if first == last else f"all rows from this one to {last} were removed"


def _problems_of_head(head: Tip, last: Tip, attested_hash: str | None) -> Iterator[LogFinding]:
    if head.rows > last.rows:
        yield LogFinding(last.rows + 1, f"{_missing(last.rows + 1, head.rows)} from the end of the log")
    elif attested_hash is not None and attested_hash != head.hash:
        yield LogFinding(
            head.rows, "the row differs from the one that the head attests: the log was rewritten"
        )
