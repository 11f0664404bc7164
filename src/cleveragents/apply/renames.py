"""Merges that follow renames to tracked files only, and name each rename that they followed.

git finds a rename by likeness: a file that is gone and a new one that resembles it. If git tracks the new
file, that is a rename. An untracked file may merely resemble the deleted one, and is never changed for it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cleveragents.apply.merge import Merge, changed_between, merge_trees
from cleveragents.apply.moves import parents_of
from cleveragents.apply.ports import FileConflict, Rename
from cleveragents.core.change import Difference, FileState
from cleveragents.git.plumbing import PrivateRepository, index_line

__all__ = ["merge_following_renames"]

# Below what every kernel takes as one argument list.
_ARGUMENT_BYTES = 100_000
_GONE = ("modify/delete", "rename/delete")

Untracked = Callable[[Collection[str]], Collection[str]]
"""Returns those of some paths that git does not track."""


def merge_following_renames(
    repository: PrivateRepository,
    base: str,
    ours: str,
    theirs: str,
    *,
    untracked: Untracked = lambda paths: (),
    hint: str = "",
) -> Merge:
    """Brings base → theirs into `ours`, and names the renames that were followed.

    `untracked` tells which of the files that `ours` added no rename is followed to. A conflict that may be
    due to that says `hint`.
    """
    drift = changed_between(repository, base, ours)
    if not drift or theirs in (base, ours):
        return replace(merge_trees(repository, base, ours, theirs), drift=drift)
    added = [path for path, change in drift.items() if change.before is None]
    gone = any(change.after is None for change in drift.values())
    apart = sorted(untracked(added)) if added and gone else []
    if apart:  # guard: a file that merely resembles a deleted one is not changed for it
        merge = _merged_apart(repository, (base, ours, theirs), drift, apart)
        return replace(merge, conflicts=tuple(_hinted(one, hint) for one in merge.conflicts))
    return _named(repository, replace(merge_trees(repository, base, ours, theirs), drift=drift))


def _merged_apart(
    repository: PrivateRepository,
    trees: tuple[str, str, str],
    drift: Mapping[str, Difference],
    apart: Sequence[str],
) -> Merge:
    """The merge without the files that are `apart`, which are then put beside what came of it."""
    base, ours, theirs = trees
    scratch = repository.directory / f"merge-{secrets.token_hex(8)}.index"
    tracked = repository.tree_with(ours, (index_line(0, "0" * len(ours), path) for path in apart), scratch)
    visible = {path: change for path, change in drift.items() if path not in apart}
    merge = _named(repository, replace(merge_trees(repository, base, tracked, theirs), drift=visible))
    if merge.conflicts:
        return replace(merge, ours=ours, drift=drift)
    states = {path: state for path in apart if (state := drift[path].after) is not None}
    conflicts = _collisions(repository, merge.changes, states, scratch)
    if conflicts:
        return replace(merge, ours=ours, drift=drift, conflicts=conflicts)
    merged = repository.tree_with(merge.merged, _lines(states), scratch)
    changes = {path: change for path, change in merge.changes.items() if path not in states}
    return replace(merge, ours=ours, merged=merged, changes=changes, drift=drift)


def _collisions(
    repository: PrivateRepository,
    changes: Mapping[str, Difference],
    states: Mapping[str, FileState],
    scratch: Path,
) -> tuple[FileConflict, ...]:
    """The conflicts of the files that are apart with what arrives at the same place: another file, or a
    directory. Only these are merged, so that git finds no rename among them."""
    arriving = {path: change.after for path, change in changes.items() if change.after is not None}
    arriving = {path: state for path, state in arriving.items() if states.get(path) != state}
    above = {parent for path in arriving for parent in parents_of(path)}
    met = {
        path: state
        for path, state in states.items()
        if path in arriving or path in above or not arriving.keys().isdisjoint(parents_of(path))
    }
    if not met:
        return ()
    below = {parent for path in met for parent in parents_of(path)}
    meeting = {
        path: state
        for path, state in arriving.items()
        if path in met or path in below or not met.keys().isdisjoint(parents_of(path))
    }
    empty = repository.text("mktree")
    sides = [repository.tree_with(empty, _lines(side), scratch) for side in (met, meeting)]
    found = merge_trees(repository, empty, *sides).conflicts
    return found or tuple(FileConflict(path, "add/add") for path in met)


def _lines(states: Mapping[str, FileState]) -> list[bytes]:
    return [index_line(state.mode, state.content, path) for path, state in states.items()]


def _hinted(conflict: FileConflict, hint: str) -> FileConflict:
    if conflict.kind not in _GONE:
        return conflict
    return replace(conflict, hunks=(*conflict.hunks, hint))


def _named(repository: PrivateRepository, merge: Merge) -> Merge:
    """The merge with the renames that it followed; a change that no rename explains is a conflict."""
    drift, changes = merge.drift, merge.changes
    gone = {path for path, change in drift.items() if change.after is None}
    added = {path for path, change in drift.items() if change.before is None}
    if merge.conflicts:
        old_names = {
            rename.new: rename.old
            for rename in _pairs(
                repository, merge.base, merge.ours, gone, added.intersection(c.path for c in merge.conflicts)
            )
        }
        return replace(merge, conflicts=tuple(_with_old_name(one, old_names) for one in merge.conflicts))
    landed = {path for path in added if path in changes and changes[path].before and changes[path].after}
    left = {
        path
        for path, change in changes.items()
        if change.after is None and path in drift and drift[path].before and drift[path].after
    }
    if not landed and not left:
        return merge
    wanted = changed_between(repository, merge.base, merge.theirs)
    arriving = {path for path, change in changes.items() if change.before is None}
    found = [
        *_pairs(repository, merge.base, merge.ours, gone.intersection(wanted), landed),
        *_pairs(repository, merge.base, merge.theirs, left, arriving),
    ]
    explained = {path for rename in found for path in (rename.old, rename.new)}
    unexplained = sorted((landed - wanted.keys() | left) - explained)
    conflicts = tuple(FileConflict(path, "a rename that cannot be named") for path in unexplained)
    return replace(merge, renames=tuple(found), conflicts=conflicts)


def _with_old_name(conflict: FileConflict, old_names: Mapping[str, str]) -> FileConflict:
    old = old_names.get(conflict.path)
    return conflict if old is None else replace(conflict, hunks=(f"renamed from {old}", *conflict.hunks))


def _pairs(
    repository: PrivateRepository, base: str, side: str, old: Collection[str], new: Collection[str]
) -> list[Rename]:
    """The renames between the trees from one of the `old` paths to one of the `new` ones."""
    if not old or not new:
        return []
    paths = sorted({*old, *new})
    size = sum(len(os.fsencode(path)) + 16 for path in paths)
    limits = ("--", *paths) if size < _ARGUMENT_BYTES else ()
    options = ("-r", "-z", "-M", "-l0", "--diff-filter=R", "--name-status")
    listed = repository.git("--literal-pathspecs", "diff-tree", *options, base, side, *limits)
    fields = os.fsdecode(listed).split("\0")[:-1]
    found = [Rename(*pair) for pair in zip(fields[1::3], fields[2::3], strict=True)]
    return [rename for rename in found if rename.old in old and rename.new in new]
