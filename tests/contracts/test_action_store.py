"""The contract of action stores, and the library over them, on SQLite and PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleveragents.access.trust.sql_trust_store import SqlTrustStore
from cleveragents.core.errors import (
    ActionExists,
    ConfigurationError,
    InvalidAction,
    InvalidPayload,
    NotTrusted,
    UnknownAction,
)
from cleveragents.core.identifiers import UlidSource
from cleveragents.plans.actions.library import ActionLibrary, SqlActionStore
from cleveragents.plans.ports.plans import ActionOrigin
from cleveragents.storage.database import Database
from tests.races.hammer import hammer


def yaml(name: str, description: str = "") -> str:
    return f"name: {name}\ndescription: '{description}'\nexecute: {{steps: [{{tool: command}}]}}\n"


@pytest.fixture
def store(database: Database) -> SqlActionStore:
    return SqlActionStore(database)


@pytest.fixture
def trust(database: Database) -> SqlTrustStore:
    return SqlTrustStore(database, UlidSource())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    (root / ".cleveragents" / "actions").mkdir(parents=True)
    return root


@pytest.fixture
def library(database: Database, root: Path, trust: SqlTrustStore) -> ActionLibrary:
    return ActionLibrary(database, root, trust, tools=["command"])


def bring(root: Path, file: str, text: str) -> None:
    (root / ".cleveragents" / "actions" / file).write_text(text)


def test_a_stored_action_is_found_by_name_and_listed(store: SqlActionStore) -> None:
    store.put("b/b", "text ü")
    store.put("a/a", "other")
    kept = store.get("b/b")
    assert kept is not None
    assert (kept.name, kept.document) == ("b/b", "text ü")
    assert [action.name for action in store.list()] == ["a/a", "b/b"]
    assert store.get("c/c") is None
    assert store.get("not text \udcff") is None


def test_refuses_a_second_action_of_a_name_without_replace(store: SqlActionStore) -> None:
    store.put("a/a", "first")
    with pytest.raises(ActionExists):
        store.put("a/a", "second")
    assert [action.document for action in store.list()] == ["first"]
    store.put("a/a", "second", replace=True)
    store.put("b/b", "new", replace=True)
    assert [action.document for action in store.list()] == ["second", "new"]


def test_delete_returns_whether_the_action_existed(store: SqlActionStore) -> None:
    store.put("a/a", "text")
    store.put("b/b", "text")
    assert store.delete("a/a")
    assert not store.delete("a/a")
    assert not store.delete("\0")
    assert [action.name for action in store.list()] == ["b/b"]


def test_refuses_text_that_no_database_stores(store: SqlActionStore) -> None:
    with pytest.raises(InvalidPayload):
        store.put("a/a", "nul \0")


def test_stores_exactly_one_of_many_concurrent_puts(store: SqlActionStore) -> None:
    kept: list[str] = []

    def put(number: int) -> None:
        try:
            store.put("a/a", f"text {number}")
        except ActionExists:
            return
        kept.append(f"text {number}")

    hammer(put)
    assert [action.document for action in store.list()] == kept
    assert len(kept) == 1


def test_the_library_has_built_in_and_user_actions(library: ActionLibrary) -> None:
    made = library.create(yaml("team/format", "mine"), "file.yaml")
    assert library.get("team/format") == made
    assert library.get("builtin/command").name == "builtin/command"
    assert [(row.name, row.origin, row.trusted) for row in library.list()] == [
        ("builtin/command", ActionOrigin.BUILTIN, True),
        ("builtin/goal", ActionOrigin.BUILTIN, True),
        ("builtin/goals", ActionOrigin.BUILTIN, True),
        ("builtin/replace", ActionOrigin.BUILTIN, True),
        ("team/format", ActionOrigin.USER, True),
    ]


def test_create_checks_first_and_replaces_only_on_request(library: ActionLibrary) -> None:
    library.create(yaml("team/format", "one"), "file.yaml")
    with pytest.raises(ActionExists):
        library.create(yaml("team/format", "two"), "file.yaml")
    with pytest.raises(InvalidAction, match="unknown tool 'comand'; did you mean 'command'"):
        library.create(yaml("team/format").replace("command", "comand"), "file.yaml", replace=True)
    assert library.get("team/format").description == "one"
    library.create(yaml("team/format", "two"), "file.yaml", replace=True)
    assert library.get("team/format").description == "two"


def test_refuses_the_built_in_namespace(library: ActionLibrary, root: Path) -> None:
    with pytest.raises(InvalidAction, match="the namespace 'builtin' is reserved"):
        library.create(yaml("builtin/command"), "file.yaml", replace=True)
    bring(root, "x.yaml", yaml("builtin/extra"))
    assert "the namespace 'builtin'" in str(library.list()[-1].problem)


def test_an_unknown_action_names_the_closest(library: ActionLibrary) -> None:
    with pytest.raises(UnknownAction) as unknown:
        library.get("builtin/comand")
    assert unknown.value.nearest == "builtin/command"
    with pytest.raises(UnknownAction) as unknown:
        library.get("zzz")
    assert unknown.value.nearest is None


def test_deletes_only_actions_of_the_user(library: ActionLibrary, root: Path) -> None:
    library.create(yaml("team/format"), "file.yaml")
    library.delete("team/format")
    with pytest.raises(UnknownAction):
        library.delete("team/format")
    with pytest.raises(ConfigurationError, match="is built in and cannot be deleted"):
        library.delete("builtin/command")
    bring(root, "x.yaml", yaml("team/lint"))
    with pytest.raises(ConfigurationError, match=r"is part of the repository; delete .*x\.yaml"):
        library.delete("team/lint")


def test_returns_a_repository_action_only_if_it_is_trusted(
    library: ActionLibrary, root: Path, trust: SqlTrustStore
) -> None:
    bring(root, "x.yaml", yaml("team/lint", "first"))
    assert [(row.name, row.trusted) for row in library.list()][-1] == ("team/lint", False)
    with pytest.raises(NotTrusted, match="is not trusted"):
        library.get("team/lint")
    trust.give(root, trust.survey(root).files)
    assert library.get("team/lint").description == "first"
    assert library.list()[-1].trusted
    bring(root, "x.yaml", yaml("team/lint", "changed"))
    with pytest.raises(NotTrusted):
        library.get("team/lint")


def test_a_repository_cannot_replace_a_user_action(
    library: ActionLibrary, root: Path, trust: SqlTrustStore
) -> None:
    library.create(yaml("team/format", "mine"), "file.yaml")
    bring(root, "x.yaml", yaml("team/format", "theirs"))
    bring(root, "y.yaml", yaml("team/lint", "first"))
    bring(root, "z.yaml", yaml("team/lint", "second"))
    trust.give(root, trust.survey(root).files)
    assert library.get("team/format").description == "mine"
    assert library.get("team/lint").description == "first"
    problems = [(row.source, row.problem) for row in library.list() if row.problem]
    assert problems == [
        (".cleveragents/actions/x.yaml", "hidden by another action named team/format"),
        (".cleveragents/actions/z.yaml", "hidden by another action named team/lint"),
    ]


def test_lists_broken_actions_with_their_problems(
    library: ActionLibrary, root: Path, trust: SqlTrustStore, store: SqlActionStore, tmp_path: Path
) -> None:
    (tmp_path / "outside.yaml").write_text(yaml("team/outside"))
    store.put("old/one", "nme: old/one")
    bring(root, "bad.yaml", "name: team/bad\n")
    bring(root, "ignored.txt", "x")
    (root / ".cleveragents" / "actions" / "dangling.yaml").symlink_to("nowhere.yaml")
    (root / ".cleveragents" / "actions" / "out.yaml").symlink_to(tmp_path / "outside.yaml")
    trust.give(root, trust.survey(root).files)
    rows = {row.name: (row.trusted, row.problem) for row in library.list() if row.problem}
    assert list(rows) == ["old/one", "bad", "dangling", "out"]
    assert "line 1: 'execute' is missing" in str(rows["bad"][1])
    assert rows["dangling"] == (False, "the file no longer exists")
    assert rows["out"][0] is False
    assert "leads out of the repository" in str(rows["out"][1])
    with pytest.raises(InvalidAction, match="'execute' is missing"):
        library.get("bad")
    with pytest.raises(InvalidAction, match="did you mean 'name'"):
        library.get("old/one")
    with pytest.raises(UnknownAction):
        library.get("team/outside")


def test_outside_a_repository_the_other_actions_exist(database: Database, trust: SqlTrustStore) -> None:
    assert len(ActionLibrary(database, None, trust).list()) == 4


def test_trust_is_granted_listed_and_revoked(root: Path, trust: SqlTrustStore) -> None:
    bring(root, "x.yaml", yaml("team/lint"))
    files = trust.survey(root).files
    fresh: list[str] = []
    hammer(lambda number: fresh.extend(trust.give(root, files)))
    assert fresh == [".cleveragents/actions/x.yaml"]
    assert [given.digest for given in trust.list()] == [files[0].digest]
    assert trust.revoke(root) == [f"{root}/.cleveragents/actions/x.yaml"]
    assert trust.list() == []
