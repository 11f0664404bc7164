"""Projects and their members, through every client."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from cleveragents.access.model.user import Role
from cleveragents.api.client import Client
from cleveragents.api.views import as_json, every
from cleveragents.core.errors import (
    AlreadyThere,
    InvalidName,
    NotAllowed,
    StillUsed,
    UnknownProject,
    UnknownUser,
)
from tests.contracts.client.conftest import ClientOf
from tests.server_plan_bench import PlanServer

NOWHERE = ["nowhere", "a/b", "..", "", "Shop", "x" * 65, "shop?x=1"]
Change = Callable[[Client], object]


@pytest.fixture
def admin(client_of: ClientOf) -> Client:
    return client_of("admin")


@pytest.fixture
def paint(admin: Client) -> Iterator[str]:
    """A project whose only member is its creator."""
    yield admin.projects.add("paint", description="colours", max_parallel=4).name
    admin.projects.remove("paint")


def test_a_project_is_added_listed_and_removed(server: PlanServer, admin: Client) -> None:
    made = admin.projects.add("shop", description="the web shop", max_parallel=2)
    assert (made.name, made.description, made.max_parallel, made.resources) == ("shop", "the web shop", 2, 0)
    assert made in admin.projects.list().items
    assert as_json(made) in server.bench.admin.get("/api/projects").json()["items"]
    (creator,) = admin.projects.members("shop").items
    assert (creator.name, creator.role) == ("admin", Role.ADMIN)
    admin.projects.remove("shop")
    assert "shop" not in [project.name for project in admin.projects.list().items]


def test_projects_are_listed_by_name_in_pages_with_their_resources(admin: Client, paint: str) -> None:
    found = list(every(lambda after: admin.projects.list(limit=1, after=after)))
    names = [project.name for project in found]
    assert names == sorted(names)
    assert {"default", "team", paint} <= set(names)
    assert {project.name: project.resources for project in found}["team"] == 1


def test_a_user_sees_their_own_projects(client_of: ClientOf, paint: str) -> None:
    names = [project.name for project in client_of("viewer").projects.list().items]
    assert "team" in names
    assert paint not in names


def test_members_are_added_changed_and_removed(admin: Client, client_of: ClientOf, paint: str) -> None:
    for role in Role:
        assert admin.projects.set_member(paint, "viewer", role).role is role
    members = list(every(lambda after: admin.projects.members(paint, limit=1, after=after)))
    assert [(one.name, one.role) for one in members] == [("admin", Role.ADMIN), ("viewer", Role.ADMIN)]
    own = client_of("viewer").projects
    assert own.set_member(paint, "operator", Role.VIEWER).name == "operator"
    own.remove_member(paint, "operator")
    with pytest.raises(UnknownUser) as caught:
        own.remove_member(paint, "operator")
    assert caught.value.name == "operator"
    admin.projects.remove_member(paint, "viewer")


def test_a_project_that_is_used_and_the_default_one_stay(admin: Client) -> None:
    for name in ("team", "default"):
        with pytest.raises(StillUsed) as caught:
            admin.projects.remove(name)
        assert (caught.value.what, caught.value.name) == ("project", name)


@pytest.mark.parametrize("name", NOWHERE)
def test_a_project_that_does_not_exist_is_an_error_with_its_name(admin: Client, name: str) -> None:
    changes: list[Change] = [
        lambda client: client.projects.remove(name),
        lambda client: client.projects.members(name),
        lambda client: client.projects.set_member(name, "viewer", Role.VIEWER),
        lambda client: client.projects.remove_member(name, "viewer"),
    ]
    for change in changes:
        with pytest.raises(UnknownProject) as caught:
            change(admin)
        assert caught.value.name == name


@pytest.mark.parametrize("user", ["nobody", "a/b", "..", "", "Ada", "x" * 65])
def test_a_member_who_is_no_user_is_an_error_with_the_name(admin: Client, paint: str, user: str) -> None:
    with pytest.raises(UnknownUser) as caught:
        admin.projects.set_member(paint, user, Role.VIEWER)
    assert caught.value.name == user
    with pytest.raises(UnknownUser):
        admin.projects.remove_member(paint, user)


def test_an_invalid_entry_is_an_error_with_its_fields(admin: Client) -> None:
    with pytest.raises(AlreadyThere) as there:
        admin.projects.add("team")
    assert (there.value.what, there.value.name) == ("project", "team")
    with pytest.raises(InvalidName) as invalid:
        admin.projects.add("Not A Name")
    assert (invalid.value.what, invalid.value.name) == ("project", "Not A Name")


@pytest.mark.parametrize("name", ["viewer", "operator"])
def test_a_role_that_is_too_small_is_refused(client_of: ClientOf, name: str) -> None:
    projects = client_of(name).projects
    on_server: list[Callable[[], object]] = [lambda: projects.add("mine"), lambda: projects.remove("team")]
    for change in on_server:
        with pytest.raises(NotAllowed) as caught:
            change()
        assert (caught.value.name, caught.value.needed) == (name, "admin")
    in_project: list[Callable[[], object]] = [
        lambda: projects.set_member("team", name, Role.ADMIN),
        lambda: projects.remove_member("team", "viewer"),
    ]
    for change in in_project:
        with pytest.raises(NotAllowed) as caught:
            change()
        refused = (caught.value.name, caught.value.role, caught.value.needed)
        assert refused == (name, name, "admin in project team")


def test_a_foreign_project_is_as_one_that_does_not_exist(client_of: ClientOf, paint: str) -> None:
    projects = client_of("operator").projects
    changes: list[Callable[[], object]] = [
        lambda: projects.members(paint),
        lambda: projects.set_member(paint, "operator", Role.ADMIN),
        lambda: projects.remove_member(paint, "admin"),
    ]
    for change in changes:
        with pytest.raises(UnknownProject) as caught:
            change()
        assert caught.value.name == paint
