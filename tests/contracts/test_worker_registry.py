"""The contract of `WorkerRegistry`, on both databases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace
from sqlalchemy import select

from cleveragents.core.identifiers import UlidSource
from cleveragents.jobs.ports import WorkerRecord
from cleveragents.jobs.store.sql_job_store import SqlWorkerRegistry
from cleveragents.storage.database import Database
from cleveragents.storage.service_tables import workers
from cleveragents.storage.tables import outbox
from cleveragents.testing.clock import FakeClock
from tests.races.hammer import hammer

NOW = datetime(2026, 11, 15, 12, 0, 0, 123456, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW)


@pytest.fixture
def registry(database: Database, clock: FakeClock) -> SqlWorkerRegistry:
    return SqlWorkerRegistry(database, UlidSource(), clock)


def worker(name: str, *, state: str = "working", at: datetime = NOW) -> WorkerRecord:
    return WorkerRecord(
        id=f"id-{name}",
        name=name,
        host="büro",
        pid=2**40,
        home="01HOME",
        engine="embedded",
        queue="plans",
        concurrency=4,
        running=1,
        state=state,
        started_at=at,
        seen_at=at,
    )


def told(database: Database) -> list[tuple[str, str]]:
    query = select(outbox.c.event_type, outbox.c.subject).order_by(outbox.c.number)
    with database.read() as connection:
        return [(kind, subject) for kind, subject in connection.execute(query)]


def test_lists_the_latest_worker_first_with_its_last_report(registry: SqlWorkerRegistry) -> None:
    one, two = worker("one"), worker("two", at=NOW + MINUTE)
    registry.report(two)
    registry.report(one)
    assert registry.list() == [two, one]
    busy = replace(one, running=3, state="draining", seen_at=NOW + 2 * MINUTE)
    registry.report(busy)
    assert registry.list() == [two, busy]


def test_the_first_and_last_report_are_events(registry: SqlWorkerRegistry, database: Database) -> None:
    one = worker("one")
    for state in ("working", "working", "draining", "gone", "gone"):
        registry.report(replace(one, state=state))
    assert told(database) == [("worker.joined", "id-one"), ("worker.left", "id-one")]


def test_a_late_report_does_not_bring_back_a_worker(registry: SqlWorkerRegistry) -> None:
    gone = worker("one", state="gone")
    registry.report(gone)
    registry.report(replace(gone, state="working", seen_at=NOW + MINUTE))
    assert registry.list() == [gone]


def test_omits_and_then_deletes_workers_not_seen_for_long(
    registry: SqlWorkerRegistry, clock: FakeClock, database: Database
) -> None:
    registry.report(worker("old"))
    clock.advance(DAY.total_seconds())
    assert [one.name for one in registry.list()] == ["old"]
    clock.advance(1.0)
    assert registry.list() == []
    registry.report(worker("new", at=clock.now()))
    with database.read() as connection:
        assert list(connection.execute(select(workers.c.name)).scalars()) == ["new"]


def test_escapes_a_name_that_no_database_can_store(registry: SqlWorkerRegistry) -> None:
    registry.report(replace(worker("one"), name="a\0b", host="\udcff"))
    kept = registry.list()[0]
    assert (kept.name, kept.host) == ("a\\x00b", "\\udcff")


def test_concurrent_reports_lose_none(registry: SqlWorkerRegistry, database: Database) -> None:
    def work(number: int) -> None:
        for state in ("working", "gone"):
            registry.report(worker(f"w{number}", state=state))

    hammer(work)
    assert sorted(one.name for one in registry.list()) == [f"w{n}" for n in range(8)]
    assert {one.state for one in registry.list()} == {"gone"}
    assert len(told(database)) == 16
