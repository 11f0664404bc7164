"""Projects as tenants on SQLite and on PostgreSQL: the upgrade, and the project of jobs and events in SQL."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from sqlalchemy import Connection, func, insert, select, text

from cleveragents.access.model.project import ResourceKind
from cleveragents.access.model.user import Role
from cleveragents.access.store.sql_project_store import (
    SqlMemberStore,
    SqlProjectStore,
    project_of_plan,
    projects_of_events,
)
from cleveragents.access.store.sql_user_store import SqlUserStore
from cleveragents.api.events import event_rows
from cleveragents.api.jobs import listed_jobs
from cleveragents.core.errors import UnknownProject, UnknownUser
from cleveragents.core.event import EventType
from cleveragents.core.identifiers import UlidSource
from cleveragents.storage import database as schema
from cleveragents.storage.database import Database, open_database
from cleveragents.storage.service_tables import deleted_plans, resources
from cleveragents.storage.tables import changesets, events, jobs, plans

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
BEFORE = "0008"
"""The last revision without members."""

OLD_PLANS: dict[str, tuple[str | None, str, str]] = {
    # id: (root, request, the project after the upgrade)
    "a-root": (None, json.dumps({"project": "shop"}), "shop"),
    "b-sub": ("a-root", json.dumps({}), "shop"),
    "c-by-hand": (None, json.dumps({}), "default"),
    "d-removed": (None, json.dumps({"project": "gone"}), "default"),
    "e-null": (None, json.dumps({"project": None}), "default"),
    "f-list": (None, json.dumps(["project", "shop"]), "default"),
    "g-broken": (None, "{", "default"),
    "h-sub": ("c-by-hand", json.dumps({"project": "shop"}), "default"),
}


def _as_before(connection: Connection) -> None:
    """What a server of the version before had."""
    for name, role in (("ada", "admin"), ("olga", "operator"), ("vic", "viewer")):
        row = {"id": f"id-{name}", "name": name, "role": role}
        connection.execute(text("INSERT INTO users VALUES (:id, :name, :role, 1)"), row)
    for project in ("shop", "wall"):
        connection.execute(text("INSERT INTO projects VALUES (:name, '', NULL, 1)"), {"name": project})
    for plan_id, (root, request, _) in OLD_PLANS.items():
        connection.execute(
            text(
                "INSERT INTO plans (id, goal, action, resource, phase, state, version, request, root_id,"
                " created_at, updated_at) VALUES (:id, 'goal', 'action', '/shop', 'execute', 'queued', 1,"
                " :request, :root, 1, 1)"
            ),
            {"id": plan_id, "request": request, "root": root},
        )


@pytest.fixture
def upgraded(database_url: str) -> str:
    """The URL of a database of the version before, with users, projects and plans."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "HEAD", BEFORE)
        with open_database(database_url) as database:
            database.write(_as_before)
            with database.read() as connection:
                found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    assert found == BEFORE
    return database_url


def test_users_keep_their_role_in_every_project_after_the_upgrade(upgraded: str) -> None:
    with open_database(upgraded) as database:
        users = {user.name: user for user in SqlUserStore(database, UlidSource()).list()}
        everywhere = ("default", "shop", "wall")
        for name, role in (("olga", Role.OPERATOR), ("vic", Role.VIEWER)):
            user = users[name]
            assert (user.role, user.projects) == (role, dict.fromkeys(everywhere, role))
            assert not user.is_server_admin
        ada = users["ada"]
        assert ada.is_server_admin
        assert all(ada.role_in(project) is Role.ADMIN for project in everywhere)
        listed = SqlMemberStore(database, UlidSource()).list("wall")
        assert [(one.name, one.role) for one in listed] == [("olga", Role.OPERATOR), ("vic", Role.VIEWER)]


def test_plans_join_the_project_of_their_root_or_default_after_the_upgrade(upgraded: str) -> None:
    with open_database(upgraded) as database, database.read() as connection:
        found = {row.id: row.project for row in connection.execute(select(plans.c.id, plans.c.project))}
    assert found == {plan_id: project for plan_id, (_, _, project) in OLD_PLANS.items()}


def test_a_large_database_is_upgraded_whole(upgraded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are read in pages: one on the edge of a page is not forgotten."""
    with monkeypatch.context() as patch:
        patch.setattr(schema, "HEAD", BEFORE)
        with open_database(upgraded) as database:
            columns = "id, goal, action, resource, phase, state, version, request, created_at, updated_at"
            row = "'goal', 'action', '/shop', 'apply', 'applied', 1, :request, 1, 1"
            query = text(f"INSERT INTO plans ({columns}) VALUES (:id, {row})")
            many = [{"id": f"p{n:05}", "request": '{"project": "wall"}'} for n in range(2500)]
            database.write(lambda connection: connection.execute(query, many))
    with open_database(upgraded) as database:
        counted = select(func.count()).where(plans.c.project == "wall")
        with database.read() as connection:
            assert connection.execute(counted).scalar() == 2500


def test_a_default_project_that_exists_is_kept(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row = text("INSERT INTO projects VALUES ('default', 'ours', 3, 1)")
    with monkeypatch.context() as patch:
        patch.setattr(schema, "HEAD", BEFORE)
        with open_database(database_url) as database:
            database.write(lambda connection: connection.execute(row))
    with open_database(database_url) as database, database.read() as connection:
        found = connection.execute(text("SELECT name, description, max_parallel FROM projects")).all()
    assert [tuple(one) for one in found] == [("default", "ours", 3)]


# ── The project of jobs and events ────────────────────────────────────────────────────────────────

JOBS = {
    "j1": ("plan:p-shop", "shop"),
    "j2": ("apply:p-wall", "wall"),
    "j3": ("undo:p-deleted", "shop"),
    "j4": ("plan:unknown", None),
    "j5": ("demo", None),
    "j6": ("replan:p-shop", None),
}
EVENTS: list[tuple[str, str, str | None]] = [
    (EventType.PLAN_CREATED.value, "p-shop", "shop"),
    (EventType.PLAN_DELETED.value, "p-deleted", "shop"),
    (EventType.JOB_CLAIMED.value, "j2", "wall"),
    (EventType.JOB_CLAIMED.value, "j5", None),
    (EventType.PROJECT_ADDED.value, "wall", "wall"),
    (EventType.MEMBER_SET.value, "shop", "shop"),
    (EventType.RESOURCE_ADDED.value, "shop-main", "shop"),
    (EventType.USER_ADDED.value, "shop", None),
    (EventType.CHANGESET_STARTED.value, "c-wall", "wall"),
    ("kind.of.tomorrow", "something", None),
]


@pytest.fixture
def filled(database: Database) -> Database:
    def unit(connection: Connection) -> None:
        for plan_id, project in (("p-shop", "shop"), ("p-wall", "wall")):
            connection.execute(
                insert(plans).values(
                    id=plan_id,
                    goal="",
                    action="",
                    resource="/",
                    phase="execute",
                    state="queued",
                    version=1,
                    request="{}",
                    project=project,
                    created_at=1,
                    updated_at=1,
                )
            )
        connection.execute(insert(deleted_plans).values(id="p-deleted", project="shop"))
        connection.execute(
            insert(resources).values(
                name="shop-main", project="shop", kind="directory", location="/", created_at=1
            )
        )
        connection.execute(insert(changesets).values(id="c-wall", plan_id="p-wall", closed=False))
        for job_id, (kind, _) in JOBS.items():
            connection.execute(
                insert(jobs).values(
                    id=job_id,
                    kind=kind,
                    payload="{}",
                    state="queued",
                    priority=0,
                    attempt=0,
                    max_attempts=1,
                    fence=0,
                    beat=0,
                    created_at=1,
                    updated_at=1,
                    not_before=0,
                )
            )
        for position, (kind, subject, _) in enumerate(EVENTS, 1):
            connection.execute(
                insert(events).values(
                    position=position,
                    event_id=f"e{position}",
                    event_type=kind,
                    subject=subject,
                    occurred_at=NOW.isoformat(),
                    payload="{}",
                    previous_hash="",
                    hash="",
                )
            )

    database.write(unit)
    return database


SCOPES = [
    frozenset({"shop"}),
    frozenset({"wall"}),
    frozenset({"shop", "wall"}),
    frozenset({"gone"}),
    frozenset(),
]


@pytest.mark.parametrize("scope", SCOPES)
def test_jobs_are_listed_by_the_project_of_their_plan(filled: Database, scope: frozenset[str]) -> None:
    expected = [job_id for job_id, (_, project) in JOBS.items() if project in scope]
    assert [job.id for job in listed_jobs(filled, limit=100, scope=scope)] == expected
    newest = listed_jobs(filled, limit=100, scope=scope, newest_first=True)
    assert [job.id for job in newest] == expected[::-1]


@pytest.mark.parametrize("scope", SCOPES)
def test_events_are_listed_by_the_project_of_their_subject(filled: Database, scope: frozenset[str]) -> None:
    expected = [position for position, (_, _, project) in enumerate(EVENTS, 1) if project in scope]
    for after in (0, None):
        found = event_rows(filled, after=after, limit=100, scope=scope)
        assert [row.position for row in found] == expected


def test_server_admins_see_every_job_and_event(filled: Database) -> None:
    assert len(listed_jobs(filled, limit=100)) == len(JOBS)
    assert len(event_rows(filled, after=0, limit=100)) == len(EVENTS)


def test_the_project_of_each_event_of_a_stream_is_known(filled: Database) -> None:
    found = projects_of_events(filled, 1, len(EVENTS))
    assert found == {position: project for position, (_, _, project) in enumerate(EVENTS, 1)}
    assert set(projects_of_events(filled, 3, 5)) == {3, 4, 5}


def test_a_deleted_plan_keeps_its_project(filled: Database) -> None:
    found = [project_of_plan(filled, one) for one in ("p-shop", "p-deleted", "unknown")]
    assert found == ["shop", "shop", None]


def test_no_member_is_added_to_a_project_that_does_not_exist(database: Database) -> None:
    users, members = SqlUserStore(database, UlidSource()), SqlMemberStore(database, UlidSource())
    users.add("ada", Role.ADMIN, now=NOW)
    users.add("olga", Role.OPERATOR, now=NOW)
    with pytest.raises(UnknownProject):
        members.set("gone", "olga", Role.VIEWER, now=NOW)
    with pytest.raises(UnknownProject):
        members.list("gone")
    with pytest.raises(UnknownUser):
        members.set("default", "nobody", Role.VIEWER, now=NOW)
    assert [user.projects for user in users.list() if user.name == "olga"] == [{"default": Role.OPERATOR}]


# ── Names that are used again ─────────────────────────────────────────────────────────────────────

AGAIN: list[tuple[str, str, str | None]] = [
    # What happened to a project and a resource, and then to others of the same name.
    (EventType.PROJECT_ADDED.value, "twice", None),
    (EventType.MEMBER_SET.value, "twice", None),
    (EventType.RESOURCE_ADDED.value, "twice-main", None),
    (EventType.PLAN_DELETED.value, "p-old", None),
    (EventType.JOB_CLAIMED.value, "j-old", None),
    (EventType.RESOURCE_REMOVED.value, "twice-main", None),
    (EventType.MEMBER_REMOVED.value, "twice", None),
    (EventType.PROJECT_REMOVED.value, "twice", None),
    (EventType.PROJECT_ADDED.value, "twice", "twice"),
    (EventType.MEMBER_SET.value, "twice", "twice"),
    (EventType.RESOURCE_ADDED.value, "twice-main", "twice"),
    (EventType.PLAN_CREATED.value, "p-shop", "shop"),
]


def test_a_project_with_the_name_of_a_removed_one_shows_nothing_of_that(filled: Database) -> None:
    last = len(EVENTS)
    kept = {"occurred_at": NOW.isoformat(), "payload": "{}", "previous_hash": "", "hash": ""}
    rows = [
        {"position": last + number, "event_id": f"again{number}", "event_type": kind, "subject": name, **kept}
        for number, (kind, name, _) in enumerate(AGAIN, 1)
    ]
    job = {"id": "j-old", "kind": "plan:p-old", "payload": "{}", "state": "queued", "priority": 0}
    job |= dict.fromkeys(("attempt", "fence", "beat", "not_before"), 0)
    job |= dict.fromkeys(("max_attempts", "created_at", "updated_at"), 1)

    def unit(connection: Connection) -> None:
        connection.execute(insert(events), rows)
        connection.execute(insert(deleted_plans).values(id="p-old", project="twice"))
        connection.execute(insert(jobs).values(**job))

    filled.write(unit)
    projects = SqlProjectStore(filled, UlidSource(), "home")
    projects.add("twice", now=NOW)
    projects.add_resource("twice-main", "twice", ResourceKind.DIRECTORY, "/", now=NOW)
    found = projects_of_events(filled, last + 1, last + len(AGAIN))
    assert [found[last + number] for number in range(1, len(AGAIN) + 1)] == [one[2] for one in AGAIN]
    listed = event_rows(filled, after=last, limit=100, scope=frozenset({"twice"}))
    assert [row.position - last for row in listed] == [9, 10, 11]
    assert listed_jobs(filled, limit=100, scope=frozenset({"twice"})) == []
    assert project_of_plan(filled, "p-old") is None
    assert project_of_plan(filled, "p-deleted") == "shop", "other projects keep theirs"
