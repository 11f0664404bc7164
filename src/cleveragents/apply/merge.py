"""Three-way merges of a plan's result into the user's files, and their conflicts as readable text.

A plan can remove a submodule, and an undo restores it; nothing else happens to submodules. In the user's
files a submodule is a directory. This directory is removed only if it is empty, because its checked-out
content may exist nowhere else; an undo restores it empty. In the repository a submodule is an entry of a tree
and a section of .gitmodules. A merge that would leave only one of the two is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from cleveragents.apply.ports import FileConflict, Rename
from cleveragents.core.change import EXECUTABLE, GITLINK, REGULAR, Difference, FileState
from cleveragents.core.text.redaction import redact_content_text
from cleveragents.git.merge_tree import GitMergeResult, merged_trees
from cleveragents.git.plumbing import PrivateRepository, changed_between
from cleveragents.git.user_repository import MODULES, submodule_paths

__all__ = [
    "MergeResult",
    "conflict_hunks",
    "files_in",
    "merge_trees",
    "states_in",
    "submodule_conflict",
    "submodule_conflicts",
    "submodules_in",
]


_LINES_SHOWN = 40

_ENTRY_ONLY = ".gitmodules no longer names the submodule; also remove its directory in the plan, or keep both"
_SECTION_ONLY = (
    ".gitmodules names the submodule, but a plan cannot add submodules; run `git submodule add` yourself"
)
_UNREADABLE = "git cannot read it"
_MOVED = "the plan needs another commit of the submodule; check it out in its directory yourself"


class MergeResult(Struct, frozen=True):
    """The result of a merge: the tree, its changes to `ours`, and the conflicts.

    `drift` are the changes of `ours` since the base, and `renames` the followed renames; both are empty
    unless requested. `ignored` are the ignored files of the user in `ours` that neither the base nor `theirs`
    has with this content.
    """

    base: str
    ours: str
    theirs: str
    merged: str
    changes: Mapping[str, Difference]
    conflicts: tuple[FileConflict, ...] = ()
    drift: Mapping[str, Difference] = field(default_factory=dict)
    renames: tuple[Rename, ...] = ()
    ignored: tuple[str, ...] = ()


def merge_trees(repository: PrivateRepository, base: str, ours: str, theirs: str) -> MergeResult:
    """Merge the change base → theirs into `ours`. Objects go to the repository; no file changes."""
    if theirs in (base, ours):
        return MergeResult(base, ours, theirs, ours, {})
    merged = theirs
    conflicts: tuple[FileConflict, ...] = ()
    if ours != base:
        merged, conflicts = _merged(repository, base, ours, theirs)
    changes = changed_between(repository, ours, merged)
    return MergeResult(base, ours, theirs, merged, changes, conflicts)


def states_in(repository: PrivateRepository, tree: str, paths: Iterable[str]) -> dict[str, FileState]:
    """Return the states of these paths in the tree; missing paths are omitted."""
    named = [os.fsencode(path) for path in paths]
    found: dict[str, FileState] = {}
    said = repository.git("ls-tree", "-r", "-z", "--full-tree", tree) if named else b""
    wanted = set(named)
    for line in said.split(b"\0")[:-1]:
        about, path = line.split(b"\t", 1)
        if path in wanted:
            mode, _, content = about.decode("ascii").split(" ")
            found[os.fsdecode(path)] = FileState(int(mode, 8), content)
    return found


def _merged(
    repository: PrivateRepository, base: str, ours: str, theirs: str
) -> tuple[str, tuple[FileConflict, ...]]:
    said = merged_trees(
        repository,
        base,
        ours,
        theirs,
        directory_renames="false",  # guard: a file stays where its own side puts it
    )
    if not said.stages and not said.messages:
        return said.tree, ()
    kinds = _kinds(said)
    contents = _contents(repository, said.tree, kinds)
    return said.tree, tuple(
        FileConflict(path, kinds[path], conflict_hunks(contents.get(path, b""), *said.sides))
        for path in sorted(kinds)
    )


def _kinds(said: GitMergeResult) -> dict[str, str]:
    """Return each conflicted path with git's name for the kind of conflict. If there are several, a specific
    kind is preferred to `content`.
    """
    kinds: dict[str, str] = {}
    for message in said.messages:
        for path in map(said.named, message.paths):
            if kinds.get(path, "content") == "content":
                kinds[path] = message.kind
    for path in said.stages:
        kinds.setdefault(said.named(path), "content")
    return kinds


def _contents(repository: PrivateRepository, merged: str, kinds: Mapping[str, str]) -> dict[str, bytes]:
    """Return, for each path whose lines conflict, its content with conflict markers."""
    wanted = [path for path, kind in kinds.items() if kind in ("content", "add/add", "rename/rename")]
    states = states_in(repository, merged, wanted)
    if not states:
        return {}
    feed = "".join(f"{state.content}\n" for state in states.values()).encode("ascii")
    said = repository.git("cat-file", "--batch", feed=feed)
    contents: dict[str, bytes] = {}
    for path in states:
        head, _, said = said.partition(b"\n")
        size = int(head.split(b" ")[2]) if head.split(b" ")[1] == b"blob" else 0
        contents[path], said = said[:size], said[size + 1 :]
    return contents


def conflict_hunks(content: bytes, ours: str, theirs: str) -> tuple[str, ...]:
    """Return the conflicts of a file with markers as text; `ours` and `theirs` are git's names for the sides.

    Line numbers refer to the current file.
    """
    opening, middle, closing = f"<<<<<<< {ours}", "=======", f">>>>>>> {theirs}"
    hunks: list[str] = []
    present: list[str] | None = None
    planned: list[str] | None = None
    number = 0
    for line in content.decode("utf-8", "replace").split("\n"):
        bare = line.rstrip("\r")
        if bare.startswith(opening):
            present = []
        elif present is None:
            number += 1
        elif planned is None and bare == middle:
            planned = []
        elif planned is not None and bare.startswith(closing):
            hunks.append(_hunk(number + 1, present, planned))
            number += len(present)
            present = planned = None
        else:
            (present if planned is None else planned).append(line)
    return tuple(hunks)


def _hunk(first: int, present: list[str], planned: list[str]) -> str:
    last = first + max(len(present), 1) - 1
    where = f"line {first}" if last == first else f"lines {first}-{last}"
    if _differ_in_endings(present, planned):
        where += " (line endings differ)"
    return "\n".join([f"{where}, current:", *_shown(present), "proposed:", *_shown(planned)])


def _differ_in_endings(present: list[str], planned: list[str]) -> bool:
    """Return whether the sides differ only in line endings, or have no line ending in common. Such a
    difference is invisible in the text.
    """
    endings = [{line.endswith("\r") for line in side} for side in (present, planned)]
    alike = [line.rstrip("\r") for line in present] == [line.rstrip("\r") for line in planned]
    return all(endings) and (alike or endings[0].isdisjoint(endings[1]))


def _shown(lines: list[str]) -> list[str]:
    if not lines:
        return ["  (nothing)"]
    # Masked before the cut: the beginning of a secret would not be recognized.
    lines = redact_content_text("\n".join(lines)).split("\n")
    more = len(lines) - _LINES_SHOWN
    return [f"  | {line}" for line in lines[:_LINES_SHOWN]] + (
        [f"  (and {more} more lines)"] if more > 0 else []
    )


def submodules_in(changes: Mapping[str, Difference]) -> dict[str, bool]:
    """Return the submodules that are created or removed, and whether each exists afterwards."""
    return {
        path: _is_link(change.after)
        for path, change in changes.items()
        if _is_link(change.before) or _is_link(change.after)
    }


def files_in(changes: Mapping[str, Difference]) -> dict[str, Difference]:
    """Return the changes without those of submodules."""
    links = submodules_in(changes)
    return {path: change for path, change in changes.items() if path not in links}


def submodule_conflict(path: str, problem: str) -> FileConflict:
    return FileConflict(path, "submodule", (problem,))


def submodule_conflicts(repository: PrivateRepository, merge: MergeResult) -> tuple[FileConflict, ...]:
    """Return conflicts for submodule changes that cannot be applied completely."""
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
    """Return the submodules named in .gitmodules of the tree; None if it cannot be read."""
    state = states_in(repository, tree, [MODULES]).get(MODULES)
    if state is None:
        return frozenset()
    if state.mode not in (REGULAR, EXECUTABLE):
        return None
    return submodule_paths(repository, repository.git("cat-file", "blob", state.content))
