"""Three-way merges of a plan's result into the user's files, and what of them a person has to decide."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cleveragents.apply.hunks import conflict_hunks
from cleveragents.apply.ports import FileConflict, Rename
from cleveragents.core.file_state import Difference, FileState
from cleveragents.git.merge_tree import Merged, merged_trees
from cleveragents.git.plumbing import PrivateRepository

__all__ = ["Merge", "changed_between", "merge_trees", "states_in"]


@dataclass(frozen=True, slots=True)
class Merge:
    """What came of a merge: the tree, what it changes in `ours`, and where both sides changed one place.
    `drift` is what `ours` changed since the base, and `renames` are those that were followed, as far as
    the caller asked for them."""

    base: str
    ours: str
    theirs: str
    merged: str
    changes: Mapping[str, Difference]
    conflicts: tuple[FileConflict, ...] = ()
    drift: Mapping[str, Difference] = field(default_factory=dict)
    renames: tuple[Rename, ...] = ()


def merge_trees(repository: PrivateRepository, base: str, ours: str, theirs: str) -> Merge:
    """Brings base → theirs into `ours`. Objects go to the repository; no file changes."""
    if theirs in (base, ours):
        return Merge(base, ours, theirs, ours, {})
    merged = theirs
    conflicts: tuple[FileConflict, ...] = ()
    if ours != base:
        merged, conflicts = _merged(repository, base, ours, theirs)
    changes = changed_between(repository, ours, merged)
    return Merge(base, ours, theirs, merged, changes, conflicts)


def changed_between(repository: PrivateRepository, one: str, other: str) -> dict[str, Difference]:
    """Every path whose state differs, with both states."""
    if one == other:
        return {}
    said = repository.git("diff-tree", "-r", "-z", "--raw", "--no-renames", one, other)
    fields = said.split(b"\0")
    found: dict[str, Difference] = {}
    for about, path in zip(fields[0:-1:2], fields[1::2], strict=True):
        old_mode, new_mode, old, new, _ = about[1:].decode("ascii").split(" ")
        found[os.fsdecode(path)] = Difference(_state(old_mode, old), _state(new_mode, new))
    return found


def states_in(repository: PrivateRepository, tree: str, paths: Iterable[str]) -> dict[str, FileState]:
    """What these paths are in the tree; those that are not in it are left out."""
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


def _state(mode: str, content: str) -> FileState | None:
    return None if mode == "000000" else FileState(int(mode, 8), content)


def _merged(
    repository: PrivateRepository, base: str, ours: str, theirs: str
) -> tuple[str, tuple[FileConflict, ...]]:
    said = merged_trees(
        repository,
        base,
        ours,
        theirs,
        directory_renames="false",  # guard: a file lands where its own side says, not where others went
    )
    if not said.stages and not said.messages:
        return said.tree, ()
    kinds = _kinds(said)
    contents = _contents(repository, said.tree, kinds)
    return said.tree, tuple(
        FileConflict(path, kinds[path], conflict_hunks(contents.get(path, b""), *said.sides))
        for path in sorted(kinds)
    )


def _kinds(said: Merged) -> dict[str, str]:
    """Each conflicted path with what git calls it. The most telling word wins over `content`."""
    kinds: dict[str, str] = {}
    for message in said.messages:
        for path in map(said.named, message.paths):
            if kinds.get(path, "content") == "content":
                kinds[path] = message.kind
    for path in said.stages:
        kinds.setdefault(said.named(path), "content")
    return kinds


def _contents(repository: PrivateRepository, merged: str, kinds: Mapping[str, str]) -> dict[str, bytes]:
    """What git wrote for each conflicted path whose conflict is in its lines."""
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
