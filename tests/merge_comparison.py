"""Comparison of a merge result with git's own.

Independent of the code that merges: it runs git in the user's repository and parses its answer itself.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from cleveragents.changes.model.merge_conflict import MergeConflict

__all__ = ["GitMerge", "difference", "entries", "git_merge"]

Entry = tuple[str, str]
_MARKS = re.compile(rb"^([<>]{7,}) [^\r\n]*", re.MULTILINE)


def _git(repository: Path, *arguments: str, codes: Collection[int] = (0,)) -> bytes:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "LC_ALL": "C",
    }
    done = subprocess.run(
        ["git", *arguments], cwd=repository, env=environment, capture_output=True, check=False
    )
    assert done.returncode in codes, done.stderr.decode(errors="replace")
    return done.stdout


@dataclass(frozen=True)
class GitMerge:
    """git's tree, without the names of files that make way, and its conflicts."""

    tree: str
    conflicted: frozenset[str]
    files: Mapping[str, Entry]


def git_merge(repository: Path, ours: str, theirs: str) -> GitMerge | None:
    """Return the result of `git merge-tree` for two commits.

    Uses git's defaults and the work tree's attributes.

    None if git gives no answer or loses a file: version 2.39 rarely does, where a renamed directory and a
    file in its place meet.
    """
    command = ("merge-tree", "--write-tree", "-z", "--messages", ours, theirs)
    said = _git(repository, *command, codes=(0, 1, -signal.SIGABRT))
    if not said:
        return None
    tree, *fields = os.fsdecode(said).split("\0")
    aside = re.compile(f"~({ours}|{theirs})(_[0-9]+)?$")
    staged: set[str] = set()
    while fields and fields[0]:
        staged.add(fields.pop(0).partition("\t")[2])
    conflicted = {aside.sub("", path) for path in staged}
    fields = fields[1:]
    while fields and fields[0].isdecimal():
        count = int(fields[0])
        paths, kind = [aside.sub("", path) for path in fields[1 : count + 1]], fields[count + 1]
        fields = fields[count + 3 :]
        if kind.startswith("CONFLICT") and conflicted.isdisjoint(paths):
            conflicted.add(paths[0])
    whole = entries(repository, tree)
    if any(not name.strip("0") for _, name in whole.values()):
        return None
    files = {path: entry for path, entry in whole.items() if not aside.search(path)}
    return GitMerge(tree, frozenset(conflicted), files)


def entries(repository: Path, tree: str) -> dict[str, Entry]:
    """Return every file of a tree: its mode, and the hash of its content."""
    listed = os.fsdecode(_git(repository, "ls-tree", "-r", "-z", "--full-tree", tree))
    found = {}
    for line in listed.split("\0")[:-1]:
        about, _, path = line.partition("\t")
        mode, _, name = about.split(" ")
        found[path] = (mode, name)
    return found


def difference(
    git: GitMerge,
    files: Mapping[str, Entry],
    conflicts: Collection[MergeConflict],
    content: tuple[Callable[[str], bytes], Callable[[str], bytes]],
) -> str | None:
    """Return how a merge differs from git's, as text; None if it does not.

    `content` returns git's content and ours. A path in conflict is left out, with everything below it, unless
    its conflict is marked in its text: then the text must be the same except for the names of the sides.
    """
    told = {conflict.path for conflict in conflicts}
    if told != git.conflicted:
        return (
            f"conflicts only there: {sorted(told - git.conflicted)}; missed: {sorted(git.conflicted - told)}"
        )
    below = tuple(f"{path}/" for path in told)
    for path in sorted({*git.files, *files}):
        if path not in told and not path.startswith(below) and git.files.get(path) != files.get(path):
            return f"{path}: git has {git.files.get(path)}, it is {files.get(path)}"
    theirs_of, ours_of = content
    for conflict in conflicts:
        if conflict.marked:
            one, other = git.files[conflict.path], files[conflict.path]
            marked = [_MARKS.sub(rb"\1", text) for text in (theirs_of(one[1]), ours_of(other[1]))]
            if one[0] != other[0] or marked[0] != marked[1]:
                return f"{conflict.path}: it is marked otherwise"
    return None
