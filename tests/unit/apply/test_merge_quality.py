"""A merge of sub-plans is git's merge: the same tree, or conflicts at the same paths with everything else
equal.

Histories are random, and each is identified by its seed. The same comparison must catch a file-by-file merge,
the obvious implementation without git.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

from cleveragents.changes.model.merge_conflict import MergeConflict, TreeMerge
from cleveragents.core.change import FileState
from cleveragents.sandboxes.git_sandbox import Sandbox
from tests.merge_comparison import difference, git_merge
from tests.merge_stand import MergeStand
from tests.random_merges import history, written
from tests.sandbox_resources import git, make_repository

SEEDS = range(60)
WHOLE = (3, 21)
LOSING = (1917, 2067)
LABELS = ("plan OURS", "sub-plan THEIRS")


@dataclass
class Cases:
    """A repository with the commits of each seed, and a plan's sandbox of it."""

    stand: MergeStand
    sandbox: Sandbox
    commits: dict[int, tuple[str, str, str]]

    @property
    def repository(self) -> Path:
        return self.stand.resource

    @cached_property
    def _trees(self) -> list[str]:
        names = [f"{commit}^{{tree}}" for commits in self.commits.values() for commit in commits]
        return git(self.repository, "rev-parse", *names).decode().split()

    def trees(self, seed: int) -> tuple[str, str, str]:
        base, ours, theirs = self._trees[3 * seed : 3 * seed + 3]
        return base, ours, theirs

    def content(self, name: str) -> bytes:
        return git(self.repository, "cat-file", "blob", name)

    def unlike_git(self, seed: int, merged: TreeMerge) -> str | None:
        """Describe how a merge of that seed's sides differs from git's."""
        git_made = git_merge(self.repository, *self.commits[seed][1:])
        assert git_made is not None
        if not merged.conflicts and not git_made.conflicted:
            return None if merged.tree == git_made.tree else "another tree"
        files = {
            path: (f"{state.mode:06o}", state.content)
            for path, state in self.sandbox.files_below(merged.tree).items()
        }
        return difference(git_made, files, merged.conflicts, (self.content, self.sandbox.content))


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cases]:
    home = tmp_path_factory.mktemp("merges")
    repository = make_repository(home / "repository", {"a": "a\n"})
    commits = dict(zip(SEEDS, written(repository, map(history, SEEDS)), strict=True))
    stand = MergeStand(home, repository)
    with stand.container:
        yield Cases(stand, stand.parent().sandbox, commits)


def file_by_file(cases: Cases, seed: int) -> TreeMerge:
    """Merge each path for itself, as one would without git."""
    sandbox = cases.sandbox
    sides = [sandbox.files_below(tree) for tree in cases.trees(seed)]
    states: dict[str, FileState | None] = {}
    conflicts: list[MergeConflict] = []
    for path in sorted({path for side in sides for path in side}):
        before, one, other = (side.get(path) for side in sides)
        merged = other if one == before else one
        if one != other and before not in (one, other):
            content = None
            if before and one and other:
                content = sandbox.merge_content(before.content, one.content, other.content)
            merged = one if content is None or one is None else FileState(one.mode, content)
            if content is None:
                conflicts.append(MergeConflict(path, "content", before, one, other, one))
        states[path] = merged
    now = sandbox.files_below(sandbox.base)
    gone: dict[str, FileState | None] = dict.fromkeys(now)
    return TreeMerge(sandbox.tree(gone | states), tuple(conflicts))


def test_a_merge_equals_gits_merge(cases: Cases) -> None:
    merges = {seed: cases.sandbox.merge(*cases.trees(seed), labels=LABELS) for seed in SEEDS}
    found = {seed: cases.unlike_git(seed, merge) for seed, merge in merges.items()}
    assert {seed: told for seed, told in found.items() if told} == {}
    # Otherwise the comparison would prove little.
    assert sum(not merge.conflicts for merge in merges.values()) > len(SEEDS) / 3
    kinds = {conflict.kind for merge in merges.values() for conflict in merge.conflicts}
    assert {"content", "modify/delete", "rename/delete", "rename/rename", "file/directory"} <= kinds


def test_the_comparison_catches_a_file_by_file_merge(cases: Cases) -> None:
    seeds = SEEDS[:20]
    caught = [seed for seed in seeds if cases.unlike_git(seed, file_by_file(cases, seed))]
    assert len(caught) > len(seeds) / 4


def test_a_file_that_git_loses_becomes_a_conflict(tmp_path: Path) -> None:
    """git 2.39 answers one of these with an unreadable tree, and the other not at all."""
    repository = make_repository(tmp_path / "repository", {"a": "a\n"})
    commits = written(repository, map(history, LOSING))
    stand = MergeStand(tmp_path, repository)
    with stand.container:
        sandbox = stand.parent().sandbox
        for of_seed in commits:
            names = [f"{commit}^{{tree}}" for commit in of_seed]
            base, ours, theirs = git(repository, "rev-parse", *names).decode().split()
            merged = sandbox.merge(base, ours, theirs, labels=LABELS)
            kept = {state for one in merged.conflicts for state in (one.ours, one.theirs, one.left)}
            kept |= {*sandbox.files_below(merged.tree).values()}
            before = {*sandbox.files_below(base).values()}
            assert merged.conflicts
            assert {*sandbox.files_below(ours).values()} - before <= kept
            assert {*sandbox.files_below(theirs).values()} - before <= kept


@pytest.mark.parametrize("seed", WHOLE)
def test_replayed_sub_plans_merge_as_git_does(cases: Cases, seed: int) -> None:
    """From sandboxes with the parent's tree, through the records, to the parent's files."""
    stand = cases.stand
    git(cases.repository, "checkout", "-q", "--detach", cases.commits[seed][0])
    parent = stand.parent()
    _, one, other = cases.trees(seed)
    children = [stand.child(parent), stand.child(parent)]
    for child, tree in zip(children, (one, other), strict=True):
        child.becomes(tree)
        assert child.tree == tree
    outcomes = [stand.merge(parent, child, str(part)) for part, child in enumerate(children)]
    assert not outcomes[0].conflicts
    git_made = git_merge(cases.repository, *cases.commits[seed][1:])
    assert git_made is not None
    files = {
        path: (f"{state.mode:06o}", state.content)
        for path, state in parent.sandbox.files_below(parent.tree).items()
    }
    told = difference(git_made, files, outcomes[1].conflicts, (cases.content, parent.sandbox.content))
    assert told is None
    assert stand.parts.history.unrecorded(parent.plan.id, parent.sandbox) == {}
