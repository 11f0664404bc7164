"""The contract of `SqlProjectStore`, on both databases."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select

from cleveragents.access.model.project import DEFAULT_PROJECT, Project, Resource, ResourceKind
from cleveragents.access.store.sql_project_store import SqlProjectStore
from cleveragents.core.errors import (
    AlreadyThere,
    InvalidName,
    InvalidPayload,
    InvalidResource,
    StillUsed,
    UnknownProject,
    UnknownResource,
)
from cleveragents.core.identifiers import UlidSource
from cleveragents.storage.database import Database
from cleveragents.storage.tables import outbox
from tests.races.hammer import hammer

NOW = datetime(2026, 11, 15, 12, 0, 0, 123456, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
HOME = "01J0000000000000000000HOME"
DIRECTORY, REMOTE = ResourceKind.DIRECTORY, ResourceKind.REMOTE


@pytest.fixture
def store(database: Database) -> SqlProjectStore:
    return SqlProjectStore(database, UlidSource(), HOME)


def told(database: Database) -> list[tuple[str, str]]:
    """Type and subject of every event, in order."""
    query = select(outbox.c.event_type, outbox.c.subject).order_by(outbox.c.number)
    with database.read() as connection:
        return [(kind, subject) for kind, subject in connection.execute(query)]


def test_an_added_project_is_read_back_and_has_one_event(store: SqlProjectStore, database: Database) -> None:
    shop = store.add("shop", "Käse & Brot", max_parallel=4, now=NOW)
    attic = store.add("attic", now=LATER)
    main = store.add_resource("shop-main", "shop", DIRECTORY, "/srv/shop", now=NOW)
    far = store.add_resource("far", "shop", REMOTE, "https://git.example/shop", branch="main", now=LATER)
    assert shop == Project("shop", "Käse & Brot", NOW, 4)
    assert main == Resource("shop-main", "shop", DIRECTORY, "/srv/shop", NOW, None, HOME)
    assert far == Resource("far", "shop", REMOTE, "https://git.example/shop", LATER, "main", None)
    assert store.get("shop") == shop
    assert store.list() == [attic, store.get(DEFAULT_PROJECT), shop]
    assert store.resource("shop-main") == main
    assert store.resources() == store.resources("shop") == [far, main]
    assert store.resources("attic") == store.resources("no\0project") == []
    assert told(database) == [
        ("project.added", "shop"),
        ("project.added", "attic"),
        ("resource.added", "shop-main"),
        ("resource.added", "far"),
    ]


def test_a_name_is_given_once_and_the_first_stays(store: SqlProjectStore, database: Database) -> None:
    shop = store.add("shop", "the first", now=NOW)
    main = store.add_resource("main", "shop", DIRECTORY, "/srv/shop", now=NOW)
    before = told(database)
    with pytest.raises(AlreadyThere, match="project 'shop'"):
        store.add("shop", "the second", now=LATER)
    with pytest.raises(AlreadyThere, match="resource 'main'"):
        store.add_resource("main", "shop", DIRECTORY, "/srv/other", now=LATER)
    assert (store.get("shop"), store.resource("main")) == (shop, main)
    assert told(database) == before


def test_an_unknown_name_is_reported_whatever_it_is(store: SqlProjectStore) -> None:
    store.add("shop", now=NOW)
    for name in ("none", "", "no\0name", "\udcff", "x" * 5000):
        with pytest.raises(UnknownProject):
            store.get(name)
        with pytest.raises(UnknownProject):
            store.remove(name, now=NOW)
        with pytest.raises(UnknownProject):
            store.add_resource("main", name, DIRECTORY, "/srv/shop", now=NOW)
        with pytest.raises(UnknownResource):
            store.resource(name)
        with pytest.raises(UnknownResource):
            store.remove_resource(name, now=NOW)
    assert store.resources() == []


@pytest.mark.parametrize("name", ["", "Shop", "-shop", "sh op", "shop/main", "a" * 65, "sh\0op", "../x"])
def test_a_name_that_cannot_be_one_is_refused(store: SqlProjectStore, name: str) -> None:
    with pytest.raises(InvalidName):
        store.add(name, now=NOW)
    store.add("shop", now=NOW)
    with pytest.raises(InvalidName):
        store.add_resource(name, "shop", DIRECTORY, "/srv/shop", now=NOW)
    assert store.resources() == []


@pytest.mark.parametrize(
    ("kind", "location", "branch"),
    [
        (DIRECTORY, "srv/shop", None),
        (DIRECTORY, "/srv/shop", "main"),
        (DIRECTORY, "/srv/sh\0op", None),
        (DIRECTORY, "/srv/\udcff", None),
        (DIRECTORY, "/" + "x" * 5000, None),
        (REMOTE, "https://git.example/shop", None),
        (REMOTE, "https://git.example/shop", "--upload-pack=x"),
        (REMOTE, "https://git.example/shop", "a..b"),
        (REMOTE, "/srv/shop", "main"),
        (REMOTE, "ext::sh -c x", "main"),
        (REMOTE, "https://[git.example/shop", "main"),
        (REMOTE, "-oProxyCommand=x", "main"),
        (REMOTE, "https://me:hunter2-hunter2@git.example/shop", "main"),
        (REMOTE, "https://hunter2-hunter2@git.example/shop", "main"),
        (REMOTE, "ssh://me:hunter2-hunter2@git.example/shop", "main"),
    ],
)
def test_where_no_plan_could_or_should_go_is_refused(
    store: SqlProjectStore, database: Database, kind: ResourceKind, location: str, branch: str | None
) -> None:
    store.add("shop", now=NOW)
    with pytest.raises((InvalidName, InvalidPayload, InvalidResource)) as refused:
        store.add_resource("main", "shop", kind, location, branch=branch, now=NOW)
    assert "hunter2" not in str(refused.value)
    assert store.resources() == []
    assert len(told(database)) == 1


@pytest.mark.parametrize(
    "location",
    [
        "ssh://git@git.example/shop.git",
        "git@git.example:team/shop.git",
        "file:///srv/shop.git",
        "https://git.example:8443/shop",
    ],
)
def test_an_address_without_a_secret_is_taken(store: SqlProjectStore, location: str) -> None:
    store.add("shop", now=NOW)
    store.add_resource("main", "shop", REMOTE, location, branch="release/1.x", now=NOW)
    assert store.resource("main").location == location


@pytest.mark.parametrize("at_once", [0, -1, 10_001, 2**40])
def test_a_project_runs_at_least_one_job_at_once_and_no_absurd_number(
    store: SqlProjectStore, at_once: int
) -> None:
    with pytest.raises(InvalidResource, match="1 to 10000"):
        store.add("shop", max_parallel=at_once, now=NOW)
    assert [one.name for one in store.list()] == [DEFAULT_PROJECT]


@pytest.mark.parametrize("description", ["x" * 2001, "a\0b", "\udcff"])
def test_a_description_that_cannot_be_kept_is_refused(store: SqlProjectStore, description: str) -> None:
    with pytest.raises((InvalidPayload, InvalidResource)):
        store.add("shop", description, now=NOW)
    assert [one.name for one in store.list()] == [DEFAULT_PROJECT]


def test_a_project_goes_after_its_resources_and_its_name_is_free_again(
    store: SqlProjectStore, database: Database
) -> None:
    store.add("shop", "old", now=NOW)
    store.add_resource("main", "shop", DIRECTORY, "/srv/shop", now=NOW)
    store.add_resource("also", "shop", DIRECTORY, "/srv/also", now=NOW)
    with pytest.raises(StillUsed, match="also, main"):
        store.remove("shop", now=LATER)
    store.remove_resource("main", now=LATER)
    store.remove_resource("also", now=LATER)
    store.remove("shop", now=LATER)
    assert ([one.name for one in store.list()], store.resources()) == ([DEFAULT_PROJECT], [])
    assert store.add("shop", "new", now=LATER).description == "new"
    assert [kind for kind, _ in told(database)[3:]] == [
        "resource.removed",
        "resource.removed",
        "project.removed",
        "project.added",
    ]


def test_no_resource_is_left_without_its_project_and_no_name_is_given_twice(
    store: SqlProjectStore, database: Database
) -> None:
    """Some add resources while others remove the project: one of them gets an error."""
    for turn in range(5):
        store.add("shop", now=NOW)
        added: list[int] = []
        removed: list[int] = []

        def work(number: int, added: list[int] = added, removed: list[int] = removed) -> None:
            if number % 2:
                with suppress(UnknownProject, AlreadyThere):
                    store.add_resource("main", "shop", DIRECTORY, f"/srv/{number}", now=NOW)
                    added.append(number)
            else:
                with suppress(UnknownProject, StillUsed):
                    store.remove("shop", now=NOW)
                    removed.append(number)

        hammer(work)
        assert len(added) + len(removed) == 1, f"turn {turn}: {added} {removed}"
        if added:
            assert store.resource("main").location == f"/srv/{added[0]}"
            store.remove_resource("main", now=NOW)
            store.remove("shop", now=NOW)
        assert store.resources() == []
        assert [one.name for one in store.list()] == [DEFAULT_PROJECT]


def test_events_do_not_say_where_a_resource_is(store: SqlProjectStore, database: Database) -> None:
    store.add("shop", now=NOW)
    store.add_resource("main", "shop", DIRECTORY, "/srv/private-place", now=NOW)
    with database.read() as connection:
        rows = connection.execute(select(outbox)).all()
    assert len(rows) == 2
    assert "private-place" not in repr(rows)
