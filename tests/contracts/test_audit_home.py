"""Several state directories on one database: one of them orders and attests the audit log."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import select

from cleveragents.core.errors import AuditElsewhere
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.events.audit import DurableAuditLog
from cleveragents.events.sequencer import AuditHome
from cleveragents.events.sink import DurableAuditSink
from cleveragents.storage.database import Database
from cleveragents.storage.outbox import append_to_outbox
from cleveragents.storage.tables import outbox
from cleveragents.testing.clock import RaiseAt
from tests.races.hammer import hammer

WHEN = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)


def event(event_id: str) -> DomainEvent:
    return DomainEvent(EventType.JOB_CLAIMED, "subject", event_id, WHEN, {})


def log_of(database: Database, directory: Path, home: str) -> DurableAuditLog:
    return DurableAuditLog(database, directory / home, home=home)


def waiting(database: Database) -> list[str]:
    with database.read() as connection:
        return list(connection.execute(select(outbox.c.event_id).order_by(outbox.c.number)).scalars())


def placed(log: DurableAuditLog) -> list[str]:
    return [record.event.event_id for record in log.read()]


def test_the_first_orders_the_log_and_others_leave_their_events_to_it(
    database: Database, tmp_path: Path
) -> None:
    here, there = (log_of(database, tmp_path, home) for home in ("here", "there"))
    here.sequence_pending()
    with DurableAuditSink(there) as sink:
        assert sink.append(event("e1")).wait(30) == 0
    database.write(lambda connection: append_to_outbox(connection, event("e2")))
    there.sequence_pending()
    assert waiting(database) == ["e1", "e2"]
    assert not (tmp_path / "there").exists()  # no key, and no head
    here.sequence_pending()
    assert placed(here) == placed(there) == ["e1", "e2"]
    assert here.verify().ok


def test_an_event_added_twice_is_placed_once(database: Database, tmp_path: Path) -> None:
    here, there = (log_of(database, tmp_path, home) for home in ("here", "there"))
    here.sequence_pending()
    with DurableAuditSink(there) as sink:
        prepared = sink.prepare(event("e1"))
    assert there.sequence([prepared]) == there.sequence([prepared]) == [0]
    here.sequence_pending()
    assert placed(here) == ["e1"]
    assert waiting(database) == []


def test_a_log_is_verified_where_it_is_attested(database: Database, tmp_path: Path) -> None:
    here, there = (log_of(database, tmp_path, home) for home in ("here", "there"))
    here.sequence_pending()
    with pytest.raises(AuditElsewhere, match="named here"):
        there.verify()


def test_the_home_that_adopts_the_log_sequences_it(database: Database, tmp_path: Path) -> None:
    here, there = (log_of(database, tmp_path, home) for home in ("here", "there"))
    with DurableAuditSink(here) as sink:
        assert sink.append(event("e1")).wait(30) == 1
    assert there.adopt() == 1
    with DurableAuditSink(there) as sink:
        assert sink.append(event("e2")).wait(30) == 2
    with DurableAuditSink(here) as sink:
        assert sink.append(event("e3")).wait(30) == 0
    with pytest.raises(AuditElsewhere, match="named there"):
        here.verify()
    assert there.verify().ok
    assert placed(there) == ["e1", "e2", "e3"]


def test_one_that_is_moved_away_while_it_sequences_places_nothing(database: Database, tmp_path: Path) -> None:
    here, there = (log_of(database, tmp_path, home) for home in ("here", "there"))
    here.sequence_pending()
    sequencer = here._sequencer
    there.adopt()
    database.write(lambda connection: append_to_outbox(connection, event("e1")))
    with pytest.raises(AuditElsewhere, match="named there"):
        sequencer.sequence()
    assert waiting(database) == ["e1"]


def test_a_log_that_was_begun_before_homes_had_names_stays_with_who_has_its_head(
    database: Database, tmp_path: Path
) -> None:
    before = DurableAuditLog(database, tmp_path / "old")
    with DurableAuditSink(before) as sink:
        sink.append(event("e1")).wait(30)
    new = log_of(database, tmp_path, "new")
    with DurableAuditSink(new) as sink:
        assert sink.append(event("e2")).wait(30) == 0
    old = log_of(database, tmp_path, "old")
    old.sequence_pending()
    assert placed(old) == ["e1", "e2"]
    assert old.verify().ok


def test_a_slower_home_does_not_take_the_log(database: Database, tmp_path: Path) -> None:
    log_of(database, tmp_path, "here").sequence_pending()
    slower = AuditHome(database, "there")
    assert database.write(lambda connection: slower._taken(connection, has_head=True)) == "here"


def test_of_many_who_come_at_once_one_orders_the_log(database: Database, tmp_path: Path) -> None:
    logs = [log_of(database, tmp_path, f"home-{number}") for number in range(4)]

    def append(number: int) -> int:
        logs[number].begin()
        with DurableAuditSink(logs[number]) as sink:
            return sink.append(event(f"e{number}")).wait(30)

    hammer(append, threads=4)
    [attesting] = [log for log in logs if log._head.exists()]
    attesting.sequence_pending()
    assert sorted(placed(attesting)) == ["e0", "e1", "e2", "e3"]
    assert attesting.verify().ok


def test_the_home_of_a_new_database_attests_it_despite_concurrent_events(
    database: Database, tmp_path: Path
) -> None:
    there = log_of(database, tmp_path, "there")

    class Meanwhile:
        """The other home comes after the first took the log, and before its head is stored."""

        def reach(self, name: str) -> None:
            if name == "audit.head.before_rename" and not waiting(database):
                there.begin()
                database.write(lambda connection: append_to_outbox(connection, event("e1")))

    here = DurableAuditLog(database, tmp_path / "here", home="here", faults=Meanwhile())
    here.begin()
    assert not (tmp_path / "there").exists()
    assert waiting(database) == ["e1"]
    assert here.verify().ok
    assert placed(here) == ["e1"]


def test_a_home_that_crashed_before_it_stored_its_head_begins_the_log_of_a_database_without_rows(
    database: Database, tmp_path: Path
) -> None:
    crash = RaiseAt("audit.head.before_rename", lambda: RuntimeError("crash"))
    with pytest.raises(RuntimeError):
        DurableAuditLog(database, tmp_path / "here", home="here", faults=crash).begin()
    here = log_of(database, tmp_path, "here")
    here.begin()
    database.write(lambda connection: append_to_outbox(connection, event("e1")))
    assert here.verify().ok


def test_a_database_in_use_without_a_home_is_not_taken(database: Database, tmp_path: Path) -> None:
    database.write(lambda connection: append_to_outbox(connection, event("e1")))
    here = log_of(database, tmp_path, "here")
    here.begin()
    here.sequence_pending()
    assert waiting(database) == ["e1"]
    assert [finding.problem.rpartition(" ")[2] for finding in here.verify().findings] == ["missing"]
    here.adopt()
    assert here.verify().ok
    assert placed(here) == ["e1"]
