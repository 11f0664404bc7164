"""No apply creates or changes a git directory: its configuration would run programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleveragents.core.errors import ApplyRefused
from tests.apply_bench import Edit, Link, Program, world_at

HEAD, CONFIG = b"ref: refs/heads/main\n", b"[core]\n\tfsmonitor = touch ran\n"
BARE: dict[str, Edit] = {"HEAD": HEAD, "config": b"[core]\n", "objects/k": b"", "refs/k": b""}
# The files before, and the plan's changes.
REFUSED: dict[str, tuple[dict[str, Edit], dict[str, Edit]]] = {
    "all of it": ({}, {**BARE, "config": CONFIG}),
    "with a common directory": ({}, {"HEAD": HEAD, "commondir": b"c\n", "config.worktree": CONFIG}),
    "only HEAD": ({"config": CONFIG, "objects/k": b"", "refs/k": b""}, {"HEAD": HEAD}),
    "only the configuration": (BARE, {"config": CONFIG}),
    "only a new configuration": (BARE, {"config.worktree": CONFIG}),
    "only refs": ({"HEAD": HEAD, "config": CONFIG, "objects/k": b""}, {"refs/heads/x": b""}),
    "only objects, as a link": ({"HEAD": HEAD, "config": CONFIG, "refs/k": b""}, {"objects": Link("refs")}),
    "only a common directory": ({"HEAD": HEAD, "config": CONFIG}, {"commondir": b"c\n"}),
    "a hook": (BARE, {"hooks/post-checkout": Program(b"#!/bin/sh\n")}),
    "HEAD as a link": ({}, {**BARE, "HEAD": Link("refs/heads/main")}),
    "letters that fold": ({}, {"HEAD": HEAD, "config": CONFIG, "object\u017f/k": b"", "ref\u017f/k": b""}),
    "letters of no width": ({}, {"HEAD": HEAD, "config": CONFIG, "objects/k": b"", "re\u200dfs/k": b""}),
    "other letters": ({}, {"head": HEAD, "Config": CONFIG, "OBJECTS/k": b"", "Refs/k": b""}),
}
ALLOWED: dict[str, tuple[dict[str, Edit], dict[str, Edit]]] = {
    "no HEAD": ({}, {"config": CONFIG, "objects/k": b"", "refs/k": b"", "commondir": b"c\n"}),
    "no refs": ({}, {"HEAD": HEAD, "config": CONFIG, "objects/k": b""}),
    "HEAD is a directory": ({}, {"HEAD/k": b"", "config": CONFIG, "objects/k": b"", "refs/k": b""}),
    "another file beside it": (BARE, {"README": b"1\n"}),
    "all of it goes": (BARE, {**dict.fromkeys(BARE), "README": b"1\n"}),
    "it is one no more": (BARE, {"HEAD": None, "config": CONFIG}),
    "its objects go": (BARE, {"objects/k": None, "config": CONFIG}),
}


def below(where: str, edits: dict[str, Edit]) -> dict[str, Edit]:
    return {where + path: edit for path, edit in edits.items()}


@pytest.mark.parametrize("repository", [True, False], ids=["repository", "plain"])
@pytest.mark.parametrize("where", ["", "docs/x/"])
@pytest.mark.parametrize("how", REFUSED)
def test_refuses_a_result_that_creates_a_git_directory(
    tmp_path: Path, how: str, where: str, repository: bool
) -> None:
    before, edits = REFUSED[how]
    files = {"a": b"1\n", **below(where, before)}
    if not where and not repository and BARE.keys() <= before.keys():
        return  # a bare repository has no plans
    with world_at(tmp_path, files, repository=repository) as world:
        world.plan("p1", {"a": b"2\n", **below(where, edits)})
        found = world.files()
        named = where.removesuffix("/") or r"\."
        with pytest.raises(ApplyRefused, match=f"a git directory.*: {named}; ") as told:
            world.apply("p1")
        assert world.files() == found
        remedy = told.value.remedies[0]
        assert (remedy.action, remedy.plan) == ("plan.review", "p1")
        assert not where or remedy.options == {"reject": named}


@pytest.mark.parametrize("repository", [True, False], ids=["repository", "plain"])
@pytest.mark.parametrize("how", ALLOWED)
def test_applies_and_undoes_a_result_without_git_directories(
    tmp_path: Path, how: str, repository: bool
) -> None:
    before, edits = (below("docs/x/", files) for files in ALLOWED[how])
    with world_at(tmp_path, {"a": b"1\n", **before}, repository=repository) as world:
        found = world.files()
        world.plan("p1", edits)
        world.apply("p1")
        assert world.files() != found
        world.undo("p1")
        assert world.files() == found


def test_untracked_directories_count(tmp_path: Path) -> None:
    """Empty directories: git tracks none, but accepts them as parts of a git directory."""
    with world_at(tmp_path, {"a": b"1\n", "docs/b": b"1\n"}) as world:
        for name in ("objects", "refs"):
            (world.resource / "docs" / name).mkdir()
        world.plan("p1", {"docs/HEAD": HEAD, "docs/config": CONFIG})
        with pytest.raises(ApplyRefused, match=r"a git directory.*: docs;"):
            world.apply("p1")
