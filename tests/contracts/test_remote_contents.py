"""Contents of changed files in the database, on SQLite and PostgreSQL."""

from __future__ import annotations

import pytest

from cleveragents.domain.change import ChangeEntry, ChangeKind
from cleveragents.domain.file_state import GITLINK, REGULAR
from cleveragents.infrastructure.identifiers import UlidSource
from cleveragents.infrastructure.persistence.database import Database
from cleveragents.infrastructure.persistence.sql_changeset_store import SqlChangesetStore
from cleveragents.infrastructure.remote.contents import KeepingChangesets, SqlContents


class Store:
    """A sandbox, as far as contents are concerned."""

    def __init__(self, **found: bytes) -> None:
        self.found = found
        self.asked: list[str] = []

    def content(self, name: str) -> bytes:
        self.asked.append(name)
        return self.found[name]


@pytest.fixture
def contents(database: Database) -> SqlContents:
    return SqlContents(database)


def entry(path: str, after: str | None, mode: int = REGULAR) -> ChangeEntry:
    kind = ChangeKind.DELETE if after is None else ChangeKind.CREATE
    before = "before" if after is None else None
    return ChangeEntry(kind, path, before_hash=before, after_hash=after, mode=None if after is None else mode)


def test_what_is_kept_is_read_again_byte_by_byte(contents: SqlContents) -> None:
    found = {"a": b"", "b": bytes(range(256)) * 1000}
    contents.keep(found)
    contents.keep({})
    assert contents.read(["a", "b", "c"]) == found
    assert contents.lacking(["a", "b", "c"]) == {"c"}


def test_what_is_kept_already_stays(contents: SqlContents) -> None:
    contents.keep({"a": b"first"})
    contents.keep({"a": b"second", "b": b"new"})
    assert contents.read(["a", "b"]) == {"a": b"first", "b": b"new"}


def test_many_names_are_asked_for_in_portions(contents: SqlContents) -> None:
    found = {f"{number:03}": str(number).encode() for number in range(250)}
    contents.keep(found)
    assert contents.read(list(found)) == found
    assert contents.lacking([*found, "none"]) == {"none"}


def test_contents_are_there_before_the_record_that_names_them(
    database: Database, contents: SqlContents
) -> None:
    inner, store = SqlChangesetStore(database, UlidSource()), Store(a=b"1", b=b"2")
    keeping = KeepingChangesets(inner, contents, lambda changeset_id: store)
    changeset = keeping.start("plan-1")
    keeping.record(changeset, entry("x", "a"), key="one")
    keeping.record_all(changeset, [entry("y", "b"), entry("z", None), entry("module", "commit", GITLINK)])
    assert contents.read(["a", "b"]) == {"a": b"1", "b": b"2"}
    assert store.asked == ["a", "b"]
    keeping.record(changeset, entry("again", "a"))
    assert store.asked == ["a", "b"]
    assert [change.entry.path for change in keeping.entries(changeset)] == ["x", "y", "z", "module", "again"]
    assert keeping.close(changeset) == keeping.get(changeset) == keeping.of_plan("plan-1")[0]


def test_what_cannot_be_kept_is_not_recorded(database: Database, contents: SqlContents) -> None:
    inner = SqlChangesetStore(database, UlidSource())
    keeping = KeepingChangesets(inner, contents, lambda changeset_id: Store())
    changeset = keeping.start("plan-1")
    with pytest.raises(KeyError):
        keeping.record_all(changeset, [entry("x", "a")])
    assert keeping.entries(changeset) == []


def test_contents_of_a_plan_on_a_directory_stay_there(database: Database, contents: SqlContents) -> None:
    inner = SqlChangesetStore(database, UlidSource())
    keeping = KeepingChangesets(inner, contents, lambda changeset_id: None)
    changeset = keeping.start("plan-1")
    keeping.record(changeset, entry("x", "a"))
    assert contents.lacking(["a"]) == {"a"}
