"""Resources, through every client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cleveragents.access.model.project import ResourceKind
from cleveragents.api.client import Client
from cleveragents.api.views import as_json, every
from cleveragents.core.errors import (
    AlreadyThere,
    CleverAgentsError,
    InvalidName,
    InvalidResource,
    NotAllowed,
    SandboxRefused,
    UnknownProject,
    UnknownResource,
)
from tests.contracts.client.conftest import ClientOf
from tests.remotes import new_remote
from tests.server_plan_bench import PlanServer


@pytest.fixture
def admin(client_of: ClientOf) -> Client:
    return client_of("admin")


@pytest.fixture
def foreign(admin: Client) -> Iterator[str]:
    """A resource of a project whose only member is its creator."""
    admin.projects.add("away")
    yield admin.resources.add("away-main", "away", remote="file:///nowhere/away.git", check=False).name
    admin.resources.remove("away-main")
    admin.projects.remove("away")


def test_a_directory_is_added_listed_and_removed(server: PlanServer, admin: Client) -> None:
    below = server.repository / ".git" / ".."
    made = admin.resources.add("copy", "team", path=str(below))
    shown = (made.name, made.project, made.kind, made.branch, made.warning)
    assert shown == ("copy", "team", ResourceKind.DIRECTORY, None, None)
    assert Path(made.location) == server.repository
    (listed,) = [one for one in admin.resources.list(project="team").items if one.name == "copy"]
    assert as_json(made) == {**as_json(listed), "warning": None}
    assert as_json(listed) in server.get("/resources")["items"]
    admin.resources.remove("copy")
    with pytest.raises(UnknownResource) as caught:
        admin.resources.remove("copy")
    assert caught.value.name == "copy"


def test_a_remote_is_asked_for_its_branch(admin: Client, tmp_path: Path) -> None:
    remote = new_remote(tmp_path, {"README.md": "colour\n"})
    url, branch = remote.address.url, remote.address.branch
    made = admin.resources.add("far", "team", remote=url, branch=branch)
    assert (made.kind, made.location, made.branch, made.warning) == (ResourceKind.REMOTE, url, branch, None)
    admin.resources.remove("far")
    with pytest.raises(InvalidResource) as caught:
        admin.resources.add("far", "team", remote=url, branch="no-such-branch")
    assert (caught.value.what, caught.value.name) == ("remote", url)
    unasked = admin.resources.add("far", "team", remote=url, branch="no-such-branch", check=False)
    assert unasked.branch == "no-such-branch"
    admin.resources.remove("far")


def test_a_remote_that_does_not_answer_is_added_with_a_warning(admin: Client) -> None:
    made = admin.resources.add("lost", "team", remote="file:///nowhere/lost.git")
    assert made.branch == "main"
    assert made.warning is not None
    assert "cannot reach file:///nowhere/lost.git" in made.warning
    admin.resources.remove("lost")


def test_resources_are_listed_by_name_in_pages(admin: Client, foreign: str) -> None:
    found = [one.name for one in every(lambda after: admin.resources.list(limit=1, after=after))]
    assert found == sorted(found)
    assert {"shop", foreign} <= set(found)
    assert [one.name for one in admin.resources.list(project="away").items] == [foreign]


@pytest.mark.parametrize("name", ["nothing", "a/b", "..", "", "Shop", "x" * 65])
def test_a_name_that_does_not_exist_is_an_error_with_it(admin: Client, name: str) -> None:
    with pytest.raises(UnknownResource) as lost:
        admin.resources.remove(name)
    assert lost.value.name == name
    with pytest.raises(UnknownProject) as caught:
        admin.resources.list(project=name)
    assert caught.value.name == name
    with pytest.raises(UnknownProject) as caught:
        admin.resources.add("new", name, remote="file:///nowhere/x.git", check=False)
    assert caught.value.name == name


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, InvalidResource),
        ({"path": "/", "remote": "file:///nowhere/x.git"}, InvalidResource),
        ({"path": "relative"}, InvalidResource),
        ({"path": "/", "branch": "main"}, InvalidResource),
        ({"path": "/no/such/directory"}, SandboxRefused),
        ({"remote": "ext::sh -c true"}, InvalidName),
        ({"remote": "file:///nowhere/x.git", "branch": "-x"}, InvalidName),
    ],
)
def test_an_invalid_resource_is_an_error(
    admin: Client, options: dict[str, str], error: type[CleverAgentsError]
) -> None:
    with pytest.raises(error):
        admin.resources.add(
            "new",
            "team",
            path=options.get("path"),
            remote=options.get("remote"),
            branch=options.get("branch"),
        )
    assert "new" not in [one.name for one in admin.resources.list().items]


def test_a_file_is_no_directory(admin: Client, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SandboxRefused) as caught:
        admin.resources.add("new", "team", path=str(tmp_path / "file"))
    assert caught.value.reason == "not a directory"


def test_a_name_that_cannot_be_one_or_is_taken_is_refused(server: PlanServer, admin: Client) -> None:
    with pytest.raises(InvalidName) as invalid:
        admin.resources.add("Not A Name", "team", path=str(server.repository))
    assert (invalid.value.what, invalid.value.name) == ("resource", "Not A Name")
    for place in ({"path": str(server.repository)}, {"remote": "file:///nowhere/x.git"}):
        with pytest.raises(AlreadyThere) as there:
            admin.resources.add("shop", "team", path=place.get("path"), remote=place.get("remote"))
        assert (there.value.what, there.value.name) == ("resource", "shop")


def test_a_role_that_is_too_small_is_refused(server: PlanServer, client_of: ClientOf) -> None:
    resources = client_of("operator").resources
    with pytest.raises(NotAllowed) as caught:
        resources.add("mine", "team", path=str(server.repository))
    assert (caught.value.name, caught.value.needed) == ("operator", "admin")
    with pytest.raises(NotAllowed) as caught:
        resources.remove("shop")
    assert (caught.value.role, caught.value.needed) == ("operator", "admin in project team")


def test_a_foreign_resource_is_as_one_that_does_not_exist(client_of: ClientOf, foreign: str) -> None:
    resources = client_of("operator").resources
    assert foreign not in [one.name for one in resources.list().items]
    changes: list[tuple[Callable[[], object], type[UnknownProject | UnknownResource], str]] = [
        (lambda: resources.list(project="away"), UnknownProject, "away"),
        (lambda: resources.remove(foreign), UnknownResource, foreign),
    ]
    for change, error, name in changes:
        with pytest.raises(error) as caught:
            change()
        assert caught.value.name == name
