"""The durable audit log on SQLite and PostgreSQL: order, acknowledgement, cursors, tampering."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pytest
import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy import event as sql_event

from cleveragents.core.errors import (
    AuditLogBroken,
    Closed,
    DuplicateKey,
    InvalidPayload,
    StoreBusy,
    StoreFull,
)
from cleveragents.core.event import DomainEvent, EventType, PreparedEvent
from cleveragents.events.audit import DurableAuditLog
from cleveragents.events.chain import EMPTY, GENESIS, extend
from cleveragents.events.head import HeadFile
from cleveragents.events.reactive import ReactiveEventBus
from cleveragents.events.sink import DurableAuditSink
from cleveragents.plans.store.sql_plan_output import SqlPlanOutput
from cleveragents.server.streams.log_follower import LogSource
from cleveragents.storage.database import Database, open_database
from cleveragents.storage.outbox import append_many_to_outbox, append_to_outbox
from cleveragents.storage.tables import events
from cleveragents.testing.clock import RaiseAt, RecordFaultPoints
from tests.postgres import PostgresServer
from tests.races.hammer import hammer
from tests.ready_database import ready_database

WHEN = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)
SOON = 30.0


def event(event_id: str, *, subject: str = "subject", **payload: object) -> DomainEvent:
    return DomainEvent(EventType.JOB_CLAIMED, subject, event_id, WHEN, payload)


@pytest.fixture
def log(database: Database, tmp_path: Path) -> DurableAuditLog:
    log = DurableAuditLog(database, tmp_path / "data")
    log.begin()
    return log


@pytest.fixture
def sink(log: DurableAuditLog) -> Iterator[DurableAuditSink]:
    with DurableAuditSink(log) as sink:
        yield sink


def fill(sink: DurableAuditSink, count: int) -> None:
    for n in range(1, count + 1):
        sink.append(event(f"e{n}", n=n))
    sink.flush()


# ── Order and acknowledgement ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "database_url", [pytest.param("postgresql", marks=pytest.mark.postgres)], indirect=True
)
def test_replaces_a_connection_lost_while_reading_the_last_row(
    log: DurableAuditLog, database_url: str, postgres: PostgresServer
) -> None:
    texts = [
        PreparedEvent(f"e{n}", "job.claimed", "subject", "2026-01-01T12:30:00+00:00", "{}") for n in (1, 2)
    ]
    assert log.sequence(texts[:1]) == [1]
    cut: list[str] = []

    def cut_once(_: object, __: object, statement: str, *rest: object) -> None:
        if "ORDER BY events.position DESC" in statement and not cut:
            cut.append(statement)
            postgres.disconnect(database_url)

    sql_event.listen(Engine, "before_cursor_execute", cut_once)
    try:
        assert log.sequence(texts[1:]) == [2]
    finally:
        sql_event.remove(Engine, "before_cursor_execute", cut_once)
    assert cut


def test_appended_events_are_in_order_chained_and_verified(
    log: DurableAuditLog, sink: DurableAuditSink
) -> None:
    appended = [event(f"e{n}", text="grüße\n'\"\\", number=n, deep=[1, {"a": None}]) for n in range(3)]
    receipts = [sink.append(each) for each in appended]
    assert [receipt.wait(SOON) for receipt in receipts] == [1, 2, 3]
    records = sink.read()
    assert [record.event for record in records] == appended
    assert [record.position for record in records] == [1, 2, 3]
    assert [r.previous_hash for r in records] == [GENESIS, records[0].hash, records[1].hash]
    report = log.verify()
    assert report.ok, report
    assert (report.rows, report.attested) == (3, 3)


def test_any_process_sequences_a_committed_outbox(database: Database, log: DurableAuditLog) -> None:
    database.write(lambda c: append_to_outbox(c, event("kept")))
    with pytest.raises(RuntimeError):
        database.write(lambda c: (append_to_outbox(c, event("undone")), _fail()))
    assert log.read() == []
    log.sequence_pending()
    log.sequence_pending()
    assert [record.event.event_id for record in log.read()] == ["kept"]


def test_placed_events_are_readable_while_others_are_placed(database: Database, tmp_path: Path) -> None:
    """With many plans the log is nearly always being extended; a stream waited for seconds for its turn."""
    log = DurableAuditLog(database, tmp_path / "data", timeout=86_400.0)
    log.begin()
    source = LogSource(log, SqlPlanOutput(database))
    database.write(lambda c: append_to_outbox(c, event("first")))
    source.bring_up()
    database.write(lambda c: append_to_outbox(c, event("second")))
    other = HeadFile(tmp_path / "data", fsync=False, faults=RecordFaultPoints())
    with other.exclusively(SOON):
        source.bring_up()
        assert len(source.frames(0)) == 1
        with pytest.raises(StoreBusy):
            log.sequence_pending(wait=False)
    assert source.end() == 2
    assert len(source.frames(0)) == 2


def _fail() -> None:
    raise RuntimeError("business as usual")


def test_a_starting_sink_sequences_the_events_of_a_dead_process(
    database: Database, log: DurableAuditLog
) -> None:
    database.write(lambda c: append_to_outbox(c, event("left")))
    with DurableAuditSink(log):
        pass
    assert [record.event.event_id for record in log.read()] == ["left"]


def test_a_sink_sequences_the_outbox_of_its_process(
    database: Database, log: DurableAuditLog, sink: DurableAuditSink
) -> None:
    bus = ReactiveEventBus(sink=sink)
    heard: list[str] = []
    bus.subscribe(None, lambda e: heard.append(e.event_id))
    stop = database.add_commit_listener(bus.relay)
    assert bus.emit_durably(event("first"), timeout=SOON) == 1
    with structlog.testing.capture_logs() as logs:
        database.write(lambda c: append_to_outbox(c, event("second")))
    position = bus.emit_durably(event("third"), timeout=SOON)
    stop()
    assert heard == ["first", "second", "third"]
    assert logs == [], "both listeners of the commit did their work"
    assert position == 3, "what was committed before the emit comes before it, and is not kept twice"
    assert log.verify().rows == 3


def test_more_than_one_batch_of_the_outbox_is_sequenced_in_order(
    database: Database, log: DurableAuditLog
) -> None:
    committed = [event(f"e{n:05}") for n in range(2500)]
    database.write(lambda c: append_many_to_outbox(c, committed))
    assert log.sequence([]) == []
    assert [r.event.event_id for r in log.read(limit=9999)] == [each.event_id for each in committed]
    assert log.verify().ok


def test_a_repeated_event_has_one_position_and_other_content_is_refused(
    database: Database, log: DurableAuditLog, sink: DurableAuditSink
) -> None:
    fill(sink, 2)
    receipts = [sink.append(each) for each in (event("e1", n=1), event("e3"), event("e2", n=99), event("e3"))]
    assert [receipts[0].wait(SOON), receipts[1].wait(SOON), receipts[3].wait(SOON)] == [1, 3, 3]
    with pytest.raises(DuplicateKey):
        receipts[2].wait(SOON)
    database.write(lambda c: append_to_outbox(c, event("e1", n=77)))
    assert sink.append(event("e4")).wait(SOON) == 4
    assert log.verify().ok


def test_many_threads_on_the_bus_keep_their_order(log: DurableAuditLog, sink: DurableAuditSink) -> None:
    bus = ReactiveEventBus(sink=sink, audit_log_limit=10_000)
    hammer(lambda n: [bus.emit(event(f"{n}-{i}")) for i in range(50)])
    sink.flush(SOON)
    kept = [record.event.event_id for record in sink.read()]
    assert kept == [logged.event_id for logged in bus.audit_log], "kept in the order of sequence numbers"
    assert log.verify().rows == 400


def test_two_sinks_at_once_make_one_gapless_order(database: Database, tmp_path: Path) -> None:
    logs = [DurableAuditLog(database, tmp_path / "data") for _ in range(2)]
    with DurableAuditSink(logs[0]) as one, DurableAuditSink(logs[1]) as two:
        hammer(
            lambda n: [(one, two)[n % 2].append(event(f"{n}-{i:03}")).wait(SOON) for i in range(20)],
            threads=4,
        )
    records = logs[0].read()
    assert [record.position for record in records] == list(range(1, 81))
    for n in range(4):
        own = [r.event.event_id for r in records if r.event.event_id.startswith(f"{n}-")]
        assert own == sorted(own)
    assert logs[0].verify().ok


# ── Cursors ───────────────────────────────────────────────────────────────────────────────────────


def test_a_cursor_neither_skips_nor_repeats_while_others_write(
    log: DurableAuditLog, sink: DurableAuditSink
) -> None:
    seen: list[int] = []

    def follow(stop: threading.Event) -> None:
        for record in log.follow(stop=stop, interval_seconds=0.001):
            seen.append(record.position)
            if record.position == 300:
                stop.set()

    reader = threading.Thread(target=follow, args=(threading.Event(),), daemon=True)
    reader.start()
    hammer(lambda n: [sink.append(event(f"{n}-{i}")) for i in range(100)], threads=3)
    reader.join(SOON)
    assert seen == list(range(1, 301))
    assert [r.position for r in log.read(after=297, limit=2)] == [298, 299]
    assert log.read(after=300) == []


# ── Tampering ─────────────────────────────────────────────────────────────────────────────────────


def sql(*statements: str) -> Callable[[Connection], None]:
    def run(connection: Connection) -> None:
        for statement in statements:
            connection.exec_driver_sql(statement)

    return run


def rewrite_everything(connection: Connection) -> None:
    """Rewrite the log like a skilled attacker: every row new, every hash right, but no key for the head."""
    connection.execute(events.delete())
    texts = [PreparedEvent(f"f{n}", "job.claimed", "s", "2026-01-01T00:00:00+00:00", "{}") for n in range(8)]
    connection.execute(events.insert(), [row._asdict() for row in extend(EMPTY, texts)])


TAMPERED = {
    "a payload changed": (sql("UPDATE events SET payload = '{\"n\":99}' WHERE position = 3"), {3: "changed"}),
    "a hash changed": (sql("UPDATE events SET hash = 'x' WHERE position = 3"), {3: "changed", 4: "replaced"}),
    "one removed": (sql("DELETE FROM events WHERE position = 3"), {3: "the row was removed"}),
    "several removed": (sql("DELETE FROM events WHERE position IN (3, 4)"), {3: "to 4 were removed"}),
    "the first removed": (sql("DELETE FROM events WHERE position = 1"), {1: "the row was removed"}),
    "the tail cut off": (
        sql("DELETE FROM events WHERE position > 6"),
        {7: "to 8 were removed from the end"},
    ),
    "all removed": (sql("DELETE FROM events"), {1: "to 8 were removed from the end"}),
    "two swapped": (
        sql(
            "UPDATE events SET position = 99 WHERE position = 3",
            "UPDATE events SET position = 3 WHERE position = 4",
            "UPDATE events SET position = 4 WHERE position = 99",
        ),
        {3: "right after the row now at 4", 4: "right after the row now at 2", 5: "reordered"},
    ),
    "the first two swapped": (
        sql(
            "UPDATE events SET position = 99 WHERE position = 1",
            "UPDATE events SET position = 1 WHERE position = 2",
            "UPDATE events SET position = 2 WHERE position = 99",
        ),
        {1: "right after the row now at 2", 2: "this was the first row", 3: "reordered"},
    ),
    "one removed, the rest renumbered": (
        sql(
            "DELETE FROM events WHERE position = 3",
            "UPDATE events SET position = -position WHERE position > 3",
            "UPDATE events SET position = -position - 1 WHERE position < 0",
        ),
        {3: "the row before this one was removed", 8: "removed from the end"},
    ),
    "everything rewritten": (rewrite_everything, {8: "rewritten"}),
}

# SQLite stores any value in a text column.
NO_TEXT = {
    "bytes": (sql("UPDATE events SET payload = X'7b7d' WHERE position = 3"), {3: "changed"}),
    "text that is no UTF-8": (
        sql("UPDATE events SET subject = CAST(X'ff' AS TEXT) WHERE position = 3"),
        {3: "changed"},
    ),
    "a last hash that is none": (
        sql("UPDATE events SET hash = CAST(X'ff' AS TEXT) WHERE position = 8"),
        {8: "rewritten"},
    ),
    "a position far away": (
        sql("UPDATE events SET position = 9000000000000000000 WHERE position = 8"),
        {8: "to 8999999999999999999 were removed"},
    ),
}


def test_detects_and_reports_tampering(
    database: Database, log: DurableAuditLog, sink: DurableAuditSink
) -> None:
    fill(sink, 8)
    with database.read() as connection:
        original = [row._asdict() for row in connection.execute(events.select())]
    for name, (tamper, expected) in (TAMPERED | (NO_TEXT if database.dialect == "sqlite" else {})).items():
        assert log.verify().ok
        database.write(tamper)
        report = log.verify()
        assert report.rows <= 8, name
        found = {finding.position: finding.problem for finding in report.findings}
        assert found.keys() == expected.keys(), (name, report)
        for position, words in expected.items():
            assert words in found[position], name
        assert report.findings[0].position == min(expected), name
        database.write(lambda c: (c.execute(events.delete()), c.execute(events.insert(), original)))


def test_does_not_extend_a_log_that_contradicts_its_head(
    database: Database, log: DurableAuditLog, sink: DurableAuditSink
) -> None:
    fill(sink, 3)
    database.write(sql("DELETE FROM events WHERE position = 3"))
    with pytest.raises(AuditLogBroken):
        sink.append(event("more")).wait(SOON)
    with pytest.raises(AuditLogBroken):
        log.sequence_pending()
    assert log.adopt() == 2
    records = islice(log.follow(stop=threading.Event(), interval_seconds=0.01), 3)
    assert [record.event.event_id for record in records] == ["e1", "e2", "more"]


class TestHead:
    """The files beside the database; the kind of database does not matter."""

    @pytest.fixture
    def database(self, tmp_path: Path) -> Iterator[Database]:
        with open_database(ready_database(tmp_path / "store.db")) as opened:
            yield opened

    @pytest.fixture(autouse=True)
    def filled(self, sink: DurableAuditSink) -> None:
        fill(sink, 3)

    def test_the_key_and_the_head_are_private(self, tmp_path: Path) -> None:
        modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "data").iterdir()}
        assert modes == {"audit.head": 0o600, "audit.key": 0o600, "audit.lock": 0o600}

    @pytest.mark.parametrize(
        ("damage", "words"),
        [
            (lambda data: (data / "audit.head").unlink(), "head file .* is missing"),
            (lambda data: (data / "audit.key").unlink(), "key file .* is missing"),
            (lambda data: (data / "audit.key").write_text("not hex"), "does not hold a key"),
            (lambda data: (data / "audit.key").write_text("00" * 32), "not its key"),
            (lambda data: (data / "audit.head").write_text("{"), "is malformed"),
            (lambda data: _claim(data, rows=2), "was altered"),
            (lambda data: _claim(data, rows=float("inf")), "is malformed"),
            (lambda data: _claim(data, seal="\u00e9"), "was altered"),
        ],
    )
    def test_reports_damage_and_sequences_nothing_after_it(
        self, damage: Callable[[Path], object], words: str, log: DurableAuditLog, tmp_path: Path
    ) -> None:
        damage(tmp_path / "data")
        report = log.verify()
        (finding,) = report.findings
        assert re.search(words, finding.problem), finding
        with pytest.raises(AuditLogBroken, match=words):
            log.sequence([])


def test_a_log_with_events_and_without_head_and_key_is_broken_until_it_is_adopted(
    database: Database, log: DurableAuditLog, sink: DurableAuditSink, tmp_path: Path
) -> None:
    fill(sink, 3)
    elsewhere = DurableAuditLog(database, tmp_path / "another machine")
    with pytest.raises(AuditLogBroken, match="missing"):
        elsewhere.sequence([])
    assert not elsewhere.verify().ok
    assert elsewhere.adopt() == 3
    assert elsewhere.verify().ok
    assert log.verify().ok


def _claim(data: Path, **claimed: object) -> None:
    head = json.loads((data / "audit.head").read_text())
    (data / "audit.head").write_text(json.dumps(head | claimed))


# ── Trouble ───────────────────────────────────────────────────────────────────────────────────────


def test_a_store_that_fails_for_a_while_loses_nothing(database: Database, tmp_path: Path) -> None:
    faults = RaiseAt("audit.sequence.before_commit", lambda: StoreFull("the disk"))
    log = DurableAuditLog(database, tmp_path / "data", faults=faults)
    with DurableAuditSink(log) as sink:
        assert sink.append(event("e1")).wait(SOON) == 1
    assert log.verify().rows == 1


def test_a_full_store_raises_to_every_caller(database: Database, tmp_path: Path) -> None:
    tried = threading.Semaphore(0)

    class AlwaysFull:
        def reach(self, name: str) -> None:
            if name == "audit.sequence.before_commit":
                tried.release()
                raise StoreFull("the disk")

    log = DurableAuditLog(database, tmp_path / "data", faults=AlwaysFull())
    sink = DurableAuditSink(log, bound=1)
    bus = ReactiveEventBus(sink=sink, block_seconds=0.01)
    receipt = sink.append(event("e1"))
    for _ in range(2):  # the second time, what happened the first time is known
        assert tried.acquire(timeout=SOON)
    with pytest.raises(StoreFull):
        receipt.wait(0)
    with pytest.raises(StoreFull):
        bus.emit(event("e2"))
    assert bus.audit_log == ()
    with pytest.raises(StoreFull):
        sink.close(timeout=0.2)
    with pytest.raises(StoreFull):
        receipt.wait(SOON)
    with pytest.raises(Closed):
        sink.append(event("e3"))
    assert log.read() == []


def test_recovers_from_an_unexpected_error(database: Database, tmp_path: Path) -> None:
    faults = RaiseAt("audit.sequence.after_commit", lambda: RuntimeError("what?"))
    log = DurableAuditLog(database, tmp_path / "data", faults=faults)
    with DurableAuditSink(log) as sink:
        assert sink.append(event("e1")).wait(SOON) == 1, "committed before the error, found again after it"
    assert log.verify().rows == 1


def test_does_not_emit_events_that_cannot_be_stored(log: DurableAuditLog, sink: DurableAuditSink) -> None:
    bus = ReactiveEventBus(sink=sink)
    with pytest.raises(InvalidPayload):
        bus.emit(event("e1", text="\ud800"))
    assert bus.audit_log == ()
    assert bus.emit_durably(event("e2"), timeout=SOON) == 1


def test_close_stores_appended_events(log: DurableAuditLog) -> None:
    sink = DurableAuditSink(log)
    receipts = [sink.append(event(f"e{n}")) for n in range(100)]
    sink.close()
    sink.close()
    assert [receipt.wait(0) for receipt in receipts] == list(range(1, 101))


def test_the_durable_steps_announce_themselves_in_order(database_url: str, tmp_path: Path) -> None:
    faults = RecordFaultPoints()
    with open_database(database_url, durability="full") as database:
        log = DurableAuditLog(database, tmp_path / "data", durability="full", faults=faults)
        log.sequence([])
        faults.reached.clear()
        with DurableAuditSink(log) as sink:
            sink.append(event("e1")).wait(SOON)
    assert faults.reached[:4] == [
        "audit.sequence.before_commit",
        "audit.sequence.after_commit",
        "audit.head.before_rename",
        "audit.head.after_rename",
    ]
