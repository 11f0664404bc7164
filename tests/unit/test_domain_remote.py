"""How a plan names a git remote."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cleveragents.domain.project import Resource, ResourceKind
from cleveragents.domain.remote import RemoteAddress, remote_of, resource_of
from cleveragents.errors import InvalidName

NOW = datetime(2024, 1, 1, tzinfo=UTC)


def remote(location: str, branch: str | None = "main") -> Resource:
    return Resource("shop", "shops", ResourceKind.REMOTE, location, NOW, branch)


def test_a_remote_is_named_by_address_and_branch_and_found_again() -> None:
    named = resource_of(remote("file:///srv/shop.git", "team/next"))
    assert named == "git+file:///srv/shop.git#team/next"
    assert remote_of(named) == RemoteAddress("file:///srv/shop.git", "team/next")
    assert str(remote_of(named)) == named


def test_a_directory_is_named_by_its_path() -> None:
    directory = Resource("shop", "shops", ResourceKind.DIRECTORY, "/srv/shop", NOW)
    assert resource_of(directory) == "/srv/shop"
    assert remote_of("/srv/shop") is None


@pytest.mark.parametrize("branch", [None, "", "-x", "a..b", "a b", "a.lock"])
def test_a_branch_that_git_would_take_for_something_else_is_refused(branch: str | None) -> None:
    with pytest.raises(InvalidName, match="branch"):
        resource_of(remote("file:///srv/shop.git", branch))


@pytest.mark.parametrize("address", ["ext::sh -c x", "--upload-pack=x", "/srv/shop", ""])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(InvalidName, match="remote"):
        resource_of(remote(address))
    with pytest.raises(InvalidName, match="remote"):
        remote_of(f"git+{address}#main")


def test_who_logs_in_is_not_shown() -> None:
    assert RemoteAddress("https://me:secret@host/shop.git", "main").shown == "https://host/shop.git"
    assert RemoteAddress("git@host:shop.git", "main").shown == "git@host:shop.git"
    assert RemoteAddress("https://host/a@b", "main").shown == "https://host/a@b"
