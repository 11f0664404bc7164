"""Submodules in a merge: a plan can remove one, and an undo brings it back. Nothing else happens to them.

In the user's files a submodule is a directory. It is removed while it is empty, and made empty again: what is
checked out in it may be nowhere else. In the repository a submodule is an entry of a tree and a section of
.gitmodules, and a merge that would have the one without the other is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from cleveragents.apply.merge import Merge, states_in
from cleveragents.apply.ports import FileConflict
from cleveragents.core.file_state import EXECUTABLE, GITLINK, REGULAR, Difference, FileState
from cleveragents.git.plumbing import PrivateRepository
from cleveragents.git.submodules import MODULES, submodule_paths

__all__ = ["files_in", "submodule_conflict", "submodule_conflicts", "submodules_in"]

_ENTRY_ONLY = ".gitmodules does not name it any more: remove its directory in the plan, too, or keep both"
_SECTION_ONLY = ".gitmodules names it, and a plan cannot add it: add it yourself with `git submodule add`"
_UNREADABLE = "git cannot read it"
_MOVED = "another commit of it is wanted: check that out in its directory yourself"


def submodules_in(changes: Mapping[str, Difference]) -> dict[str, bool]:
    """The submodules that come or go, and whether each is there afterwards."""
    return {
        path: _is_link(change.after)
        for path, change in changes.items()
        if _is_link(change.before) or _is_link(change.after)
    }


def files_in(changes: Mapping[str, Difference]) -> dict[str, Difference]:
    """The changes without those of submodules."""
    links = submodules_in(changes)
    return {path: change for path, change in changes.items() if path not in links}


def submodule_conflict(path: str, problem: str) -> FileConflict:
    return FileConflict(path, "submodule", (problem,))


def submodule_conflicts(repository: PrivateRepository, merge: Merge) -> tuple[FileConflict, ...]:
    """What the merge would do to submodules by half, or not at all."""
    links = submodules_in(merge.changes)
    if not links and MODULES not in merge.changes:
        return ()
    found = [
        submodule_conflict(path, _MOVED)
        for path in links
        if merge.changes[path].before is not None and merge.changes[path].after is not None
    ]
    before, after = (_named_in(repository, tree) for tree in (merge.ours, merge.merged))
    if after is None:
        return (*found, submodule_conflict(MODULES, _UNREADABLE))
    before = before or frozenset()
    doubtful = (before ^ after) | (links.keys() & (before | after))
    there = {path for path, state in states_in(repository, merge.merged, doubtful).items() if _is_link(state)}
    found += [submodule_conflict(path, _ENTRY_ONLY) for path in sorted(there - after)]
    found += [submodule_conflict(path, _SECTION_ONLY) for path in sorted(doubtful & after - there)]
    return tuple(found)


def _is_link(state: FileState | None) -> bool:
    return state is not None and state.mode == GITLINK


def _named_in(repository: PrivateRepository, tree: str) -> frozenset[str] | None:
    """The submodules that .gitmodules names there; None if it cannot be read."""
    state = states_in(repository, tree, [MODULES]).get(MODULES)
    if state is None:
        return frozenset()
    if state.mode not in (REGULAR, EXECUTABLE):
        return None
    return submodule_paths(repository, repository.git("cat-file", "blob", state.content))
