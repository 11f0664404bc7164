"""Contents of changed files in the database, on SQLite and PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace
from sqlalchemy import Connection, insert, select

from cleveragents.changes.store.sql_changeset_store import SqlChangesetStore
from cleveragents.core.change import GITLINK, REGULAR, ChangeEntry, ChangeKind
from cleveragents.core.errors import UnknownPlan
from cleveragents.core.identifiers import UlidSource
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.ports.plans import PlanDraft
from cleveragents.plans.remote.contents import ContentKeepingStore, ContentLocation, SqlContents
from cleveragents.plans.store.sql_plan_store import SqlPlanStore
from cleveragents.storage.database import Database
from cleveragents.storage.service_tables import contents as kept
from cleveragents.storage.service_tables import remote_bases

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Store:
    """The content part of a sandbox."""

    def __init__(self, **found: bytes) -> None:
        self.found = found
        self.asked: list[str] = []

    def content(self, name: str) -> bytes:
        self.asked.append(name)
        return self.found[name]


@pytest.fixture
def contents(database: Database) -> SqlContents:
    return SqlContents(database)


@pytest.fixture
def plans(database: Database) -> SqlPlanStore:
    return SqlPlanStore(database, UlidSource())


@pytest.fixture
def plan(plans: SqlPlanStore) -> Plan:
    return plans.create(PlanDraft("a goal", "tests/steps", "git+file:///shop.git#main"), now=NOW)


def keeping_for(database: Database, plan: Plan, store: Store, contents: SqlContents) -> ContentKeepingStore:
    inner = SqlChangesetStore(database, UlidSource())
    return ContentKeepingStore(inner, contents, lambda changeset_id: ContentLocation(store, plan.id))


def entry(path: str, after: str | None, mode: int = REGULAR) -> ChangeEntry:
    kind = ChangeKind.DELETE if after is None else ChangeKind.CREATE
    before = "before" if after is None else None
    return ChangeEntry(kind, path, before_hash=before, after_hash=after, mode=None if after is None else mode)


def test_reads_stored_contents_byte_by_byte(contents: SqlContents, plan: Plan) -> None:
    found = {"a": b"", "b": bytes(range(256)) * 1000}
    contents.keep(plan.id, found)
    contents.keep(plan.id, {})
    assert contents.read(plan.id, ["a", "b", "c"]) == found
    assert contents.lacking(plan.id, ["a", "b", "c"]) == {"c"}


def test_existing_contents_stay(contents: SqlContents, plan: Plan) -> None:
    contents.keep(plan.id, {"a": b"first"})
    contents.keep(plan.id, {"a": b"second", "b": b"new"})
    assert contents.read(plan.id, ["a", "b"]) == {"a": b"first", "b": b"new"}


def test_looks_up_many_names_in_portions(contents: SqlContents, plan: Plan) -> None:
    found = {f"{number:03}": str(number).encode() for number in range(250)}
    contents.keep(plan.id, found)
    assert contents.read(plan.id, list(found)) == found
    assert contents.lacking(plan.id, [*found, "none"]) == {"none"}


def test_stores_contents_before_their_record(database: Database, contents: SqlContents, plan: Plan) -> None:
    store = Store(a=b"1", b=b"2")
    keeping = keeping_for(database, plan, store, contents)
    changeset = keeping.start(plan.id)
    keeping.record(changeset, entry("x", "a"), key="one")
    keeping.record_all(changeset, [entry("y", "b"), entry("z", None), entry("module", "commit", GITLINK)])
    assert contents.read(plan.id, ["a", "b"]) == {"a": b"1", "b": b"2"}
    assert store.asked == ["a", "b"]
    keeping.record(changeset, entry("again", "a"))
    assert store.asked == ["a", "b"]
    assert [change.entry.path for change in keeping.entries(changeset)] == ["x", "y", "z", "module", "again"]
    assert keeping.close(changeset) == keeping.get(changeset) == keeping.of_plan(plan.id)[0]


def test_records_nothing_without_its_contents(database: Database, contents: SqlContents, plan: Plan) -> None:
    keeping = keeping_for(database, plan, Store(), contents)
    changeset = keeping.start(plan.id)
    with pytest.raises(KeyError):
        keeping.record_all(changeset, [entry("x", "a")])
    assert keeping.entries(changeset) == []


def test_contents_of_a_plan_on_a_directory_stay_there(
    database: Database, contents: SqlContents, plan: Plan
) -> None:
    inner = SqlChangesetStore(database, UlidSource())
    keeping = ContentKeepingStore(inner, contents, lambda changeset_id: None)
    keeping.record(keeping.start(plan.id), entry("x", "a"))
    assert contents.lacking(plan.id, ["a"]) == {"a"}


class ForAll(SqlContents):
    """The naive variant: contents stored by any plan are not stored again."""

    def lacking(self, root_id: str, names: object) -> set[str]:
        with self.database.read() as connection:
            return set(names) - set(connection.execute(select(kept.c.digest)).scalars())


@pytest.mark.parametrize(("kind", "lost"), [(SqlContents, False), (ForAll, True)])
def test_deleting_a_plan_keeps_contents_of_another(
    database: Database, plans: SqlPlanStore, plan: Plan, kind: type[SqlContents], lost: bool
) -> None:
    """The other plan is deleted after the lookup and before the record that names the contents."""
    contents = kind(database)
    other = plans.create(PlanDraft("another", "tests/steps", plan.resource), now=NOW)
    contents.keep(other.id, {"a": b"1"})
    ended = plans.move(other, (Phase.ACTION, PlanState.CANCELLED), now=NOW)

    class Deleting(SqlChangesetStore):
        def record(self, *arguments: object, **more: object) -> object:
            plans.delete(ended, now=NOW)
            return super().record(*arguments, **more)

    keeping = keeping_for(database, plan, Store(a=b"1"), contents)
    keeping = replace(keeping, inner=Deleting(database, UlidSource()))
    keeping.record(keeping.start(plan.id), entry("x", "a"))
    assert contents.read(plan.id, ["a"]) == ({} if lost else {"a": b"1"})


def test_contents_are_deleted_with_their_plan(
    database: Database, contents: SqlContents, plans: SqlPlanStore, plan: Plan
) -> None:
    def based(connection: Connection) -> None:
        connection.execute(insert(remote_bases), {"plan_id": plan.id, "base": "0" * 40})

    database.write(based)
    contents.keep(plan.id, {"a": b"1"})
    plans.delete(plans.move(plan, (Phase.ACTION, PlanState.CANCELLED), now=NOW), now=NOW)
    with pytest.raises(UnknownPlan):
        contents.keep(plan.id, {"a": b"1"})
    with database.read() as connection:
        assert [connection.execute(select(table)).first() for table in (kept, remote_bases)] == [None, None]


def test_forgets_only_contents_of_ended_plans(contents: SqlContents, plans: SqlPlanStore, plan: Plan) -> None:
    contents.keep(plan.id, {"a": b"1", "b": b"2"})
    assert contents.forget(plan.id) == 0
    plans.move(plan, (Phase.ACTION, PlanState.CANCELLED), now=NOW)
    assert (contents.forget(plan.id, dry_run=True), contents.trees()) == (2, [plan.id])
    assert (contents.forget(plan.id), contents.trees()) == (2, [])
