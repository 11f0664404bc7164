"""What a work tree and a commit hold, as git tells it, without running anything that a repository names.

git itself would run a repository's filters to see whether a file has changed. So it is asked only for what
its index says and for the files it does not know; the files are looked at here. A file is as the index says
if its times, size and number are, and it is older than the index.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from cleveragents.errors import GitFailed
from cleveragents.infrastructure.context.index.directory_view import NEVER_SOUGHT
from cleveragents.infrastructure.context.index.place import Ground
from cleveragents.infrastructure.context.index.view import Entry, FileStamps, View, left_out, named
from cleveragents.infrastructure.git.plumbing import RunningGit, run_git, user_environment

__all__ = ["commit_view", "work_tree_view"]

_REGULAR = (b"100644", b"100755", b"100664")
_LISTED = re.compile(
    rb"(\d+) ([0-9a-f]+) (\d)\t([^\0]+)\0"
    rb"(?:  ctime: (\d+):(\d+)\n  mtime: (\d+):(\d+)\n  dev: \d+\tino: (\d+)\n"
    rb"  uid: \d+\tgid: \d+\n  size: (\d+)\tflags: [0-9a-f]+\n)?"
)
_TREE = re.compile(rb"(\d+) (\w+) ([0-9a-f]+)\t([^\0]+)\0")


class _Tracked(NamedTuple):
    digest: bytes
    stamp: tuple[int, ...] | None


def work_tree_view(ground: Ground, stamps: FileStamps, most_files: int) -> View:
    """The files below the root that are tracked, or neither tracked nor ignored, as they are now."""
    repository = ground.repository
    assert repository is not None
    written_ns = _written_ns(repository.git_dir / "index")
    environment = user_environment()
    skipped = [f"--exclude={name}/" for name in NEVER_SOUGHT]
    with ExitStack() as stack:
        running = [
            stack.enter_context(RunningGit(*arguments, environment=environment, directory=ground.root))
            for arguments in (
                ("ls-files", "-z", "--stage", "--debug"),
                ("ls-files", "-z", "--others", "--exclude-standard", *skipped),
            )
        ]
        listed, others = (one.finish()[0] for one in running)
    unreadable: list[str] = []
    entries: list[Entry] = []
    tracked = dict(_tracked(listed, unreadable))
    for path, (digest, stamp) in tracked.items():
        status = _status(ground.root, path)
        if status is None:
            continue
        if stamp is not None and _is_as(status, stamp) and status.st_mtime_ns < written_ns:  # guard: racy
            entries.append(Entry(path, digest, status.st_size, False))
            continue
        entry = stamps.entry(path, status)
        if entry is not None:
            entries.append(entry)
    for path in named((name for name in others.split(b"\0") if name and name[-1:] != b"/"), unreadable):
        status = _status(ground.root, path)
        entry = None if status is None or path in tracked else stamps.entry(path, status)
        if entry is not None:
            entries.append(entry)
    return _view(entries, unreadable, most_files, stamps)


def commit_view(ground: Ground, most_files: int) -> View:
    """The files of the commit, below the root."""
    if ground.commit is None:
        return View([])
    told = run_git(
        "ls-tree", "-r", "-z", ground.commit, environment=user_environment(), directory=ground.root
    )
    found = [(match[3], match[4]) for match in _TREE.finditer(told) if match[1] in _REGULAR]
    unreadable: list[str] = []
    entries = [
        Entry(path, bytes.fromhex(digest.decode("ascii")), 0, False)
        for digest, name in found
        for path in named((name,), unreadable)
    ]
    return _view(entries, unreadable, most_files, None)


def _view(entries: list[Entry], unreadable: list[str], most: int, stamps: FileStamps | None) -> View:
    entries.sort()
    notes = left_out(unreadable, "because their names are no UTF-8")
    notes += left_out([entry.path for entry in entries[most:]], "because there are too many")
    return View(entries[:most], tuple(notes), {} if stamps is None else stamps.fresh)


def _tracked(listed: bytes, unreadable: list[str]) -> Iterator[tuple[str, _Tracked]]:
    matches = list(_LISTED.finditer(listed))
    if listed and (not matches or matches[-1].end() != len(listed)):
        raise GitFailed("ls-files", "it lists the index in a way that is not understood")
    for match in matches:
        mode, digest, stage, name, *numbers = match.groups()
        if mode not in _REGULAR:
            continue
        for path in named((name,), unreadable):
            # In the middle of a merge there are several of one path: then what the file says counts.
            whole = stage == b"0" and numbers[0] is not None
            stamp = tuple(map(int, numbers)) if whole else None
            yield path, _Tracked(bytes.fromhex(digest.decode("ascii")), stamp)


def _is_as(status: os.stat_result, stamp: tuple[int, ...]) -> bool:
    """Whether the file is the one that the index speaks of; it has 32 bits for its number."""
    changed, changed_ns, modified, modified_ns, number, size = stamp
    return (
        status.st_mtime_ns == modified * 1_000_000_000 + modified_ns
        and status.st_ctime_ns == changed * 1_000_000_000 + changed_ns
        and status.st_size == size
        and status.st_ino & 0xFFFFFFFF == number
        and stat.S_ISREG(status.st_mode)
    )


def _status(root: Path, path: str) -> os.stat_result | None:
    try:
        return os.lstat(f"{root}/{path}")
    except OSError:
        return None


def _written_ns(index: Path) -> int:
    try:
        return index.stat().st_mtime_ns
    except OSError:
        return 0
