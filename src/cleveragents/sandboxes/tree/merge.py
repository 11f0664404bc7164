"""Merge the result of a sub-plan into its parent's tree as git does, and keep the conflicts.

git decides which files merge cleanly and which conflict. Conflicting text keeps git's conflict markers, with
both sides in the file. For other conflicts, the tree gets one side: ours or, if only the directory of a file
is in conflict, the file at the location that git proposes. Both sides are recorded.

Also copies content from one sandbox to another, so that each sandbox is independent afterwards.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cleveragents.changes.model.merge_conflict import DIRECTORY, MergeConflict, TreeMerge
from cleveragents.core.change import EXECUTABLE, REGULAR, FileState
from cleveragents.core.errors import GitFailed, SandboxRefused
from cleveragents.git.git_directory import flush
from cleveragents.git.merge_tree import GitMergeResult, MergeMessage, merged_trees
from cleveragents.git.plumbing import PrivateRepository, index_line
from cleveragents.git.stored_forms import StoredForms

if TYPE_CHECKING:
    from cleveragents.sandboxes.facts import SandboxLayout
    from cleveragents.sandboxes.ports import StartTree

__all__ = [
    "MergeLocation",
    "copy_objects",
    "files_of",
    "merge_of",
    "start_from",
    "stored_forms",
]


_FILE_LOCATION = "file location"
_FILES = (REGULAR, EXECUTABLE)
_Stages = dict[int, FileState]


class MergeLocation(Struct, frozen=True):
    """The paths that a merge uses: our git directory, and the work tree and index whose attributes apply."""

    engine: PrivateRepository
    work_tree: Path
    index: Path
    scratch: Path


def merge_of(place: MergeLocation, base: str, ours: str, theirs: str, labels: tuple[str, str]) -> TreeMerge:
    """Merge the changes from `base` to `theirs` into `ours`; `labels` name the sides in conflict markers.
    Changes no file.
    """
    if theirs in (base, ours):
        return TreeMerge(ours)
    if ours == base:
        return TreeMerge(theirs)
    trees = (base, ours, theirs)
    try:
        said = _said(place, trees, directory_renames="conflict")  # guard: git's own default
    except GitFailed:
        # In rare cases, where a renamed directory meets a file in its place, git 2.39 loses a file in its own
        # answer, or gives none. It succeeds without directory renames.
        said = _said(place, trees, directory_renames="false")
    if not said.stages and not said.messages:
        return TreeMerge(said.tree)
    return _Keeping(place, said, (ours, theirs), labels).run()


def _said(place: MergeLocation, trees: tuple[str, str, str], *, directory_renames: str) -> GitMergeResult:
    said = merged_trees(
        place.engine,
        *trees,
        directory_renames=directory_renames,
        work_tree=place.work_tree,
        index=place.index,
    )
    if said.lost:  # guard: a file that git lost must not count as deleted
        raise GitFailed("merge-tree", f"no content for {', '.join(said.lost)}")
    return said


@dataclass
class _Keeping:
    """One merge with conflicts. Not thread-safe: used only by its creating call."""

    place: MergeLocation
    said: GitMergeResult
    trees: tuple[str, str]
    labels: tuple[str, str]
    _relabelled: dict[str, tuple[str, bool]] = field(default_factory=dict)

    def run(self) -> TreeMerge:
        stages = self._stages()
        kinds = self._kinds(stages)
        old_places = self._old_places()
        paths = {*kinds, *old_places.values()}
        merged, ours, theirs = (_entries(self.place.engine, tree, paths) for tree in self._all_trees())
        kept: list[MergeConflict] = []
        for path in sorted(kinds):
            conflict = self._conflict(path, kinds[path], stages.get(path, {}), merged.get(path))
            if path not in stages:
                conflict = replace(
                    conflict, ours=ours.get(path), theirs=theirs.get(path), left=merged.get(path)
                )
            elif path in old_places and not conflict.marked:
                conflict = _placed(conflict, merged.get(path), old_places[path], ours, theirs)
            kept.append(conflict)
        return self._left(kept, merged)

    def _all_trees(self) -> tuple[str, str, str]:
        return self.said.tree, *self.trees

    def _stages(self) -> dict[str, _Stages]:
        found: dict[str, _Stages] = {}
        for path, states in self.said.stages.items():
            found.setdefault(self.said.named(path), {}).update(states)
        return found

    def _kinds(self, stages: Mapping[str, _Stages]) -> dict[str, str]:
        """Return git's name for each conflict, by path.

        A message applies to those of its paths that have stages; if none has, to its first path. If several
        messages apply to a path, a specific name wins over `content`.
        """
        kinds: dict[str, str] = {}
        for message in self.said.messages:
            paths = list(map(self.said.named, message.paths))
            for path in [path for path in paths if path in stages] or paths[:1]:
                if kinds.get(path, "content") == "content":
                    kinds[path] = message.kind
        return dict.fromkeys(stages, "content") | kinds

    def _old_places(self) -> dict[str, str]:
        """Return the files that git moved because their directory was renamed, with their original paths."""
        return {
            message.paths[0]: message.paths[1] for message in self.said.messages if _is_about_place(message)
        }

    def _conflict(self, path: str, kind: str, stages: _Stages, merged: FileState | None) -> MergeConflict:
        base, ours, theirs = stages.get(1), self._named(stages.get(2)), self._named(stages.get(3))
        left, marked = ours, False
        if ours is not None and theirs is not None and _are_files(merged, ours, theirs):
            # Conflict markers, or a clean content with an unclear mode, or our version.
            left = self._named(merged)
            marked = self._is_marked(merged)
        elif _is_directory(merged):
            # A directory on one side, a file on the other.
            if ours is None:
                ours = left = merged
            elif theirs is None:
                theirs = merged
        return MergeConflict(path, kind, base, ours, theirs, left, marked)

    def _left(self, kept: Iterable[MergeConflict], merged: Mapping[str, FileState]) -> TreeMerge:
        """Return the merged tree with the kept version at each conflicted path.

        The files that git renamed to resolve a clash are removed. Files replace directories last, when the
        directories have their final content.
        """
        changed = [one for one in kept if one.left != merged.get(one.path)]
        over = [one for one in kept if _is_directory(merged.get(one.path))]
        first = self._changed(self.said.tree, self._made_way(), [one for one in changed if one not in over])
        places = {one.path for one in over}
        directories = _entries(self.place.engine, first, places) if over else {}
        found = tuple(_with_directory(one, directories) if one in over else one for one in kept)
        files = [one for one in found if one.path in places and not _is_directory(one.left)]
        return TreeMerge(self._changed(first, [], files), found)

    def _made_way(self) -> list[str]:
        return [path for path in self.said.stages if path != self.said.named(path)]

    def _changed(self, tree: str, gone: Iterable[str], conflicts: Iterable[MergeConflict]) -> str:
        """Return the tree without the `gone` paths, and with the kept versions of the conflicts."""
        none = "0" * len(tree)
        lines = [index_line(0, none, path) for path in gone]
        lines += [index_line(0, none, one.path) for one in conflicts if one.left is None]
        lines += [
            index_line(one.left.mode, one.left.content, one.path) for one in conflicts if one.left is not None
        ]
        if not lines:
            return tree
        return self.place.engine.tree_with(tree, lines, self.place.scratch)

    def _named(self, state: FileState | None) -> FileState | None:
        """Return the state with our labels in git's conflict markers."""
        if state is None or state.mode not in _FILES:
            return state
        return FileState(state.mode, self._relabel(state.content)[0])

    def _is_marked(self, state: FileState | None) -> bool:
        return state is not None and state.mode in _FILES and self._relabel(state.content)[1]

    def _relabel(self, content: str) -> tuple[str, bool]:
        """Return the content with our labels, and whether it has conflict markers."""
        if content not in self._relabelled:
            engine = self.place.engine
            text = engine.git("cat-file", "blob", content)
            changed = _with_labels(text, self.said.sides, self.labels)
            name = content
            if changed != text:
                name = engine.git("hash-object", "-w", "--stdin", feed=changed).decode("ascii").strip()
            self._relabelled[content] = (name, changed != text)
        return self._relabelled[content]


def files_of(engine: PrivateRepository, tree: str) -> dict[str, FileState]:
    """Return every file of a tree."""
    return dict(_listed(engine, tree, "-r"))


def _entries(engine: PrivateRepository, tree: str, paths: Collection[str]) -> dict[str, FileState]:
    """Return the tree's entries at these paths, including directories; missing paths are omitted."""
    return {path: state for path, state in _listed(engine, tree, "-r", "-t") if path in paths}


def _listed(engine: PrivateRepository, tree: str, *options: str) -> Iterator[tuple[str, FileState]]:
    listed = engine.git("ls-tree", "-z", "--full-tree", *options, tree)
    for line in os.fsdecode(listed).split("\0")[:-1]:
        about, _, path = line.partition("\t")
        mode, _, name = about.split(" ")
        yield path, FileState(int(mode, 8), name)


def _is_directory(state: FileState | None) -> bool:
    return state is not None and state.mode == DIRECTORY


def _with_directory(conflict: MergeConflict, directories: Mapping[str, FileState]) -> MergeConflict:
    """Return the conflict with each side that is a directory replaced by that directory in the final tree."""
    now = directories.get(conflict.path)
    return replace(
        conflict,
        ours=now if _is_directory(conflict.ours) else conflict.ours,
        theirs=now if _is_directory(conflict.theirs) else conflict.theirs,
        left=now if _is_directory(conflict.left) else conflict.left,
    )


def _is_about_place(message: MergeMessage) -> bool:
    return message.kind == _FILE_LOCATION and len(message.paths) == 2


def _are_files(*states: FileState | None) -> bool:
    return all(state is not None and state.mode in _FILES for state in states)


def _with_labels(text: bytes, sides: tuple[str, str], labels: tuple[str, str]) -> bytes:
    """Replace the commit names in git's conflict markers by the labels."""
    for mark, side, label in zip((b"<", b">"), sides, labels, strict=True):
        pattern = b"^(" + mark + b"{7,} )" + side.encode("ascii") + b"(?=[:\r\n]|$)"
        text = re.sub(pattern, rb"\g<1>" + label.encode("ascii"), text, flags=re.MULTILINE)
    return text


def _placed(
    conflict: MergeConflict,
    merged: FileState | None,
    old: str,
    ours: Mapping[str, FileState],
    theirs: Mapping[str, FileState],
) -> MergeConflict:
    """Return the conflict about the location of a merged file. The file is at the location that git proposes;
    a side that had it at `old` prefers `old`.
    """
    return MergeConflict(
        conflict.path,
        conflict.kind,
        conflict.base,
        ours=merged,
        theirs=merged,
        left=merged,
        ours_path=old if old in ours else None,
        theirs_path=old if old in theirs else None,
    )


def stored_forms(place: SandboxLayout, traits: Mapping[str, str], filters: Collection[str]) -> StoredForms:
    """Return the two git directories of a sandbox whose trees are exact."""
    converting = PrivateRepository(place.converting, objects=place.engine / "objects")
    return StoredForms(PrivateRepository(place.engine), converting, traits, frozenset(filters))


def copy_objects(
    source: SandboxLayout, target: SandboxLayout, tree: str, *, known: str | None, durable: bool = False
) -> None:
    """Copy a tree's objects into the target's own store, except those of `known`, a tree it already has.

    The pack appears as a whole, by a rename. Raises `GitFailed`.
    """
    if tree == known:
        return
    revisions = [tree] if known is None else [tree, f"^{known}"]
    store = target.engine / "objects"
    PrivateRepository(source.engine).pack(revisions, store)
    if durable:
        flush(store / "pack")


def start_from(start: StartTree, source: SandboxLayout, target: SandboxLayout, *, known: str | None) -> None:
    """Copy the initial tree into a new sandbox. Raises `SandboxRefused` if the source lacks that tree."""
    try:
        copy_objects(source, target, start.tree, known=known)
    except GitFailed as error:
        reason = f"cannot read tree {start.tree} of plan {start.plan_id} ({error.problem})"
        raise SandboxRefused(str(target.directory), reason) from error
