"""`agents project` and `agents resource`: which repositories the users of a server may run plans on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli_bench import Agents, command_line, git, paint_shop, use_home


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return paint_shop(tmp_path / "shop")


@pytest.fixture
def agents(
    tmp_path: Path, shop: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Agents]:
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    monkeypatch.chdir(shop / "src")
    with command_line(monkeypatch, capfd) as run:
        yield run


def test_the_repository_here_is_registered_under_a_name(agents: Agents, shop: Path) -> None:
    added = agents("project", "add", "shop", "--max-parallel", "4", "--description", "the web shop")
    assert added.code == 0
    assert "agents resource add NAME --project shop" in added.err
    named = agents("resource", "add", "main", "--project", "shop", "--format", "json")
    assert (named.code, json.loads(named.out)["location"]) == (0, str(shop))
    projects = json.loads(agents("project", "list", "--format", "json").out)
    assert [(one["name"], one["max_parallel"], one["resources"]) for one in projects] == [
        ("default", None, 0),
        ("shop", 4, 1),
    ]
    resources = json.loads(agents("resource", "list", "--project", "shop", "--format", "json").out)
    assert [(one["name"], one["kind"], one["branch"]) for one in resources] == [("main", "directory", None)]


def test_a_path_means_the_repository_that_it_lies_in(agents: Agents, shop: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    agents("project", "add", "shop")
    for path, root in ((shop / "src", shop), (tmp_path / "plain", tmp_path / "plain")):
        named = agents("resource", "add", root.name, "--project", "shop", "--path", str(path))
        assert f"plans may run on {root}" in named.err
    gone = agents("resource", "add", "gone", "--project", "shop", "--path", str(tmp_path / "nowhere"))
    assert (gone.code, "no such directory" in gone.err) == (2, True)
    file = agents("resource", "add", "file", "--project", "shop", "--path", str(shop / "README.md"))
    assert (file.code, "not a directory" in file.err) == (2, True)
    assert len(agents("resource", "list").out.splitlines()) == 3


def test_a_remote_has_a_branch_and_no_secret_in_its_address(agents: Agents) -> None:
    agents("project", "add", "shop")
    add = ("resource", "add", "far", "--project", "shop", "--remote")
    refused = agents(*add, "https://me:hunter2-hunter2@git.example/shop")
    assert refused.code == 2
    assert "hunter2" not in refused.err
    assert "use ssh or a credential helper" in refused.err
    assert agents(*add, "ext::sh -c true").code == 2
    assert agents(*add, "https://git.example/shop", "--branch", "--force").code == 2
    taken = json.loads(agents(*add, "git@git.example:shop.git", "--no-check", "--format", "json").out)
    assert (taken["kind"], taken["location"], taken["branch"]) == (
        "remote",
        "git@git.example:shop.git",
        "main",
    )


def test_a_remote_without_the_branch_is_refused_and_an_unreachable_one_warned_about(
    agents: Agents, shop: Path, tmp_path: Path
) -> None:
    agents("project", "add", "shop")
    add = ("resource", "add", "far", "--project", "shop", "--remote")
    there = git(shop, "branch", "--show-current").strip()
    refused = agents(*add, shop.as_uri(), "--branch", "nothing")
    assert refused.code == 2
    assert f"the remote has no branch nothing; the remote has {there}. Add the resource" in refused.err
    assert agents(*add, shop.as_uri(), "--branch", there).code == 0
    far = agents("resource", "add", "lost", "--project", "shop", "--remote", (tmp_path / "none").as_uri())
    assert (far.code, "warning: " in far.err) == (0, True)


def test_exclusive_options_are_refused(agents: Agents) -> None:
    agents("project", "add", "shop")
    add = ("resource", "add", "x", "--project", "shop")
    both = agents(*add, "--path", ".", "--remote", "git@git.example:shop.git")
    assert (both.code, "not both" in both.err) == (2, True)
    branch = agents(*add, "--branch", "main")
    assert (branch.code, "--branch needs --remote" in branch.err) == (2, True)
    assert "no resources" in agents("resource", "list").err


def test_removing_a_resource_keeps_its_repository(agents: Agents, shop: Path) -> None:
    agents("project", "add", "shop")
    agents("resource", "add", "main", "--project", "shop")
    used = agents("project", "remove", "shop")
    assert (used.code, "remove the resources of the project first: main" in used.err) == (1, True)
    assert "its repository is unchanged" in agents("resource", "remove", "main").err
    assert agents("project", "remove", "shop").code == 0
    left = json.loads(agents("project", "list", "--format", "json").out)
    assert [one["name"] for one in left] == ["default"]
    assert (shop / "README.md").exists()
    unknown = agents("resource", "list", "--project", "shop")
    assert (unknown.code, "agents project list" in unknown.err) == (2, True)
