"""Nested repositories that appear at the worst moment, and files that change during a check."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from cleveragents.core.errors import GitFailed
from cleveragents.git.git_directory import copy_index
from cleveragents.git.plumbing import PrivateRepository
from cleveragents.git.user_repository import is_object_store
from tests.sandbox_resources import git, make_repository


class Overtaken(PrivateRepository):
    """A repository in which a command creates a nested one after the search."""

    def _nested(self, work_tree: Path, index: Path, spared: Sequence[str]) -> list[str]:
        found = super()._nested(work_tree, index, spared)
        if not (work_tree / "late").exists():
            make_repository(work_tree / "late", {"file": "1\n"})
        return found


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a work tree with a nested repository."""
    git(tmp_path, "init", "-q", "--bare", "engine.git")
    tree = make_repository(tmp_path / "tree", {"a": "1\n"})
    make_repository(tree / "nested", {"b": "1\n"})
    return tree


def test_a_nested_repository_created_meanwhile_is_an_error(tree: Path) -> None:
    repository = Overtaken(tree.with_name("engine.git"))
    with pytest.raises(GitFailed, match="cannot distinguish nested repositories from submodules"):
        repository.stage(tree, tree.with_name("index"))


def test_a_copied_index_detects_a_file_changed_while_it_was_written(tree: Path) -> None:
    """With the same size and time, so that only the index's own time makes git read the file."""
    index, copy, moment = tree / ".git/index", tree.with_name("copy"), 1_700_000_000_000_000_000
    os.utime(tree / "a", ns=(moment, moment))
    git(tree, "update-index", "--refresh")
    os.utime(index, ns=(moment, moment))
    (tree / "a").write_text("2\n")
    os.utime(tree / "a", ns=(moment, moment))
    assert copy_index(index, copy)
    repository = PrivateRepository(tree / ".git", {"core.trustctime": "false", "core.checkStat": "minimal"})
    assert repository.git("diff-files", "--name-only", work_tree=tree, index=copy) == b"a\n"


@pytest.mark.parametrize(
    "entry", ["maintenance.lock", "tmp_obj_AbC1", "tmp_objdir-incoming-x1", "incoming-x1"]
)
def test_temporary_files_of_git_are_allowed_in_an_object_store(tmp_path: Path, entry: str) -> None:
    for name in ("pack", "info", "0a", entry):
        (tmp_path / name).mkdir()
    assert is_object_store(tmp_path)
    (tmp_path / "notes.txt").write_text("")
    assert not is_object_store(tmp_path)
