"""Anchors of the audit log on SQLite and PostgreSQL: an erased, rolled back or rewritten log is detected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Connection

from cleveragents.config.service_settings import AuditSettings
from cleveragents.core.errors import AuditElsewhere, AuditLogBroken, ConfigurationError
from cleveragents.core.event import PreparedEvent
from cleveragents.core.faults import NoFaults
from cleveragents.core.identifiers import UlidSource
from cleveragents.events.anchors.audit_anchors import Anchored, AuditAnchors, create_signing_key
from cleveragents.events.audit import DurableAuditLog
from cleveragents.events.chain import EMPTY, LogRow, Tip, extend
from cleveragents.events.head import HeadFile
from cleveragents.events.sequencer import rows_after
from cleveragents.events.verification import AuditReport, Coverage
from cleveragents.jobs.model.job import NewJob
from cleveragents.jobs.store.sql_job_store import SqlJobStore
from cleveragents.storage.database import Database, open_database
from cleveragents.storage.outbox import leave_in_outbox
from cleveragents.storage.tables import events
from cleveragents.testing.clock import FakeClock
from tests.ready_database import ready_database

TYPES = ("plan.created", "apply.started", "apply.succeeded", "plan.moved")


def prepared(number: int) -> PreparedEvent:
    kind = TYPES[number % len(TYPES)]
    when = datetime(2026, 1, 1, 12, number, tzinfo=UTC).isoformat()
    return PreparedEvent(f"e{number}", kind, "subject", when, "{}")


@pytest.fixture
def log(database: Database, tmp_path: Path) -> DurableAuditLog:
    log = DurableAuditLog(database, tmp_path / "data")
    log.sequence([prepared(n) for n in range(8)])
    return log


def rows_of(database: Database) -> list[LogRow]:
    with database.read() as connection:
        return list(rows_after(connection, 0))


def texts_of(database: Database) -> list[PreparedEvent]:
    return [PreparedEvent(*row[1:6]) for row in rows_of(database)]


def replace_log(database: Database, kept: list[PreparedEvent]) -> Tip:
    """What an attacker does: write another log, with every hash right."""
    rows = extend(EMPTY, kept)

    def unit(connection: Connection) -> None:
        connection.execute(events.delete())
        if rows:
            connection.execute(events.insert(), [row._asdict() for row in rows])

    database.write(unit)
    return Tip(rows[-1].position, rows[-1].hash) if rows else EMPTY


def change_event(database: Database, position: int) -> None:
    change = events.update().where(events.c.position == position).values(payload="[]")
    database.write(lambda connection: connection.execute(change))


def reseal(directory: Path, tip: Tip) -> None:
    """Seal another head with the key that is beside it."""
    HeadFile(directory, fsync=False, faults=NoFaults()).store(tip)


def erase_applies(database: Database, directory: Path) -> None:
    kept = [text for text in texts_of(database) if not text.event_type.startswith("apply.")]
    reseal(directory, replace_log(database, kept))


@dataclass(frozen=True)
class Desk:
    """A log of eight events with its head and key in `data`, anchored in a file outside of it."""

    database: Database
    log: DurableAuditLog
    data: Path
    target: Path
    anchors: AuditAnchors

    def verify(self, **options: bool) -> AuditReport:
        return self.log.verify(self.anchors.read([str(self.target)]), **options)

    def found(self, **options: bool) -> dict[int, str]:
        return {finding.position: finding.problem for finding in self.verify(**options).findings}

    def append(self, number: int) -> None:
        self.log.sequence([prepared(number)])

    def anchor(self) -> Anchored | None:
        return self.anchors.write(str(self.target))

    def snapshot(self) -> tuple[list[PreparedEvent], dict[Path, bytes]]:
        files = [self.target, *(self.data / name for name in ("audit.head", "audit.key", "anchor.key"))]
        return texts_of(self.database), {file: file.read_bytes() for file in files}

    def restore(self, kept: tuple[list[PreparedEvent], dict[Path, bytes]]) -> None:
        replace_log(self.database, kept[0])
        for file, content in kept[1].items():
            file.write_bytes(content)


@pytest.fixture
def desk(database: Database, log: DurableAuditLog, tmp_path: Path) -> Desk:
    data = tmp_path / "data"
    anchors = AuditAnchors(log, AuditSettings(), data, tmp_path / "mirrors", FakeClock())
    desk = Desk(database, log, data, tmp_path / "outside.jsonl", anchors)
    assert desk.anchor()
    return desk


# ── Attacks ───────────────────────────────────────────────────────────────────────────────────────


def test_erasing_events_and_resealing_is_found_by_an_anchor(desk: Desk) -> None:
    assert desk.verify().ok
    erase_applies(desk.database, desk.data)
    assert desk.log.verify().ok, "with the key beside it, the head alone does not show it"
    assert "all rows from this one to 8 were removed from the end of the log" in desk.found()[5]
    for number in range(10, 20):  # the log grows past the anchor again
        desk.append(number)
    assert desk.log.verify().ok
    assert desk.found() == {
        8: "the row is not the event that the anchor of 2026-01-01T00:00:00Z records: "
        "events 2 to 8 changed since"
    }


def roll_back(desk: Desk) -> None:
    head = (desk.data / "audit.head").read_bytes()
    texts = texts_of(desk.database)
    desk.append(8)
    desk.anchor()
    (desk.data / "audit.head").write_bytes(head)
    replace_log(desk.database, texts)


def truncate(desk: Desk) -> None:
    reseal(desk.data, replace_log(desk.database, texts_of(desk.database)[:6]))


def rewrite_one(desk: Desk) -> None:
    texts = texts_of(desk.database)
    texts[4] = texts[4]._replace(payload='{"n":1}')
    reseal(desk.data, replace_log(desk.database, texts))


def rewrite_all(desk: Desk) -> None:
    reseal(desk.data, replace_log(desk.database, [prepared(n) for n in range(20, 30)]))


def begin_anew(desk: Desk) -> None:
    replace_log(desk.database, [])
    for name in ("audit.head", "audit.key"):
        (desk.data / name).unlink()


def alter_a_line(desk: Desk) -> None:
    desk.target.write_text(desk.target.read_text().replace("events", "Events"))


def sign_with_another_key(desk: Desk) -> None:
    (desk.data / "anchor.key").rename(desk.data / "kept.key")
    desk.target.unlink()
    erase_applies(desk.database, desk.data)
    desk.anchor()
    (desk.data / "kept.key").replace(desk.data / "anchor.key")


def empty_the_target(desk: Desk) -> None:
    desk.target.write_text("")


def remove_the_target(desk: Desk) -> None:
    desk.target.unlink()


ATTACKS: dict[str, tuple[Callable[[Desk], None], dict[int, str]]] = {
    "an older database with its older head": (roll_back, {9: "the row was removed from the end of the log"}),
    "cut off and resealed": (truncate, {7: "the anchor of 2026-01-01T00:00:00Z records 8 events"}),
    "one event rewritten": (rewrite_one, {8: "events 2 to 8 changed since"}),
    "everything rewritten": (rewrite_all, {1: "the log was rewritten"}),
    "begun anew without head and key": (begin_anew, {1: "all rows from this one to 8 were removed"}),
    "an anchor altered": (alter_a_line, {0: "no valid anchor found"}),
    "an anchor by another key": (sign_with_another_key, {0: "no valid anchor found"}),
    "an empty target": (empty_the_target, {0: "no valid anchor found"}),
    "no target": (remove_the_target, {0: "no valid anchor found"}),
}


def test_an_attacker_with_the_key_of_the_head_is_found(desk: Desk) -> None:
    kept = desk.snapshot()
    for name, (attack, expected) in ATTACKS.items():
        attack(desk)
        assert desk.log.verify().ok, name
        found = desk.found()
        assert found.keys() == expected.keys(), name
        for position, words in expected.items():
            assert words in found[position], name
        assert desk.found(use_head=False) == found, "no key of the head is needed to see it"
        desk.restore(kept)


def test_a_log_that_contradicts_its_anchors_is_not_anchored(desk: Desk) -> None:
    kept = desk.snapshot()
    before = desk.target.read_bytes()
    for attack in (truncate, rewrite_one, rewrite_all, begin_anew):
        attack(desk)
        with pytest.raises(AuditLogBroken, match="anchor of"):
            desk.anchor()
        assert desk.target.read_bytes() == before
        desk.restore(kept)


def test_nothing_is_anchored_after_lines_that_no_known_key_verifies(desk: Desk) -> None:
    kept = desk.snapshot()
    for attack in (alter_a_line, sign_with_another_key):
        attack(desk)
        before = desk.target.read_bytes()
        with pytest.raises(ConfigurationError, match=r"outside.jsonl: line 1: .*; set audit.anchor"):
            desk.anchor()
        assert desk.target.read_bytes() == before
        desk.restore(kept)


def test_a_key_that_was_replaced_stays_known_by_its_public_key(desk: Desk, tmp_path: Path) -> None:
    public = tmp_path / "earlier.pem"
    public.write_text(desk.anchors.public_key())
    (desk.data / "anchor.key").unlink()
    desk.append(8)
    with pytest.raises(ConfigurationError, match=r"anchor.key is missing, and .* is not empty; restore"):
        desk.anchor()
    assert not (desk.data / "anchor.key").exists()
    create_signing_key(desk.data / "anchor.key")
    with pytest.raises(ConfigurationError, match="signed with another key"):
        desk.anchor()
    known = replace(desk.anchors, settings=AuditSettings(anchor_public_key_file=str(public)))
    written = known.write(str(desk.target))
    assert written is not None
    assert written.new


def test_the_anchors_of_another_log_are_refused(desk: Desk, tmp_path: Path) -> None:
    with open_database(ready_database(tmp_path / "another.db")) as database:
        another = DurableAuditLog(database, tmp_path / "another")
        another.sequence([prepared(n) for n in range(30, 50)])
        [finding] = another.verify(desk.anchors.read([str(desk.target)])).findings
        assert "anchors another log" in finding.problem


# ── A missing head ────────────────────────────────────────────────────────────────────────────────


def without_events(database: Database, log: DurableAuditLog) -> None:
    SqlJobStore(database, UlidSource()).submit(NewJob("kind", {}), now=datetime(2026, 1, 1, tzinfo=UTC))
    log.sequence_pending()
    replace_log(database, [])


def without_some(database: Database, log: DurableAuditLog) -> None:
    replace_log(database, [prepared(n) for n in range(3)])


def leave_some(database: Database, log: DurableAuditLog) -> None:
    """Erase events by putting all others back into the outbox: there they look as if they were new."""
    kept = [text for text in texts_of(database) if not text.event_type.startswith("apply.")]
    replace_log(database, [])
    database.write(lambda connection: leave_in_outbox(connection, kept))


def leave_some_beside_a_job(database: Database, log: DurableAuditLog) -> None:
    SqlJobStore(database, UlidSource()).submit(NewJob("kind", {}), now=datetime(2026, 1, 1, tzinfo=UTC))
    log.sequence_pending()
    leave_some(database, log)


@pytest.mark.parametrize("erase", [without_events, without_some, leave_some, leave_some_beside_a_job])
def test_a_missing_head_beside_a_database_in_use_is_broken(
    erase: Callable[[Database, DurableAuditLog], None], database: Database, tmp_path: Path
) -> None:
    home = None if database.dialect == "sqlite" else "here"
    log = DurableAuditLog(database, tmp_path / "data", home=home)
    log.sequence([prepared(n) for n in range(4)])
    erase(database, log)
    for name in ("audit.head", "audit.key"):
        (tmp_path / "data" / name).unlink()
    for _ in range(2):  # to look at it mends nothing
        assert [finding.problem.rpartition(" ")[2] for finding in log.verify().findings] == ["missing"]
        with pytest.raises(AuditLogBroken, match=r"head file .* is missing"):
            log.sequence_pending()
    log.adopt()
    assert log.verify().ok


# ── Coverage ──────────────────────────────────────────────────────────────────────────────────────


def test_a_report_says_which_events_an_anchor_covers(desk: Desk) -> None:
    desk.append(8)
    desk.append(9)
    report = desk.verify()
    assert report.ok
    assert report.rows == 10
    assert report.coverage == (Coverage(str(desk.target), 1, 8, "2026-01-01T00:00:00Z"),)
    desk.anchor()
    assert [covered.events for covered in desk.verify().coverage] == [10]
    desk.database.write(
        lambda c: c.execute(events.update().where(events.c.position == 4).values(payload="[]"))
    )
    assert [covered.events for covered in desk.verify().coverage] == [3], "up to the first that was changed"


def test_does_not_anchor_the_same_end_twice(desk: Desk) -> None:
    before = desk.target.read_bytes()
    again = desk.anchor()
    assert again is not None
    assert not again.new
    assert desk.target.read_bytes() == before


def test_an_empty_log_has_nothing_to_anchor(database: Database, tmp_path: Path) -> None:
    log = DurableAuditLog(database, tmp_path / "data")
    anchors = AuditAnchors(log, AuditSettings(), tmp_path / "data", tmp_path, FakeClock())
    assert anchors.write(str(tmp_path / "outside.jsonl")) is None
    assert not (tmp_path / "outside.jsonl").exists()


def test_a_machine_without_the_head_anchors_and_verifies_with_its_own_key(
    database: Database, tmp_path: Path
) -> None:
    here = DurableAuditLog(database, tmp_path / "here", home="here")
    here.sequence([prepared(n) for n in range(4)])
    auditor = DurableAuditLog(database, tmp_path / "auditor", home="auditor")
    anchors = AuditAnchors(auditor, AuditSettings(), tmp_path / "auditor", tmp_path, FakeClock())
    target = str(tmp_path / "outside.jsonl")
    assert anchors.write(target)
    here.sequence([prepared(4)])
    written = anchors.write(target)
    assert written is not None
    assert written.anchor.tip.rows == 5
    assert auditor.verify(anchors.read([target])).ok
    with pytest.raises(AuditElsewhere):
        auditor.verify()
    here.sequence([prepared(5)])
    change_event(database, 6)
    with pytest.raises(AuditLogBroken, match=r"row 6: the content of the row was changed"):
        anchors.write(target)
    assert not (tmp_path / "auditor" / "audit.key").exists()


# ── The key elsewhere ─────────────────────────────────────────────────────────────────────────────


def test_the_head_cannot_be_resealed_without_the_key(database: Database, tmp_path: Path) -> None:
    key = tmp_path / "secret" / "seal.key"
    key.parent.mkdir()
    key.write_text("ab" * 32 + "\n")
    key.chmod(0o600)
    log = DurableAuditLog(database, tmp_path / "data", key_file=key)
    log.sequence([prepared(n) for n in range(8)])
    assert log.verify().ok
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["audit.head", "audit.lock"]
    stolen = key.rename(key.with_name("away"))
    with pytest.raises(ConfigurationError, match=r"audit.key_file: .* cannot be read"):
        log.sequence([prepared(8)])
    with pytest.raises(ConfigurationError, match=r"audit.key_file"):
        log.adopt()
    assert not key.exists(), "no key is made in its place"
    erase_applies(database, tmp_path / "data")  # with a key of the attacker's, in the data directory
    stolen.rename(key)
    assert "was altered" in log.verify().findings[0].problem
