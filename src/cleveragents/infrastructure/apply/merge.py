"""Three-way merges of trees by git's plumbing, and what of them a person has to decide.

git 2.39 merges commits only, so each tree is wrapped in one whose parent is the base.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from cleveragents.application.ports.applies import FileConflict
from cleveragents.domain.file_state import GITLINK, Difference, FileState
from cleveragents.infrastructure.apply.hunks import conflict_hunks
from cleveragents.infrastructure.git.plumbing import PrivateRepository

__all__ = ["Merge", "changed_between", "merge_trees", "states_in"]

_KIND = re.compile(r"CONFLICT \(([^)]*)\)")
_STAGE = re.compile(rb"([0-7]+) ([0-9a-f]+) ([123])\t(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Merge:
    """What came of a merge: the tree, what it changes in `ours`, and where both sides changed one place."""

    base: str
    ours: str
    theirs: str
    merged: str
    changes: Mapping[str, Difference]
    conflicts: tuple[FileConflict, ...] = ()


def merge_trees(repository: PrivateRepository, base: str, ours: str, theirs: str) -> Merge:
    """Brings base → theirs into `ours`. Objects go to the repository; no file changes."""
    if theirs in (base, ours):
        return Merge(base, ours, theirs, ours, {})
    merged = theirs
    conflicts: tuple[FileConflict, ...] = ()
    if ours != base:
        merged, conflicts = _merged(repository, base, ours, theirs)
    changes = changed_between(repository, ours, merged)
    if not conflicts:
        conflicts = tuple(
            FileConflict(path, "submodule", (), "a submodule is moved by hand")
            for path, change in changes.items()
            if any(state is not None and state.mode == GITLINK for state in (change.before, change.after))
        )
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
    sides = _wrapped(repository, base, (ours, theirs))
    said = repository.git(
        "-c",
        "merge.directoryRenames=false",  # guard: a file lands where its own side says, not where others went
        "merge-tree",
        "--write-tree",
        "-z",
        "--messages",
        *sides,
        succeeds=(0, 1),
    )
    merged, stages, messages = _parsed(said)
    if not stages and not messages:
        return merged, ()
    kinds = _kinds(stages, messages, sides)
    contents = _contents(repository, merged, kinds)
    return merged, tuple(
        FileConflict(path, kinds[path], conflict_hunks(contents.get(path, b""), *sides))
        for path in sorted(kinds)
    )


def _wrapped(repository: PrivateRepository, base: str, trees: Sequence[str]) -> list[str]:
    """Commits of these trees whose parent is a commit of the base, written by one process."""
    root = _commit(base)
    commits = [_commit(tree, _name(root, base)) for tree in trees]
    with TemporaryDirectory(dir=repository.directory) as folder:
        drafts = [Path(folder, str(number)) for number in range(1 + len(commits))]
        for draft, commit in zip(drafts, (root, *commits), strict=True):
            draft.write_bytes(commit)
        feed = b"".join(os.fsencode(draft) + b"\n" for draft in drafts)
        said = repository.git("hash-object", "-t", "commit", "-w", "--no-filters", "--stdin-paths", feed=feed)
    return said.decode("ascii").split()[1:]


def _commit(tree: str, *parents: str) -> bytes:
    lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents)]
    lines += [f"{role} CleverAgents <cleveragents@localhost> 0 +0000" for role in ("author", "committer")]
    return "\n".join([*lines, "", "merged by CleverAgents", ""]).encode("ascii")


def _name(commit: bytes, like: str) -> str:
    """git's name for it, in the kind of hash that `like` is of."""
    whole = b"commit %d\0%b" % (len(commit), commit)
    digest = hashlib.sha256(whole) if len(like) == 64 else hashlib.sha1(whole, usedforsecurity=False)
    return digest.hexdigest()


def _parsed(said: bytes) -> tuple[str, set[str], list[tuple[str, list[str]]]]:
    """The tree; paths with stages; and (kind, paths) of every message that is a conflict."""
    fields = iter(said.split(b"\0"))
    merged = next(fields).decode("ascii")
    stages: set[str] = set()
    for field in fields:
        match = _STAGE.fullmatch(field)
        if match is None:
            break
        stages.add(os.fsdecode(match[4]))
    messages: list[tuple[str, list[str]]] = []
    for count in fields:
        if not count.strip():
            continue
        paths = [os.fsdecode(next(fields)) for _ in range(int(count))]
        title = next(fields).decode("utf-8", "replace")
        words = next(fields).decode("utf-8", "replace")
        if title.startswith("CONFLICT"):
            match_kind = _KIND.match(words) or _KIND.match(title)
            messages.append((match_kind[1] if match_kind else title, paths))
    return merged, stages, messages


def _kinds(
    stages: Iterable[str], messages: Sequence[tuple[str, list[str]]], sides: Sequence[str]
) -> dict[str, str]:
    """Each conflicted path with what git calls it. The most telling word wins over `content`."""
    # A file that had to make way for a directory is named after its side, which is a name of ours.
    aside = re.compile(f"~({'|'.join(sides)})(_[0-9]+)?$")
    kinds: dict[str, str] = {}
    for kind, paths in messages:
        for path in (aside.sub("", named) for named in paths):
            if kinds.get(path, "content") == "content":
                kinds[path] = kind
    for path in stages:
        kinds.setdefault(aside.sub("", path), "content")
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
