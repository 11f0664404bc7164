"""The files of a work tree or a commit according to git, without running anything that a repository
configures.

To find out whether a file has changed, git would run the repository's filters. So git is asked only for the
entries of its index and for untracked files; this module itself checks whether the files have changed. A file
is unchanged if its times, size and inode match the index and it is older than the index.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from cleveragents.context.index.place import IndexDeadline, ResolvedPlace, git_seconds
from cleveragents.context.index.view import NEVER_SOUGHT, FileEntry, FileStamps, IndexView, left_out, named
from cleveragents.core.errors import GitFailed
from cleveragents.git.plumbing import RunningGit, run_git, user_environment

__all__ = ["commit_view", "view_of", "work_tree_view"]

_REGULAR = (b"100644", b"100755", b"100664")
_LISTED = re.compile(
    rb"(\d+) ([0-9a-f]+) (\d)\t([^\0]+)\0"
    rb"(?:  ctime: (\d+):(\d+)\n  mtime: (\d+):(\d+)\n  dev: \d+\tino: (\d+)\n"
    rb"  uid: \d+\tgid: \d+\n  size: (\d+)\tflags: [0-9a-f]+\n)?"
)
_SECONDS = 60.0
_TREE = re.compile(rb"(\d+) (\w+) ([0-9a-f]+)\t([^\0]+)\0")


def work_tree_view(
    ground: ResolvedPlace, stamps: FileStamps, most_files: int, patience: IndexDeadline
) -> IndexView:
    """Return the files below the root in their current state: tracked files, and untracked files that are not
    ignored.
    """
    repository = ground.repository
    assert repository is not None
    written_ns = _written_ns(repository.git_dir / "index")
    environment = user_environment()
    skipped = [f"--exclude={name}/" for name in NEVER_SOUGHT]
    unreadable: list[str] = []
    with ExitStack() as stack:
        indexed, others = [
            stack.enter_context(
                RunningGit(
                    *arguments,
                    environment=environment,
                    directory=ground.root,
                    seconds_left=git_seconds(patience, seconds),
                )
            )
            for seconds, arguments in (
                (_SECONDS, ("ls-files", "-z", "--stage", "--debug")),
                (_SECONDS / 2, ("ls-files", "-z", "--others", "--exclude-standard", *skipped)),
            )
        ]
        entries = _tracked(indexed.finish()[0], ground.root, stamps, written_ns, unreadable)
        listed, late = _others(others)
    known = {entry.path for entry in entries}
    for path in named((name for name in listed if name and name[-1:] != b"/"), unreadable):
        entry = None if path in known else stamps.look(path)
        if entry is not None:
            entries.append(entry)
    view = view_of(entries, unreadable, most_files, stamps)
    return replace(view, notes=(*late, *view.notes), whole=view.whole and not late)


def _others(running: RunningGit) -> tuple[list[bytes], tuple[str, ...]]:
    """Return the untracked files and notes. If git does not finish in time, return no files and a note."""
    try:
        return running.finish()[0].split(b"\0"), ()
    except GitFailed as error:
        if not running.late:
            raise
        return [], (f"files that git does not track are left out: git ls-files: {error.problem}",)


def commit_view(ground: ResolvedPlace, most_files: int, patience: IndexDeadline) -> IndexView:
    """Return the files of the commit below the root."""
    if ground.commit is None:
        return IndexView([])
    told = run_git(
        "ls-tree",
        "-r",
        "-z",
        ground.commit,
        environment=ground.git.environment,
        directory=ground.git.directory,
        seconds_left=git_seconds(patience, _SECONDS),
    )
    found = [(match[3], match[4]) for match in _TREE.finditer(told) if match[1] in _REGULAR]
    unreadable: list[str] = []
    entries = [
        FileEntry(path, bytes.fromhex(digest.decode("ascii")), 0, False)
        for digest, name in found
        for path in named((name,), unreadable)
    ]
    return view_of(entries, unreadable, most_files, None)


def view_of(
    entries: list[FileEntry], unreadable: list[str], most: int, stamps: FileStamps | None
) -> IndexView:
    """Return a sorted view, with notes on the files that are left out."""
    entries.sort()
    notes = left_out(unreadable, "because their names are not UTF-8")
    notes += left_out([entry.path for entry in entries[most:]], "because there are too many")
    if stamps is None:
        return IndexView(entries[:most], tuple(notes))
    return IndexView(entries[:most], (*notes, *stamps.notes), not stamps.late, stamps.fresh)


def _tracked(
    listed: bytes, root: Path, stamps: FileStamps, written_ns: int, unreadable: list[str]
) -> list[FileEntry]:
    """Return the tracked files that exist."""
    rows = _LISTED.findall(listed)
    if listed and (not rows or listed.count(b"\0") != len(rows)):
        raise GitFailed("ls-files", "unexpected output")
    entries: list[FileEntry] = []
    before = os.fsencode(root) + b"/"
    unsure: dict[str, None] = {}
    for mode, digest, stage, name, changed, changed_ns, modified, modified_ns, number, size in rows:
        if mode not in _REGULAR:
            continue
        try:
            status = os.lstat(before + name)
            path = name.decode()
        except OSError as error:
            stamps.miss(name.decode("utf-8", "backslashreplace"), error)
            continue
        except UnicodeDecodeError:
            unreadable.append(name.decode("utf-8", "backslashreplace"))
            continue
        if status.st_mtime_ns >= written_ns:  # guard: a later change may have left the same time
            unsure[path] = None
        elif (
            stage == b"0"
            and size != b""
            and status.st_mtime_ns == int(modified) * 1_000_000_000 + int(modified_ns)
            and status.st_ctime_ns == int(changed) * 1_000_000_000 + int(changed_ns)
            and status.st_size == int(size)
            and status.st_ino & 0xFFFFFFFF == int(number)  # the index stores 32 bits of it
            and stat.S_ISREG(status.st_mode)
        ):
            entries.append(FileEntry(path, bytes.fromhex(digest.decode()), status.st_size, False))
        else:
            # During a merge, a path has several entries: the file's content counts, once.
            unsure[path] = None
    for path in unsure:
        entry = stamps.look(path)
        if entry is not None:
            entries.append(entry)
    return entries


def _written_ns(index: Path) -> int:
    try:
        return index.stat().st_mtime_ns
    except OSError:
        return 0
