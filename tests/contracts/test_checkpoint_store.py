"""The contract of `SqlCheckpointStore`, on both databases."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

import psycopg
import pytest
from sqlalchemy import delete, func, select

from cleveragents.actors.store.checkpoint_rows import Blob, StoredCheckpoint, StoredWrite
from cleveragents.actors.store.sql_checkpoint_store import SqlCheckpointStore
from cleveragents.core.errors import DatabaseFailed, InvalidPayload, StaleFence, UnknownPlan
from cleveragents.core.identifiers import Fence, WorkerIdentity
from cleveragents.jobs.model.job import AttemptOutcome, Job, JobState, NewJob
from cleveragents.jobs.store.sql_job_store import SqlJobStore
from cleveragents.storage.actor_tables import (
    graph_checkpoints,
    graph_values,
    graph_writes,
)
from cleveragents.storage.database import Database, open_database
from cleveragents.testing.clock import CountingIdentifiers
from tests.conditions import wait_until
from tests.races.hammer import hammer

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ANN = WorkerIdentity("ann", "here", 4711, 99)
BOB = WorkerIdentity("bob", "there", 4712, 7)
KEPT: Blob = ("", b"")
ODD_BYTES = bytes(range(256))
ODD_TEXT = "ünï 😀 \\ \" ' % _ :x ?"
SECONDS_LIMIT = 60.0


@pytest.fixture
def store(database: Database) -> SqlCheckpointStore:
    return SqlCheckpointStore(database)


def checkpoint(
    number: int, parent: int | None = None, thread: str = "t", **values: object
) -> StoredCheckpoint:
    """Return the checkpoint with this number; `values` are (version, blob)."""
    return StoredCheckpoint(
        thread,
        "",
        f"{number:06}",
        None if parent is None else f"{parent:06}",
        ("msgpack", b"%d" % number),
        b'{"step": %d}' % number,
        values,
    )


def write(task: str, index: int, value: bytes = b"", path: str = "") -> StoredWrite:
    return StoredWrite(task, index, "channel", ("msgpack", value), path)


def ids(found: Sequence[StoredCheckpoint]) -> list[str]:
    return [each.checkpoint_id for each in found]


def rows(database: Database) -> list[int]:
    """Return the numbers of checkpoints, values and writes."""
    with database.read() as connection:
        return [
            connection.execute(select(func.count()).select_from(table)).scalar_one()
            for table in (graph_checkpoints, graph_values, graph_writes)
        ]


# ── storing and finding ──


def test_any_checkpoint_is_read_back_unchanged(store: SqlCheckpointStore) -> None:
    wanted = StoredCheckpoint(
        ODD_TEXT,
        ODD_TEXT,
        ODD_TEXT,
        None,
        ("msgpack", ODD_BYTES),
        ODD_BYTES,
        {ODD_TEXT: (ODD_TEXT, ("bytes", ODD_BYTES)), "empty": ("1", ("null", b""))},
    )
    writes = [StoredWrite(ODD_TEXT, -3, ODD_TEXT, ("bytes", ODD_BYTES), ODD_TEXT)]
    store.put(wanted)
    store.put_writes(ODD_TEXT, ODD_TEXT, ODD_TEXT, writes, replace=False)
    expected = replace(wanted, writes=writes)
    assert store.get(ODD_TEXT, ODD_TEXT) == expected
    assert store.get(ODD_TEXT, ODD_TEXT, ODD_TEXT) == expected
    assert list(store.list(ODD_TEXT)) == [expected]


def test_the_latest_is_found_unless_one_is_named_and_threads_and_namespaces_are_apart(
    store: SqlCheckpointStore,
) -> None:
    inner = replace(checkpoint(9), namespace="inner")
    for each in (checkpoint(1), checkpoint(2, 1), checkpoint(5, thread="other"), inner):
        store.put(each)
    assert store.get("t") == checkpoint(2, 1)
    assert store.get("t", "", "000001") == checkpoint(1)
    assert store.get("t", "inner") == inner
    assert store.get("t", "", "000005") is None
    assert store.get("nobody") is None


def test_an_unchanged_value_is_not_written_again(store: SqlCheckpointStore, database: Database) -> None:
    store.put(checkpoint(1, a=("1", ("bytes", b"long")), b=("1", ("bytes", b"b1"))))
    store.put(checkpoint(2, 1, a=("1", KEPT), b=("2", ("bytes", b"b2"))))
    later = store.get("t")
    assert later is not None
    assert later.values == {"a": ("1", ("bytes", b"long")), "b": ("2", ("bytes", b"b2"))}
    assert rows(database)[1] == 3
    first = store.get("t", "", "000001")
    assert first is not None
    assert first.values["b"] == ("1", ("bytes", b"b1"))


def test_a_checkpoint_without_one_of_its_values_is_refused(
    store: SqlCheckpointStore, database: Database
) -> None:
    store.put(checkpoint(1, a=("1", ("bytes", b"x")), b=("1", ("bytes", b"y"))))
    database.write(
        lambda connection: connection.execute(delete(graph_values).where(graph_values.c.channel == "b"))
    )
    with pytest.raises(DatabaseFailed, match="'b'"):
        store.get("t")


def test_a_checkpoint_put_twice_is_stored_once_with_its_last_content(
    store: SqlCheckpointStore, database: Database
) -> None:
    store.put(checkpoint(1))
    again = replace(checkpoint(1), metadata=b"again")
    store.put(again)
    assert store.get("t") == again
    assert rows(database) == [1, 0, 0]


def test_a_superseding_checkpoint_deletes_only_older_ones(
    store: SqlCheckpointStore, database: Database
) -> None:
    def version(number: int) -> str:
        return f"{number:010}.ab"

    other = checkpoint(1, thread="other", talk=(version(1), ("bytes", b"other")))
    store.put(other)
    kept: Blob = ("bytes", b"kept")
    for number in range(1, 8):
        said = (version(number), ("bytes", b"%d" % number))
        aside = (version(1), kept if number == 1 else KEPT)
        one = checkpoint(number, number - 1 or None, talk=said, aside=aside)
        store.put(replace(one, supersedes=True))
        store.put_writes("t", "", one.checkpoint_id, [write("task", 0)], replace=False)
        for namespace in (f"sub:{number}", f"sub:{number}|inner:1", "sub"):
            below = replace(checkpoint(1, a=(version(1), kept)), namespace=namespace)
            store.put(replace(below, supersedes=True))
            store.put_writes("t", namespace, below.checkpoint_id, [write("task", 0)], replace=False)
    assert {(each.namespace, each.checkpoint_id) for each in store.list("t")} == {
        *(("", f"{number:06}") for number in (6, 7)),
        *((namespace, "000001") for namespace in ("sub:7", "sub:7|inner:1", "sub")),
    }
    newest = store.get("t")
    assert newest is not None
    assert newest.values == {"talk": (version(7), ("bytes", b"7")), "aside": (version(1), kept)}
    assert store.get("t", "", newest.parent_id) is not None, "what it follows can be gone on from"
    assert store.get("other") == other
    assert rows(database) == [6, 7, 5]
    inner = replace(checkpoint(2, 1, a=(version(2), kept)), namespace="sub:7", supersedes=True)
    store.put(inner)
    assert {each.namespace for each in store.list("t")} == {"", "sub:7", "sub"}, "only what is below it"


def test_an_existing_write_is_replaced_only_if_requested(store: SqlCheckpointStore) -> None:
    store.put(checkpoint(1))
    for value, again in ((b"first", False), (b"second", False), (b"third", True)):
        store.put_writes("t", "", "000001", [write("task", 0, value)], replace=again)
        found = store.get("t")
        assert found is not None
        assert found.writes == [write("task", 0, b"third" if again else b"first")]


def test_writes_come_in_the_order_in_which_a_step_applies_them(store: SqlCheckpointStore) -> None:
    ordered = [write("z", 3), write("b", -1, path="Z"), write("b", 2, path="a"), write("c", 0, path="a")]
    store.put(checkpoint(1))
    store.put_writes("t", "", "000001", [ordered[n] for n in (2, 0, 3, 1)], replace=False)
    found = store.get("t")
    assert found is not None
    assert found.writes == ordered


def test_writes_that_come_before_their_checkpoint_are_found_with_it(store: SqlCheckpointStore) -> None:
    store.put_writes("t", "", "000001", [write("task", 0)], replace=False)
    assert store.get("t") is None
    store.put(checkpoint(1))
    found = store.get("t")
    assert found is not None
    assert found.writes == [write("task", 0)]


def test_no_writes_are_nothing_to_keep(store: SqlCheckpointStore, database: Database) -> None:
    store.put_writes("t", "", "000001", [], replace=True)
    assert rows(database) == [0, 0, 0]


def test_a_list_is_newest_first_to_the_last_one(store: SqlCheckpointStore) -> None:
    for number in range(40):
        for thread in ("one", "other"):  # the same ids in both, so that a page ends between two of them
            store.put(
                checkpoint(number, number - 1 if number else None, thread, a=(str(number), ("bytes", b"x")))
            )
    newest_first = [f"{number:06}" for number in reversed(range(40))]
    assert ids(list(store.list("one"))) == newest_first
    assert ids(list(store.list("one", namespace="", before="000003"))) == ["000002", "000001", "000000"]
    assert ids(list(store.list("one", namespace="inner"))) == []
    everything = list(store.list(None))
    assert ids(everything) == sorted(newest_first * 2, reverse=True)
    assert len({(each.thread_id, each.checkpoint_id) for each in everything}) == 80
    assert all(each.values for each in everything)


def test_readers_that_stop_early_hold_no_connection(database_url: str) -> None:
    with open_database(database_url, connections=2, patience_seconds=5) as database:
        store = SqlCheckpointStore(database)
        for number in range(20):
            store.put(checkpoint(number))
        begun = [store.list("t") for _ in range(4)]
        assert {next(reader).checkpoint_id for reader in begun} == {"000019"}
        assert store.get("t") is not None


def test_unstorable_text_is_refused_and_never_found(store: SqlCheckpointStore, database: Database) -> None:
    for odd in ("\0", "\ud800"):
        for wrong in (
            replace(checkpoint(1), thread_id=odd),
            replace(checkpoint(1), namespace=odd),
            checkpoint(1, **{odd: ("1", ("bytes", b""))}),
        ):
            with pytest.raises(InvalidPayload):
                store.put(wrong)
        with pytest.raises(InvalidPayload):
            store.put_writes("t", "", odd, [], replace=False)
        with pytest.raises(InvalidPayload):
            store.put_writes("t", "", "1", [write(odd, 0)], replace=False)
        assert store.get(odd) is None
        assert list(store.list(odd)) == []
        store.delete_threads(odd)
    assert rows(database) == [0, 0, 0]


# ── fences ──


class ForgetfulStore(SqlCheckpointStore):
    """A naive store that accepts a fence and never checks it."""

    def put(self, checkpoint: StoredCheckpoint, *, fence: Fence | None = None) -> None:
        super().put(checkpoint)

    def put_writes(
        self,
        thread_id: str,
        namespace: str,
        checkpoint_id: str,
        writes: Sequence[StoredWrite],
        *,
        replace: bool,
        fence: Fence | None = None,
    ) -> None:
        super().put_writes(thread_id, namespace, checkpoint_id, writes, replace=replace)


def claimed_job(jobs: SqlJobStore, worker: WorkerIdentity = ANN) -> Job:
    job = jobs.claim(worker, ["plan"], now=NOW)
    assert job is not None
    return job


def check_that_a_stale_worker_writes_nothing(store: SqlCheckpointStore, database: Database) -> None:
    jobs = SqlJobStore(database, CountingIdentifiers("id"))
    jobs.submit(NewJob("plan", {}), now=NOW)
    ann = claimed_job(jobs)
    anns = Fence(ann.id, ann.fence)

    def refused(fence: Fence) -> None:
        before = rows(database)
        for attempt in (
            lambda: store.put(checkpoint(2, 1), fence=fence),
            lambda: store.put_writes("t", "", "000001", [write("late", 0)], replace=True, fence=fence),
        ):
            with pytest.raises(StaleFence):
                attempt()
        assert rows(database) == before

    store.put(checkpoint(1), fence=anns)
    store.put_writes("t", "", "000001", [write("task", 0)], replace=False, fence=anns)
    assert rows(database) == [1, 0, 1]
    refused(Fence(ann.id, ann.fence + 1))
    refused(Fence("no such job", ann.fence))
    jobs.reclaim(ann.id, ann.fence, ann.beat, error="silent", now=NOW)
    refused(anns)  # queued again
    bob = claimed_job(jobs, BOB)
    refused(anns)  # running, but for another worker
    bobs = Fence(bob.id, bob.fence)
    store.put(checkpoint(2, 1), fence=bobs)
    jobs.finish(bob.id, bob.fence, AttemptOutcome(JobState.SUCCEEDED), now=NOW)
    refused(bobs)
    store.delete_threads("t")
    refused(bobs)
    assert store.get("t") is None


def test_a_stale_worker_writes_nothing(store: SqlCheckpointStore, database: Database) -> None:
    check_that_a_stale_worker_writes_nothing(store, database)


def test_a_store_that_ignores_the_fence_is_caught(database: Database) -> None:
    with pytest.raises(pytest.fail.Exception):
        check_that_a_stale_worker_writes_nothing(ForgetfulStore(database), database)


@pytest.mark.postgres
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_write_waits_for_the_worker_that_takes_over_the_job(
    store: SqlCheckpointStore, database: Database, database_url: str
) -> None:
    jobs = SqlJobStore(database, CountingIdentifiers("id"))
    jobs.submit(NewJob("plan", {}), now=NOW)
    job = claimed_job(jobs)
    with psycopg.connect(database_url) as other, ThreadPoolExecutor(1) as pool:
        other.execute("SELECT 1 FROM jobs FOR UPDATE")  # as every transition of a job does first
        other.execute("UPDATE jobs SET state = 'queued'")
        late = pool.submit(store.put, checkpoint(1), fence=Fence(job.id, job.fence))
        wait_until(lambda: late.done() or someone_waits(database_url))
        other.commit()
        with pytest.raises(StaleFence):
            late.result(SECONDS_LIMIT)
    assert rows(database) == [0, 0, 0]


def someone_waits(url: str) -> bool:
    """Return whether a transaction waits for another one's lock."""
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone() is not None


# ── deleting ──


def test_a_thread_is_deleted_with_all_below_it_and_nothing_beside_it(
    store: SqlCheckpointStore, database: Database
) -> None:
    doomed = ["p", "p/a", "p/a/b", "p/~"]
    others = ["p0", "p-", "p.", "pp", "o", "P/a", "", "/p"]
    for thread in doomed + others:
        store.put(checkpoint(1, thread=thread, a=("1", ("bytes", b"x"))))
        store.put_writes(thread, "", "000001", [write("task", 0)], replace=False)
    store.delete_threads("p")
    assert {each.thread_id for each in store.list(None)} == set(others)
    assert rows(database) == [len(others)] * 3
    store.delete_threads("p")


def test_late_writes_do_not_bring_a_deleted_thread_back(
    store: SqlCheckpointStore, database: Database
) -> None:
    store.put(checkpoint(1, thread="plan/run"))
    store.delete_threads("plan")
    with pytest.raises(UnknownPlan, match="'plan'"):
        store.put(checkpoint(2, 1, thread="plan/run", a=("1", ("bytes", b"x"))))
    store.put_writes("plan/run", "", "000001", [write("late", 0)], replace=False)
    assert store.get("plan/run") is None
    assert list(store.list(None)) == []
    store.put(checkpoint(3, thread="plan/run"))  # a new start, which is a different thread
    begun = store.get("plan/run")
    assert begun is not None
    assert begun.writes == ()
    store.delete_threads("plan")
    assert rows(database) == [0, 0, 0]


class Gate:
    """Holds up the first write after it was closed, until it is opened."""

    def __init__(self) -> None:
        self.closed = False
        self.reached = threading.Event()
        self.open = threading.Event()

    def reach(self, name: str) -> None:
        if name == "store.write.before_commit" and self.closed:
            self.closed = False
            self.reached.set()
            assert self.open.wait(SECONDS_LIMIT)


def test_a_checkpoint_in_progress_is_deleted_with_its_thread(database_url: str) -> None:
    gate = Gate()
    with open_database(database_url, faults=gate) as database, ThreadPoolExecutor(2) as pool:
        store = SqlCheckpointStore(database)
        store.put(checkpoint(1, a=("1", ("bytes", b"x"))))
        gate.closed = True
        writing = pool.submit(store.put, checkpoint(2, 1, a=("2", ("bytes", b"y"))))
        assert gate.reached.wait(SECONDS_LIMIT)
        deleting = pool.submit(store.delete_threads, "t")
        if database.dialect == "postgresql":
            wait_until(lambda: deleting.done() or someone_waits(database_url))
        gate.open.set()
        writing.result(SECONDS_LIMIT)
        deleting.result(SECONDS_LIMIT)
        assert store.get("t") is None
        assert rows(database) == [0, 0, 0]


def test_threads_that_write_at_once_lose_nothing(store: SqlCheckpointStore, database: Database) -> None:
    def work(number: int) -> None:
        thread = f"run/{number}"
        for step in range(20):
            parent = step - 1 if step else None
            store.put(checkpoint(step, parent, thread, a=(str(step), ("bytes", b"%d" % number))))
            store.put_writes(thread, "", f"{step:06}", [write("task", 0)], replace=False)

    hammer(work, threads=6)
    assert rows(database) == [120, 120, 120]
    for number in range(6):
        found = list(store.list(f"run/{number}"))
        assert len(found) == 20
        assert {blob for each in found for _, blob in each.values.values()} == {("bytes", b"%d" % number)}
        assert all(len(each.writes) == 1 for each in found)


def test_deleting_while_others_write_leaves_all_or_nothing_of_a_thread(
    store: SqlCheckpointStore, database: Database
) -> None:
    def work(number: int) -> None:
        if number == 0:
            for _ in range(10):
                store.delete_threads("p")
            return
        with suppress(UnknownPlan):
            for step in range(1, 30):
                store.put(checkpoint(step, step - 1 or None, f"p/{number}", a=(str(step), ("bytes", b"x"))))

    hammer(work, threads=4)
    for number in range(1, 4):
        found = ids(list(store.list(f"p/{number}")))
        assert found in ([], [f"{step:06}" for step in range(29, 0, -1)])
    store.delete_threads("p")
    assert rows(database) == [0, 0, 0]


# ── listing ──


def test_threads_are_known_by_their_names_for_as_long_as_something_is_kept(store: SqlCheckpointStore) -> None:
    assert list(store.threads()) == []
    for thread in ("p/strategize", "p/1", "other"):
        store.put(checkpoint(1, None, thread))
        store.put(checkpoint(2, 1, thread))
    assert sorted(store.threads()) == ["other", "p/1", "p/strategize"]
    store.delete_threads("p")
    assert list(store.threads()) == ["other"]
