"""Merge trees with `git merge-tree` and parse its output; merge single files with `git merge-file`.

git 2.39 merges only commits, so each tree is wrapped in a commit whose parent is the base. git reports the
versions of a conflicted path as stages: 1 is the base, 2 is ours, 3 is theirs.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct

from cleveragents.core.change import FileState
from cleveragents.core.errors import GitFailed
from cleveragents.git.plumbing import PrivateRepository

__all__ = ["GitMergeResult", "MergeMessage", "merged_content", "merged_trees"]


_KIND = re.compile(r"CONFLICT \(([^)]*)\)")
_STAGE = re.compile(rb"([0-7]+) ([0-9a-f]+) ([123])\t(.*)", re.DOTALL)


class MergeMessage(Struct, frozen=True):
    """A conflict reported by git: its kind and its paths."""

    kind: str
    paths: tuple[str, ...]


class GitMergeResult(Struct, frozen=True):
    """The result of a merge. `sides` are git's names for ours and theirs, in conflict markers and after the
    `~` of a renamed file.
    """

    tree: str
    sides: tuple[str, str]
    stages: Mapping[str, Mapping[int, FileState]]
    messages: tuple[MergeMessage, ...]

    @property
    def lost(self) -> tuple[str, ...]:
        """Paths of which git reports a side (base, ours or theirs) without naming its content."""
        return tuple(
            path
            for path, states in self.stages.items()
            if any(not state.mode or not state.content.strip("0") for state in states.values())
        )

    def named(self, path: str) -> str:
        """Return the path that `path` had before git renamed it to resolve a clash of names."""
        return re.sub(f"~({'|'.join(self.sides)})(_[0-9]+)?$", "", path)


def merged_trees(
    repository: PrivateRepository,
    base: str,
    ours: str,
    theirs: str,
    *,
    directory_renames: str,
    work_tree: Path | None = None,
    index: Path | None = None,
) -> GitMergeResult:
    """Merge the trees `ours` and `theirs`. Objects go to the repository; no file changes. Raises `GitFailed`.

    The attributes in `work_tree` decide how a file is merged.
    """
    sides = _wrapped(repository, base, ours, theirs)
    options = ("-c", f"merge.directoryRenames={directory_renames}")
    command = ("merge-tree", "--write-tree", "-z", "--messages", *sides)
    with repository.start(*options, *command, work_tree=work_tree, index=index) as running:
        said = running.finish(succeeds=(0, 1))[0]
        conflicted = running.failed
    fields = iter(said.split(b"\0"))
    tree = next(fields).decode("ascii")
    merged = GitMergeResult(tree, sides, _stages(fields), tuple(_messages(fields)))
    if conflicted and not merged.stages and not merged.messages:
        # Never observed; but a conflict must never pass for a clean merge.
        raise GitFailed("merge-tree", "git reports conflicts without file names")
    return merged


def _stages(fields: Iterator[bytes]) -> dict[str, dict[int, FileState]]:
    """Parse the stages, up to the first other field."""
    found: dict[str, dict[int, FileState]] = {}
    for field in fields:
        match = _STAGE.fullmatch(field)
        if match is None:
            break
        state = FileState(int(match[1], 8), match[2].decode("ascii"))
        found.setdefault(os.fsdecode(match[4]), {})[int(match[3])] = state
    return found


def _messages(fields: Iterator[bytes]) -> Iterator[MergeMessage]:
    for count in fields:
        if not count.strip():
            continue
        paths = tuple(os.fsdecode(next(fields)) for _ in range(int(count)))
        title = next(fields).decode("utf-8", "replace")
        words = next(fields).decode("utf-8", "replace")
        if title.startswith("CONFLICT"):
            kind = _KIND.match(words) or _KIND.match(title)
            yield MergeMessage(kind[1] if kind else title, paths)


def _wrapped(repository: PrivateRepository, base: str, ours: str, theirs: str) -> tuple[str, str]:
    """Return commits of `ours` and `theirs` whose parent is a commit of `base`. Starts one process."""
    root = _commit(base)
    commits = [_commit(tree, _name(root, base)) for tree in (ours, theirs)]
    with TemporaryDirectory(dir=repository.directory) as folder:
        drafts = [Path(folder, str(number)) for number in range(1 + len(commits))]
        for draft, commit in zip(drafts, (root, *commits), strict=True):
            draft.write_bytes(commit)
        feed = b"".join(os.fsencode(draft) + b"\n" for draft in drafts)
        said = repository.git("hash-object", "-t", "commit", "-w", "--no-filters", "--stdin-paths", feed=feed)
    _, first, second = said.decode("ascii").split()
    return first, second


def _commit(tree: str, *parents: str) -> bytes:
    lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents)]
    lines += [f"{role} CleverAgents <cleveragents@localhost> 0 +0000" for role in ("author", "committer")]
    return "\n".join([*lines, "", "merged by CleverAgents", ""]).encode("ascii")


def _name(commit: bytes, like: str) -> str:
    """Return git's name for the commit, in the hash format of `like`."""
    whole = b"commit %d\0%b" % (len(commit), commit)
    digest = hashlib.sha256(whole) if len(like) == 64 else hashlib.sha1(whole, usedforsecurity=False)
    return digest.hexdigest()


def merged_content(
    repository: PrivateRepository, ancestor: str | None, ours: str, theirs: str, *, favour: str | None = None
) -> str | None:
    """Merge three contents and return the stored result; None if they conflict.

    Without an ancestor, an empty content is used. `favour` names the side ("ours", "theirs") that wins
    conflicts.
    """
    options = ("-p", "--quiet", *([f"--{favour}"] if favour else []))
    with tempfile.TemporaryDirectory(prefix="cleveragents-merge-") as place:
        files = []
        for side, name in (("ours", ours), ("ancestor", ancestor), ("theirs", theirs)):
            file = Path(place) / side
            file.write_bytes(b"" if name is None else repository.git("cat-file", "blob", name))
            files.append(str(file))
        try:
            # The exit code is the number of conflicts; binary files are refused.
            merged = repository.git("merge-file", *options, *files)
        except GitFailed:
            return None
    return repository.git("hash-object", "-w", "--stdin", feed=merged).decode("ascii").strip()
