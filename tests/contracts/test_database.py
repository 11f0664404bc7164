"""The contract of `Database`, on SQLite and on PostgreSQL."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, bindparam, delete, insert, select, text
from sqlalchemy.exc import IntegrityError

from cleveragents.core.errors import (
    Closed,
    DatabaseFailed,
    DatabaseUnreachable,
    DatabaseUnusable,
    InvalidPayload,
    OutcomeUnknown,
    StoreBusy,
    StoreFull,
)
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.core.identifiers import acting_as
from cleveragents.storage import database as schema
from cleveragents.storage.actor_tables import decisions
from cleveragents.storage.conversation_tables import conversation_attachments
from cleveragents.storage.database import Database, forget_reads, open_database, shared_reads
from cleveragents.storage.outbox import append_many_to_outbox, append_to_outbox
from cleveragents.storage.prepared_statement import prepared
from cleveragents.storage.service_tables import workers
from cleveragents.storage.sqlite_lock import write_lock_holder
from cleveragents.storage.tables import METADATA, changesets, outbox
from cleveragents.testing.clock import RaiseAt, RecordFaultPoints
from tests.contracts.databases import changeset_ids, keep, locked, start_child
from tests.postgres import PostgresServer
from tests.races.hammer import hammer

pytestmark = pytest.mark.usefixtures("commands_are_forked")
postgresql_only = pytest.mark.parametrize(
    "database_url", [pytest.param("postgresql", marks=pytest.mark.postgres)], indirect=True
)
sqlite_only = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def event(number: int) -> DomainEvent:
    return DomainEvent(EventType.JOB_CLAIMED, "job", f"event-{number}", datetime(2026, 1, 1, tzinfo=UTC))


# ── Schema ────────────────────────────────────────────────────────────────────────────────────────


def test_the_migrated_schema_is_the_one_the_code_uses(database: Database) -> None:
    with database.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert decisions.metadata is METADATA
        assert workers.metadata is METADATA
        assert conversation_attachments.metadata is METADATA
        assert compare_metadata(context, METADATA) == []


def test_the_known_revisions_are_those_that_exist() -> None:
    scripts = ScriptDirectory(str(Path(schema.__file__).parent / "migrations"))
    assert [script.revision for script in scripts.walk_revisions()][::-1] == list(schema.REVISIONS)


def test_many_processes_may_open_a_new_database_concurrently(database_url: str) -> None:
    children = [start_child("open_and_keep", database_url, f"c{n}") for n in range(4)]
    for child in children:
        child.wait_ready()
    for child in children:
        child.go()
    for child in children:
        child.wait_end()
    with open_database(database_url) as database:
        assert changeset_ids(database) == [f"c{n}" for n in range(4)]


def test_a_migrated_database_is_opened_without_alembic(database_url: str) -> None:
    open_database(database_url).close()
    code = (
        "import sys; from cleveragents.storage.database import open_database; "
        f"open_database({database_url!r}).close(); sys.exit('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_refuses_a_newer_schema_without_changes(database_url: str) -> None:
    with open_database(database_url) as database:
        database.write(
            lambda connection: connection.execute(text("UPDATE alembic_version SET version_num = '9'"))
        )
    with pytest.raises(DatabaseUnusable, match=r"'9'.*upgrade cleveragents"):
        open_database(database_url)


# ── Reads and writes ──────────────────────────────────────────────────────────────────────────────


def test_a_read_sees_one_snapshot_during_writes(database: Database) -> None:
    database.write(keep("before"))
    with database.read() as connection:
        assert connection.execute(select(changesets.c.id)).scalars().all() == ["before"]
        database.write(keep("meanwhile"))
        assert connection.execute(select(changesets.c.id)).scalars().all() == ["before"]
    assert changeset_ids(database) == ["before", "meanwhile"]


def shared_ids(database: Database) -> Sequence[str]:
    return database.read_shared(
        "ids", lambda connection: sorted(connection.execute(select(changesets.c.id)).scalars())
    )


def test_shared_reads_agree_while_another_thread_writes(database: Database) -> None:
    with shared_reads():
        assert shared_ids(database) == []
        writer = threading.Thread(target=database.write, args=(keep("meanwhile"),))
        writer.start()
        writer.join()
        assert shared_ids(database) == []
        forget_reads()
        assert shared_ids(database) == ["meanwhile"]


def test_shared_reads_see_the_writes_of_their_own_block(database: Database) -> None:
    with shared_reads():
        assert shared_ids(database) == []
        with shared_reads():
            database.write(keep("own"))
        assert shared_ids(database) == ["own"]
        with pytest.raises(DatabaseFailed):
            database.write(keep("own"))
        assert shared_ids(database) == ["own"]


def test_a_read_is_shared_only_inside_the_block_and_in_its_thread(database: Database) -> None:
    elsewhere: list[Sequence[str]] = []
    with shared_reads():
        assert shared_ids(database) == []
        for name in ("a", "b"):
            writer = threading.Thread(target=database.write, args=(keep(name),))
            writer.start()
            writer.join()
            reader = threading.Thread(target=lambda: elsewhere.append(shared_ids(database)))
            reader.start()
            reader.join()
    assert elsewhere == [["a"], ["a", "b"]]
    assert shared_ids(database) == ["a", "b"]


def test_a_read_cannot_write(database: Database) -> None:
    with pytest.raises(DatabaseUnusable, match="read-only"), database.read() as connection:
        keep("x")(connection)
    assert changeset_ids(database) == []


def test_a_failing_unit_writes_nothing_and_raises_to_its_caller(database: Database) -> None:
    def unit(connection: Connection) -> None:
        keep("x")(connection)
        append_to_outbox(connection, event(1))
        raise LookupError("mine")

    heard: list[DomainEvent] = []
    database.add_commit_listener(heard.extend)
    with pytest.raises(LookupError, match="mine"):
        database.write(unit)
    database.write(keep("y"))
    assert changeset_ids(database) == ["y"]
    assert heard == []


def test_translates_an_unexpected_error_without_quoting_data(database: Database) -> None:
    database.write(keep("secret-id"))
    with pytest.raises(DatabaseFailed) as caught:
        database.write(keep("secret-id"))
    assert "INSERT" not in str(caught.value)
    assert "report it" in str(caught.value)


def test_a_prepared_statement_behaves_like_any_other(database: Database) -> None:
    row = {"id": "secret-name", "plan_id": "plan", "closed": False}
    adding = prepared(insert(changesets).values({name: bindparam(name) for name in row}), database.dialect)
    named = bindparam("name")
    looking = prepared(select(changesets).where(changesets.c.id == named), database.dialect)
    deleting = prepared(delete(changesets).where(changesets.c.id == named), database.dialect)
    database.write(lambda connection: adding.run_each(connection, [row, {**row, "id": "other"}]))
    with pytest.raises(DatabaseFailed) as caught:
        database.write(lambda connection: adding.run(connection, row))
    assert isinstance(caught.value.__cause__, IntegrityError)
    assert "secret-name" not in str(caught.value)
    with database.read() as connection:
        (found,) = looking.run(connection, {"name": "other"}).every()
        assert (found["id"], looking.run(connection, {"name": "none"}).first()) == ("other", None)
    gone = [database.write(lambda connection: deleting.run(connection, {"name": "other"})) for _ in range(2)]
    assert [rows.rowcount for rows in gone] == [1, 0]


def test_listeners_get_events_after_the_commit_until_removed(database: Database) -> None:
    heard: list[tuple[str, bool]] = []

    def listener(events: Sequence[DomainEvent]) -> None:
        with database.read() as connection:
            kept = connection.execute(select(outbox.c.event_id)).scalars().all()
        heard.extend((one.event_id, one.event_id in kept) for one in events)

    remove = database.add_commit_listener(listener)
    database.write(lambda connection: append_many_to_outbox(connection, [event(1), event(2)]))
    database.write(lambda connection: append_many_to_outbox(connection, []))
    remove()
    database.write(lambda connection: append_to_outbox(connection, event(3)))
    assert heard == [("event-1", True), ("event-2", True)]


def test_a_failing_listener_does_not_fail_a_committed_write(database: Database) -> None:
    def broken(events: Sequence[DomainEvent]) -> None:
        raise LookupError("listener")

    heard: list[DomainEvent] = []
    database.add_commit_listener(broken)
    database.add_commit_listener(heard.extend)
    database.write(lambda connection: append_to_outbox(connection, event(1)))
    assert heard == [event(1)]


def test_refuses_an_event_that_no_database_can_store(database: Database) -> None:
    for payload, subject in (({"a": "half \ud800"}, "job"), ({}, "nul \0")):
        bad = DomainEvent(EventType.JOB_CLAIMED, subject, "e", datetime(2026, 1, 1, tzinfo=UTC), payload)
        with pytest.raises(InvalidPayload):
            database.write(lambda connection, bad=bad: append_to_outbox(connection, bad))


def test_a_crash_before_the_commit_keeps_nothing_and_after_it_everything(database_url: str) -> None:
    open_database(database_url).close()
    for point, kept in (("before", []), ("after", ["x"])):
        faults = RaiseAt(f"store.write.{point}_commit", lambda: LookupError("stop"))
        with open_database(database_url, faults=faults) as database:
            with pytest.raises(LookupError, match="stop"):
                database.write(keep("x"))
            assert changeset_ids(database) == kept


def test_a_closed_database_refuses_calls_and_may_be_closed_twice(database_url: str) -> None:
    database = open_database(database_url)
    database.close()
    database.close()
    with pytest.raises(Closed):
        database.write(keep("x"))
    with pytest.raises(Closed), database.read():
        pass


def test_writers_at_once_lose_nothing(database: Database) -> None:
    def work(number: int) -> None:
        for turn in range(25):
            database.write(keep(f"{number}-{turn:02d}"))

    hammer(work)
    assert changeset_ids(database) == sorted(f"{n}-{turn:02d}" for n in range(8) for turn in range(25))


def test_readers_beyond_the_connections_wait_and_then_get_an_error(database_url: str) -> None:
    with open_database(database_url, connections=1, patience_seconds=0.05) as database:
        with database.read(), pytest.raises(StoreBusy), database.read():
            pass
        assert changeset_ids(database) == []


# ── Group commit ──────────────────────────────────────────────────────────────────────────────────


class Gate:
    """A unit that holds its transaction open until it is released."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, connection: Connection) -> None:
        self.entered.set()
        assert self.go_on.wait(30)


def run_behind_gate(database: Database, works: Sequence[Callable[[], object]]) -> list[object]:
    """Run all `works` concurrently, queued behind one write that is held until all are queued."""
    gate = Gate()
    answers: dict[int, object] = {}

    def run(number: int) -> None:
        try:
            answers[number] = works[number]()
        except Exception as error:
            answers[number] = error

    leader = threading.Thread(target=database.write, args=(gate,))
    leader.start()
    assert gate.entered.wait(30)
    followers = [threading.Thread(target=run, args=(n,)) for n in range(len(works))]
    queue = database._backend._group._queue
    for number, follower in enumerate(followers, 1):
        follower.start()
        while len(queue) < number:
            threading.Event().wait(0.001)
    gate.go_on.set()
    for thread in (leader, *followers):
        thread.join(30)
    return [answers[n] for n in range(len(works))]


@sqlite_only
def test_waiting_writers_share_one_commit_and_fail_alone(database_url: str) -> None:
    faults = RecordFaultPoints()
    with open_database(database_url, faults=faults) as database:
        heard: list[str] = []
        database.add_commit_listener(lambda events: heard.extend(one.event_id for one in events))
        faults.reached.clear()

        def good(number: int) -> Callable[[Connection], int]:
            def unit(connection: Connection) -> int:
                keep(f"c{number}")(connection)
                append_to_outbox(connection, event(number))
                return number

            return unit

        def bad(connection: Connection) -> None:
            good(9)(connection)
            raise LookupError("mine")

        units = [good(0), bad, good(1), keep("c0"), good(2)]
        answers = run_behind_gate(database, [lambda unit=unit: database.write(unit) for unit in units])
        assert faults.reached.count("store.write.after_commit") == 2
        assert (answers[0], answers[2], answers[4]) == (0, 1, 2)
        assert isinstance(answers[1], LookupError)
        assert isinstance(answers[3], DatabaseFailed)
        assert changeset_ids(database) == ["c0", "c1", "c2"]
        assert sorted(heard) == ["event-0", "event-1", "event-2"]


@sqlite_only
def test_events_are_attributed_to_the_caller_even_if_another_thread_writes(database: Database) -> None:
    def unit(number: int) -> Callable[[Connection], None]:
        return lambda connection: append_to_outbox(connection, event(number))

    def joined(connection: Connection, numbers: Sequence[int]) -> Sequence[int]:
        append_many_to_outbox(connection, map(event, numbers))
        return numbers

    def alone_and_joined(name: str | None, number: int) -> list[Callable[[], object]]:
        def alone() -> None:
            with acting_as(name):
                database.write(unit(number))

        def together() -> None:
            with acting_as(name):
                database.write_joined(joined, number + 10)

        return [alone, together]

    names = ["ada", None, "bob"]
    run_behind_gate(database, [work for n, name in enumerate(names) for work in alone_and_joined(name, n)])
    columns = select(outbox.c.event_id, outbox.c.payload)
    with database.read() as connection:
        told = {name: json.loads(facts).get("by") for name, facts in connection.execute(columns)}
    expected = {f"event-{n + more}": name for n, name in enumerate(names) for more in (0, 10)}
    assert told == expected


@sqlite_only
def test_a_lost_transaction_fails_all_its_writes(database: Database) -> None:
    def lose(connection: Connection) -> None:
        connection.exec_driver_sql("ROLLBACK")  # as SQLite does by itself after some errors
        raise LookupError("lost")

    units = [keep("a"), lose, keep("b")]
    answers = run_behind_gate(database, [lambda unit=unit: database.write(unit) for unit in units])
    assert [type(answer) for answer in answers] == [LookupError] * 3
    assert changeset_ids(database) == []
    database.write(keep("c"))
    assert changeset_ids(database) == ["c"]


@sqlite_only
def test_joined_writes_run_together_and_separately_if_one_fails(database: Database) -> None:
    calls: list[tuple[str, ...]] = []

    def apply(connection: Connection, names: Sequence[str]) -> Sequence[str]:
        calls.append(tuple(names))
        rows = [{"id": name, "plan_id": "p", "closed": False} for name in names]
        connection.execute(insert(changesets), rows)
        return [name.upper() for name in names]

    def join(names: str) -> list[object]:
        return run_behind_gate(database, [lambda name=n: database.write_joined(apply, name) for n in names])

    assert join("abc") == ["A", "B", "C"]
    assert calls == [("a", "b", "c")]
    answers = join("dae")
    assert calls[1:] == [("d", "a", "e"), ("d",), ("a",), ("e",)]
    assert (answers[0], answers[2]) == ("D", "E")
    assert isinstance(answers[1], DatabaseFailed)
    assert changeset_ids(database) == ["a", "b", "c", "d", "e"]


def test_an_apply_without_an_answer_for_each_item_writes_nothing(database: Database) -> None:
    def forgetful(connection: Connection, names: Sequence[str]) -> Sequence[str]:
        keep(names[0])(connection)
        return []

    with pytest.raises(ValueError, match="0 values for 1 items"):
        database.write_joined(forgetful, "x")
    assert changeset_ids(database) == []


@sqlite_only
def test_a_nested_write_raises_instead_of_deadlocking(database: Database) -> None:
    with pytest.raises(RuntimeError, match="nested write"):
        database.write(lambda connection: database.write(keep("x")))
    database.write(keep("y"))
    assert changeset_ids(database) == ["y"]


@sqlite_only
def test_undoes_an_interrupted_transaction_before_the_next(database: Database) -> None:
    # The result of a signal between BEGIN and the block that ends it.
    writer = database._backend._writer.connection.driver_connection
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("INSERT INTO changesets (id, plan_id, closed) VALUES ('half', 'p', 0)")
    database.write(keep("x"))
    assert changeset_ids(database) == ["x"]


@sqlite_only
def test_writes_again_after_an_interrupt_in_a_statement(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def unit(connection: Connection) -> None:
        # SQLAlchemy closes the connection then, and opens another one when it is used again.
        monkeypatch.setattr(connection.dialect, "do_execute", interrupt)
        connection.execute(text("SELECT 1"))

    with pytest.raises(KeyboardInterrupt):
        database.write(unit)
    monkeypatch.undo()
    database.write(keep("x"))
    assert changeset_ids(database) == ["x"]


# ── Busy, full, broken ────────────────────────────────────────────────────────────────────────────


@sqlite_only
def test_waits_for_a_busy_database_and_then_reports_it(database_url: str, tmp_path: Path) -> None:
    with open_database(database_url, patience_seconds=0.05) as database:
        with locked(tmp_path / "store.db"), pytest.raises(StoreBusy, match="nothing was written"):
            database.write(keep("x"))
        database.write(keep("y"))
        assert changeset_ids(database) == ["y"]


@sqlite_only
@pytest.mark.skipif(sys.platform != "linux", reason="nothing else tells who holds a lock")
def test_reports_a_process_stopped_in_a_write_which_completes_when_resumed(
    database_url: str,
) -> None:
    location = database_url.removeprefix("sqlite:///")
    with open_database(database_url, patience_seconds=0.05) as database:
        assert write_lock_holder(location) is None
        child = start_child("stop_in_a_write", database_url, "theirs")
        child.wait_ready()
        child.go()
        pid = child.process.pid
        _, status = os.waitpid(pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        try:
            with pytest.raises(StoreBusy) as refused:
                database.write(keep("ours"))
            told = rf"process {pid} \(.*python.*\) is in the middle of a write and is stopped; `kill -CONT"
            assert re.search(told, str(refused.value))
            assert changeset_ids(database) == []  # readers do not wait for writers
        finally:
            os.kill(pid, signal.SIGCONT)
        assert child.line() == "theirs"
        child.wait_end()
        database.write(keep("ours"))
        assert changeset_ids(database) == ["ours", "theirs"]
    assert write_lock_holder(location) is None


@sqlite_only
@pytest.mark.skipif(sys.platform != "linux", reason="nothing else tells who holds a lock")
def test_reports_a_busy_writer_without_a_remedy(database_url: str, tmp_path: Path) -> None:
    with open_database(database_url, patience_seconds=0.05), locked(tmp_path / "store.db"):
        holder = write_lock_holder(str(tmp_path / "store.db"))
    assert holder is not None
    assert (holder.pid, holder.stopped, holder.remedy) == (os.getpid(), False, None)
    assert str(holder).endswith("is in the middle of a write")


@sqlite_only
def test_a_unit_excludes_other_writers_until_its_commit(database: Database, tmp_path: Path) -> None:
    """If it began later, the data that the unit has read could change before it writes."""
    runs: list[str] = []

    def unit(connection: Connection) -> None:
        other = sqlite3.connect(tmp_path / "store.db", isolation_level=None, timeout=0)
        with closing(other), pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        runs.append("x")
        keep("x")(connection)

    database.write(unit)
    assert runs == changeset_ids(database) == ["x"]


@sqlite_only
def test_a_write_succeeds_after_the_other_one_ends(database: Database, tmp_path: Path) -> None:
    with locked(tmp_path / "store.db"):
        waiting = threading.Thread(target=database.write, args=(keep("x"),))
        waiting.start()
        assert changeset_ids(database) == []  # readers do not wait for writers
    waiting.join(30)
    assert changeset_ids(database) == ["x"]


@sqlite_only
def test_reports_a_full_disk_and_loses_only_the_failed_write(database: Database) -> None:
    database.write(keep("before"))

    def limit(pages: int) -> None:
        # The writing connection is kept, so the limit stays; SQLite reports it as it does a full disk.
        database.write(
            lambda connection: connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}").all()
        )

    limit(1)
    with pytest.raises(StoreFull, match="free some"):
        database.write(lambda connection: [keep(f"{n:0900d}")(connection) for n in range(100)])
    limit(1_000_000)
    database.write(keep("after"))
    assert changeset_ids(database) == ["after", "before"]


@postgresql_only
def test_retries_after_a_deadlock(database: Database) -> None:
    database.write(keep("a"))
    database.write(keep("b"))
    both_hold_one = threading.Barrier(2)
    runs: list[str] = []

    def work(number: int) -> None:
        first, second = "ab" if number == 0 else "ba"
        turns = iter([True])

        def unit(connection: Connection) -> None:
            runs.append(first)
            _touch(connection, first)
            if next(turns, False):
                both_hold_one.wait(30)
            _touch(connection, second)

        database.write(unit)

    hammer(work, threads=2)
    assert len(runs) > 2  # on a busy machine a lock may come too late, and then it is run once more


@postgresql_only
def test_waits_for_a_locked_row_and_then_reports_it(database_url: str) -> None:
    with open_database(database_url) as holder, open_database(database_url, patience_seconds=0.05) as waiter:
        holder.write(keep("a"))

        def hold(connection: Connection) -> None:
            _touch(connection, "a")
            with pytest.raises(StoreBusy):
                waiter.write(lambda other: _touch(other, "a"))

        holder.write(hold)
        waiter.write(lambda other: _touch(other, "a"))


@postgresql_only
def test_an_idle_transaction_releases_its_locks(
    database: Database,
) -> None:
    """Even with long patience: a process stopped in the middle of a transaction would hold its rows."""
    with database.read() as connection:
        for name in ("lock_timeout", "idle_in_transaction_session_timeout"):
            words = connection.exec_driver_sql(f"SHOW {name}").scalar_one()
            assert 0 < int(words.removesuffix("s")) <= 20, f"{name} = {words}"


def _touch(connection: Connection, name: str) -> None:
    connection.execute(changesets.update().where(changesets.c.id == name).values(closed=True))


@postgresql_only
def test_replaces_a_connection_lost_before_the_commit_and_reports_one_lost_in_it(
    database_url: str, postgres: PostgresServer
) -> None:
    class CutConnection:
        """Ends the server's side of the connection at one commit."""

        armed = False

        def reach(self, name: str) -> None:
            if self.armed and name == "store.write.before_commit":
                self.armed = False
                postgres.disconnect(database_url)

    faults = CutConnection()
    with open_database(database_url, faults=faults) as database:
        postgres.disconnect(database_url)
        database.write(keep("x"))
        faults.armed = True
        with pytest.raises(OutcomeUnknown, match="check before"):
            database.write(keep("y"))
        assert changeset_ids(database) == ["x"]


@postgresql_only
def test_repeats_a_write_that_the_server_ended_while_its_writer_was_suspended(
    database: Database, database_url: str
) -> None:
    attempts = count(1)

    def unit(connection: Connection) -> None:
        keep("x")(connection)
        if next(attempts) == 1:
            backend = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
            connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 1")
            _wait_until_gone(database_url, backend)

    database.write(unit)
    assert (next(attempts), changeset_ids(database)) == (3, ["x"])


def _wait_until_gone(database_url: str, backend: int) -> None:
    deadline = time.monotonic() + 30
    with open_database(database_url) as watcher:
        while True:
            with watcher.read() as connection:
                there = f"SELECT count(*) FROM pg_stat_activity WHERE pid = {backend}"
                # Gone from the list, it may still be about to say why it ends.
                if not connection.exec_driver_sql(there).scalar_one() and not psutil.pid_exists(backend):
                    return
            assert time.monotonic() < deadline
            time.sleep(0.01)


# ── What cannot be a database ─────────────────────────────────────────────────────────────────────


def test_a_new_file_is_private(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "store.db"
    with open_database(f"sqlite:///{path}", durability="full") as database:
        modes = {
            file.name: stat.S_IMODE(file.stat().st_mode) for file in (path.parent, *path.parent.iterdir())
        }
        assert modes == {"deep": 0o700, "store.db": 0o600, "store.db-wal": 0o600, "store.db-shm": 0o600}
        assert database.write(lambda c: c.exec_driver_sql("PRAGMA synchronous").scalar()) == 2


@pytest.mark.parametrize("content", ["hello\n", "not a database " * 1000])
def test_refuses_a_file_that_is_not_a_database(tmp_path: Path, content: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(content)
    with pytest.raises(DatabaseUnusable, match="not a database"):
        open_database(f"sqlite:///{path}")
    assert path.read_text() == content


def test_refuses_the_database_of_another_program(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "theirs.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    with pytest.raises(DatabaseUnusable, match="another program"):
        open_database(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]


@pytest.fixture
def public_path() -> Iterator[Path]:
    """A directory that any user may look into, unlike pytest's."""
    with TemporaryDirectory() as home:
        Path(home).chmod(0o755)
        yield Path(home)


def test_refuses_an_unwritable_place(public_path: Path) -> None:
    directory = public_path / "directory"
    directory.mkdir()
    read_only = public_path / "read-only"
    read_only.mkdir(mode=0o555)
    file = public_path / "file.db"
    open_database(f"sqlite:///{file}").close()
    file.chmod(0o444)
    places = [directory, read_only / "store.db", file, file / "store.db", Path("/proc/store.db")]
    for place in (directory, file / "store.db"):
        with pytest.raises(DatabaseUnusable, match="; configure"):
            open_database(f"sqlite:///{place}")
    child = start_child("open_unprivileged", ",".join(f"sqlite:///{place}" for place in places), "")
    child.wait_ready()
    child.go()
    said = child.wait_end().splitlines()
    assert len(said) == len(places)
    assert "is a directory" in said[0]
    for place, line in zip(places, said, strict=True):
        assert line.startswith(f"DatabaseUnusable: cannot use {place} as the database")
        assert "; configure" in line


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("nonsense", "not a URL"),
        ("sqlite://", "configure a file"),
        ("sqlite:///:memory:", "configure a file"),
        ("mysql://user:hunter2@host/db", "not supported"),
    ],
)
def test_refuses_an_unusable_url_without_showing_its_password(url: str, problem: str) -> None:
    with pytest.raises(DatabaseUnusable, match=problem) as caught:
        open_database(url)
    assert "hunter2" not in str(caught.value)


def test_reports_an_unreachable_server_without_its_password() -> None:
    with pytest.raises(DatabaseUnreachable, match="check the server") as caught:
        open_database("postgresql://user:hunter2@127.0.0.1:1/db")
    assert "hunter2" not in str(caught.value)
    assert caught.value.exit_code == 75


@pytest.mark.postgres
def test_reports_a_database_that_the_server_does_not_have(postgres: PostgresServer) -> None:
    """The refusal has no code, like that of a starting server: only its message tells."""
    with pytest.raises(DatabaseUnreachable, match=r"does not exist.*check"):
        open_database(f"postgresql://postgres@/nowhere?host={postgres.socket}")


def test_reports_a_missing_driver_with_its_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(DatabaseUnusable, match="pip install"):
        open_database("postgresql://user@host/db")


def test_refuses_a_password_with_an_at_sign() -> None:
    with pytest.raises(DatabaseUnusable, match="%40") as refused:
        open_database("postgresql://user:a@hunter2@localhost/name")
    assert "hunter2" not in str(refused.value)
