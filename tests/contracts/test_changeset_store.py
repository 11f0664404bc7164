"""The contract of changeset stores, over memory, SQLite and PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleveragents.changes.execution_context import ChangesetStore
from cleveragents.changes.store.sql_changeset_store import SqlChangesetStore
from cleveragents.core.change import ChangeEntry, ChangeKind, Changeset
from cleveragents.core.errors import ChangesetClosed, DuplicateKey, InvalidPayload, UnknownChangeset
from cleveragents.core.identifiers import UlidSource
from cleveragents.storage.database import Database, open_database
from cleveragents.storage.tables import outbox
from cleveragents.testing.changeset_store import InMemoryChangesetStore
from tests.contracts.conftest import DATABASES
from tests.postgres import PostgresServer
from tests.races.hammer import hammer
from tests.ready_database import ready_database


@pytest.fixture(params=["memory", *DATABASES])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, postgres: PostgresServer
) -> Iterator[ChangesetStore]:
    if request.param == "memory":
        yield InMemoryChangesetStore()
        return
    url = ready_database(tmp_path / "changes.db") if request.param == "sqlite" else postgres.ready_url()
    with open_database(url) as database:
        yield SqlChangesetStore(database, UlidSource())
    if request.param == "postgresql":
        postgres.drop(url)


@pytest.fixture
def sql_store(database: Database) -> SqlChangesetStore:
    return SqlChangesetStore(database, UlidSource())


def change(name: str) -> ChangeEntry:
    return ChangeEntry(ChangeKind.CREATE, name)


def numbered(store: ChangesetStore, changeset: str) -> list[tuple[int, str]]:
    return [(recorded.sequence, recorded.entry.path) for recorded in store.entries(changeset)]


def test_a_started_changeset_is_there_open_and_empty(store):
    changeset = store.start("plan")
    assert store.get(changeset) == Changeset(changeset, "plan", closed=False, length=0)
    assert list(store.entries(changeset)) == []


def test_entries_are_numbered_from_one_in_the_order_of_their_acknowledgement(store):
    changeset, other = store.start("plan"), store.start("plan")
    for name in "abc":
        store.record(changeset, change(name))
        store.record(other, change(name.upper()))
    assert numbered(store, changeset) == [(1, "a"), (2, "b"), (3, "c")]
    assert numbered(store, other) == [(1, "A"), (2, "B"), (3, "C")]
    assert store.get(changeset).length == 3


ODD_PATHS = [
    "ünïcode/ß",
    'with "quotes"',
    '"starts with one',
    "back\\slash",
    "not-utf8-\udcff",
    "line\nbreak",
]

ENTRIES = [
    ChangeEntry(ChangeKind.MODIFY, "a", "h1", "h2", tool_call_id="call"),
    ChangeEntry(ChangeKind.MODE, "a", mode=0o100755),
    *(ChangeEntry(ChangeKind.RENAME, path, old_path=path + "~") for path in ODD_PATHS),
]


def test_entries_survive_any_file_name(store):
    changeset = store.start("plan")
    recorded = [store.record(changeset, entry, key=str(n)) for n, entry in enumerate(ENTRIES)]
    assert list(store.entries(changeset)) == recorded
    assert [r.entry for r in recorded] == ENTRIES
    assert [r.key for r in recorded] == [str(n) for n in range(len(ENTRIES))]


def test_a_repeated_key_returns_the_first_record_even_after_the_seal(store):
    changeset, other = store.start("plan"), store.start("plan")
    first = store.record(changeset, change("a"), key="k")
    assert store.record(changeset, change("a"), key="k") == first
    assert store.record(other, change("b"), key="k").changeset_id == other
    store.close(changeset)
    assert store.record(changeset, change("a"), key="k") == first
    assert numbered(store, changeset) == [(1, "a")]


def test_a_key_with_another_entry_is_refused(store):
    changeset = store.start("plan")
    store.record(changeset, change("a"), key="k")
    with pytest.raises(DuplicateKey, match="'k'"):
        store.record(changeset, change("b"), key="k")
    assert numbered(store, changeset) == [(1, "a")]


def test_a_batch_is_recorded_in_order_as_one_step_and_once_per_key(store: ChangesetStore) -> None:
    changeset = store.start("plan")
    store.record(changeset, change("first"))
    batch = [change("a"), change("b"), change("c")]
    recorded = store.record_all(changeset, batch, key="call")
    assert [(one.sequence, one.entry) for one in recorded] == [(2, batch[0]), (3, batch[1]), (4, batch[2])]
    assert list(store.record_all(changeset, batch, key="call")) == list(recorded)
    assert list(store.record_all(changeset, [])) == []
    assert [sequence for sequence, _ in numbered(store, changeset)] == [1, 2, 3, 4]


def test_a_batch_with_a_refused_entry_records_nothing(store: ChangesetStore) -> None:
    changeset = store.start("plan")
    store.record(changeset, change("other"), key="call#2")
    with pytest.raises(DuplicateKey):
        store.record_all(changeset, [change("a"), change("b")], key="call")
    assert len(store.entries(changeset)) == 1
    store.close(changeset)
    with pytest.raises(ChangesetClosed):
        store.record_all(changeset, [change("a")])
    with pytest.raises(UnknownChangeset):
        store.record_all("nonsense", [change("a")])


def test_a_closed_changeset_takes_no_entries(store):
    changeset = store.start("plan")
    store.record(changeset, change("a"))
    sealed = store.close(changeset)
    assert sealed == Changeset(changeset, "plan", closed=True, length=1)
    with pytest.raises(ChangesetClosed, match=changeset):
        store.record(changeset, change("b"))
    assert store.close(changeset) == sealed == store.get(changeset)
    assert numbered(store, changeset) == [(1, "a")]


def test_an_unstarted_changeset_is_unknown(store):
    uses = [lambda handle: store.record(handle, change("a")), store.close, store.get, store.entries]
    for handle in ("nope", "no\0pe", "no\udcffpe"):
        for use in uses:
            with pytest.raises(UnknownChangeset):
                use(handle)


def test_a_plan_has_its_own_changesets_oldest_first(store):
    started = [store.start("plan") for _ in range(3)]
    store.start("other")
    store.record(started[1], change("a"))
    store.close(started[2])
    assert list(store.of_plan("plan")) == [
        Changeset(started[0], "plan"),
        Changeset(started[1], "plan", length=1),
        Changeset(started[2], "plan", closed=True),
    ]
    assert list(store.of_plan("nobody")) == []
    assert list(store.of_plan("no\0body")) == []


def test_lists_changesets_after_a_given_one(store):
    first, other, second, third = (store.start(plan) for plan in ("plan", "other", "plan", "plan"))
    store.record(first, change("a"))
    found = {
        after: [one.id for one in store.of_plan("plan", after=after)] for after in (first, second, third)
    }
    assert found == {first: [second, third], second: [third], third: []}
    assert [one.id for one in store.of_plan("plan", after=other)] == [second, third]
    for unknown in ("nope", "no\0pe"):
        with pytest.raises(UnknownChangeset):
            store.of_plan("plan", after=unknown)


def test_records_of_many_threads_are_gapless_each_in_its_changeset_in_its_threads_order(store):
    shared = store.start("plan")
    own = [store.start("plan") for _ in range(6)]
    acknowledged: list[tuple[str, int, str]] = []

    def work(number: int) -> None:
        for turn in range(40):
            for changeset in (shared, own[number]):
                path = f"{number}/{turn}"
                recorded = store.record(changeset, change(path), key=path)
                again = store.record(changeset, change(path), key=path)
                assert again == recorded
                acknowledged.append((changeset, recorded.sequence, path))

    hammer(work, threads=6)
    kept = [(changeset, *entry) for changeset in (shared, *own) for entry in numbered(store, changeset)]
    assert sorted(kept) == sorted(acknowledged)
    assert [sequence for sequence, _ in numbered(store, shared)] == list(range(1, 241))
    for number, changeset in enumerate(own):
        assert numbered(store, changeset) == [(turn + 1, f"{number}/{turn}") for turn in range(40)]


def test_a_record_during_a_close_is_counted_or_refused(store):
    for _ in range(15):
        seal_in_the_middle(store)


def seal_in_the_middle(store: ChangesetStore) -> None:
    changeset = store.start("plan")
    first_is_in = threading.Event()
    acknowledged: list[tuple[int, str]] = []
    sealed: list[Changeset] = []

    def work(number: int) -> None:
        if number == 0:
            assert first_is_in.wait(30)
            sealed.append(store.close(changeset))
            return
        for turn in range(100):
            try:
                recorded = store.record(changeset, change(f"{number}/{turn}"))
            except ChangesetClosed:
                return
            acknowledged.append((recorded.sequence, recorded.entry.path))
            first_is_in.set()

    hammer(work, threads=4)
    assert sorted(acknowledged) == numbered(store, changeset)
    assert sealed == [store.get(changeset)]
    assert sealed[0].length == len(acknowledged)


def test_refuses_what_no_database_stores_without_side_effects(sql_store):
    changeset = sql_store.start("plan")
    for text in ("a\0b", "a\udcffb"):
        for fact in ("tool_call_id", "before_hash", "after_hash"):
            with pytest.raises(InvalidPayload, match=fact):
                sql_store.record(changeset, ChangeEntry(ChangeKind.MODIFY, "a", **{fact: text}))
        with pytest.raises(InvalidPayload, match="key"):
            sql_store.record(changeset, change("a"), key=text)
        with pytest.raises(InvalidPayload, match="plan_id"):
            sql_store.start(text)
    assert sql_store.get(changeset).length == 0


def test_start_and_seal_each_leave_one_event_in_their_own_transaction(sql_store, database):
    told = []
    database.add_commit_listener(lambda events: told.extend(events))
    changeset = sql_store.start("plan")
    sql_store.record(changeset, change("a"))
    sql_store.close(changeset)
    sql_store.close(changeset)
    with database.read() as connection:
        rows = connection.execute(outbox.select().order_by(outbox.c.number)).all()
    assert [(row.event_type, row.subject, row.payload) for row in rows] == [
        ("changeset.started", changeset, '{"length":0,"plan_id":"plan"}'),
        ("changeset.closed", changeset, '{"length":1,"plan_id":"plan"}'),
    ]
    assert [event.event_id for event in told] == [row.event_id for row in rows]


def test_two_openings_of_one_database_number_one_changeset_together(sql_store, database_url):
    changeset = sql_store.start("plan")
    with open_database(database_url) as second:
        stores = [sql_store, SqlChangesetStore(second, UlidSource())]

        def work(number: int) -> None:
            for turn in range(30):
                stores[number % 2].record(changeset, change(f"{number}/{turn}"))

        hammer(work, threads=4)
    assert [sequence for sequence, _ in numbered(sql_store, changeset)] == list(range(1, 121))
