"""How a plan names a git remote."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cleveragents.access.model.project import RemoteAddress, Resource, ResourceKind, remote_of, resource_of
from cleveragents.core.errors import InvalidName

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


BRANCHES = [None, "", "-x", "a..b", "a b", "a.lock", "a.lock/b", "a/.b", "/a", "a/", "a//b", "@", "a@{1}"]
BRANCHES += ["HEAD", "refs/heads/main", "a\n", "a\0", "\u00e4", "\u202ea", "a" * 201, "a\\b", "a~1", "a:b"]


@pytest.mark.parametrize("branch", BRANCHES)
def test_a_branch_that_git_would_take_for_something_else_is_refused(branch: str | None) -> None:
    with pytest.raises(InvalidName, match="branch"):
        resource_of(remote("file:///srv/shop.git", branch))


def test_a_stored_branch_that_is_invalid_now_is_still_read() -> None:
    assert remote_of("git+file:///srv/shop.git#HEAD") == RemoteAddress("file:///srv/shop.git", "HEAD")


@pytest.mark.parametrize(
    "address",
    ["file://srv/x", "https://h/\u202egit.x", "https://h/\u200bx", "https://h/\x7f", "https://h/x\ud800"],
)
def test_an_address_that_is_not_what_it_looks_like_is_refused(address: str) -> None:
    with pytest.raises(InvalidName, match="remote") as refused:
        resource_of(remote(address))
    assert str(refused.value).isprintable()


ADDRESSES = ["ext::sh -c x", "--upload-pack=x", "/srv/shop", "", "https://", "ssh://-x/y", "ssh://me@-x/y"]
ADDRESSES += [
    "-x@h:y",
    "https://h/a b",
    "https://h/a\nb",
    "https://h/a\0",
    "ext://h",
    "me@h:-x",
    "https://[h/x",
]
ADDRESSES += ["a" * 10**6]


@pytest.mark.parametrize("address", ADDRESSES, ids=range(len(ADDRESSES)))
def test_an_invalid_remote_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidName, match="remote") as refused:
        resource_of(remote(address))
    assert len(str(refused.value)) < 300
    with pytest.raises(InvalidName, match="remote"):
        remote_of(f"git+{address}#main")


def test_credentials_of_a_remote_are_not_shown() -> None:
    assert RemoteAddress("https://me:secret@host/shop.git", "main").shown == "https://host/shop.git"
    assert RemoteAddress("git@host:shop.git", "main").shown == "git@host:shop.git"
    assert RemoteAddress("https://host/a@b", "main").shown == "https://host/a@b"
