"""Puts files back into a sandbox while hostile processes may be changing its directories.

git writes the files into a directory that no command can reach. From there each is moved into place by a
rename between open directories, so a directory that is swapped for a link at any moment leads nowhere.

Moves entries out of a sandbox's files for a while, and back, however often a process is killed over it.

What is moved is written down first, and nothing is copied: until the list is gone, each entry on it is in one
of two places, and whoever comes next brings back what is still in the wrong one.

What a checkout gives, and telling a change from a conversion by it.

Where attributes or settings convert line endings, git compares what it would store, not what is there: a file
that was committed with other endings than its attributes want counts as changed though nobody touched it. For
us a file is unchanged when its bytes are those that a checkout of the base gives.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from cleveragents.core.change import GITLINK, FileState
from cleveragents.core.errors import SandboxRefused
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.git.git_directory import flush
from cleveragents.git.plumbing import PrivateRepository, index_line
from cleveragents.sandboxes.facts import SandboxLayout
from cleveragents.storage.files.paths import (
    delete_file,
    directory_of,
    open_directory,
    open_root,
    read_file,
    remove_all,
    remove_entry,
)

__all__ = ["FileQuarantine", "exported", "restore_files", "untouched"]


_IN_THE_WAY = frozenset({errno.ENOTDIR, errno.ELOOP})
# Only a process that fights for the place makes it take more than one.
_ATTEMPTS = 100


def restore_files(
    place: SandboxLayout, engine: PrivateRepository, states: Mapping[str, FileState | None], index: Path
) -> None:
    """Makes each path be in its state, in place of whatever is there; `index` is used up.

    `SandboxRefused` if a process keeps putting something in the way.
    """
    for path, state in states.items():
        if state is None:
            delete_file(place.tree, path)
    recorded = {path: state for path, state in states.items() if state is None or state.mode != GITLINK}
    for path in states.keys() - recorded.keys():
        _make_directory(place.tree, path)
    files = [path for path, state in recorded.items() if state is not None]
    if not files:
        return
    with exported(place, engine, recorded, index) as export:
        for path in files:
            _put(export, place.tree, path)


def _make_directory(tree: Path, path: str) -> None:
    """The place of a submodule."""
    with _made_directory_of(tree, path) as (directory, name):
        below = _made(directory, name)
        if below is None:
            raise _contested(tree, path)
        os.close(below)


def _put(export: Path, tree: Path, path: str) -> None:
    with directory_of(export, path) as source, _made_directory_of(tree, path) as (directory, name):
        assert source is not None
        for _ in range(_ATTEMPTS):
            remove_entry(directory, name)  # first: some file systems flush what replaces another file
            with suppress(IsADirectoryError, FileExistsError):
                os.rename(source[1], name, src_dir_fd=source[0], dst_dir_fd=directory)
                return
    raise _contested(tree, path)


@contextmanager
def _made_directory_of(tree: Path, path: str) -> Iterator[tuple[int, str]]:
    """The open directory that holds `path`, and its last part. What is in a directory's way is removed."""
    *parents, name = path.split("/")
    descriptor = open_root(tree)
    try:
        for part in parents:
            below = _made(descriptor, part)
            if below is None:
                raise _contested(tree, path)
            os.close(descriptor)
            descriptor = below
        yield descriptor, name
    finally:
        os.close(descriptor)


def _made(directory: int, name: str) -> int | None:
    for _ in range(_ATTEMPTS):
        try:
            return open_directory(directory, name)
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in _IN_THE_WAY:
                raise
            remove_entry(directory, name)
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=directory)
    return None


def _contested(tree: Path, path: str) -> SandboxRefused:
    return SandboxRefused(str(tree), f"{path!r} cannot be restored: a process keeps replacing its directory")


@dataclass(frozen=True, slots=True)
class FileQuarantine:
    """For one sandbox. Stateless but for the place; whoever moves anything holds the sandbox's lock.

    Entries are paths below its files; a directory's may end in a slash.
    """

    place: SandboxLayout
    durable: bool = False
    faults: FaultPoints = field(default_factory=NoFaults)

    def entries(self) -> tuple[str, ...]:
        """What is set aside now, or is just coming or going."""
        try:
            return tuple(json.loads(self._list.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError):
            return ()

    def move(self, entries: Sequence[str]) -> None:
        """None of them is among the files afterwards. `SandboxRefused`: then some may be; `put_back`."""
        if not entries:
            return
        try:
            self._write_down(entries)
            self.faults.reach("sandbox.aside.listed")
            for number, entry in enumerate(entries):
                with directory_of(self.place.tree, entry.rstrip("/")) as found:
                    if found is not None:
                        os.rename(found[1], self._held(number), src_dir_fd=found[0])
        except OSError as error:
            reason = f"what is ignored cannot be set aside for a check ({error.strerror}: {error.filename})"
            raise SandboxRefused(str(self.place.tree), reason) from error
        self.faults.reach("sandbox.aside.moved")

    def put_back(self) -> None:
        """Every entry is where it was, in place of whatever came there meanwhile; one whose way is blocked is
        kept beside the files. Costs nothing if none is set aside."""
        if not self.place.set_aside.is_dir() or not self.place.tree.is_dir():
            return
        for number, entry in enumerate(self.entries()):
            if os.path.lexists(self._held(number)):  # guard: one that was not moved, or is back, stays
                self._return(number, entry.rstrip("/"))
        self.faults.reach("sandbox.aside.returned")
        if any(path.name.isdigit() for path in self.place.set_aside.iterdir()):  # guard: nothing is lost
            self.place.set_aside.rename(self.place.directory / f"aside-{secrets.token_hex(4)}")
        else:
            remove_all(self.place.set_aside)

    def remove(self, entry: str) -> None:
        """Takes an entry away for good."""
        with directory_of(self.place.tree, entry.rstrip("/")) as found:
            if found is not None:
                remove_entry(*found)

    @property
    def _list(self) -> Path:
        return self.place.set_aside / "entries.json"

    def _held(self, number: int) -> Path:
        return self.place.set_aside / str(number)

    def _write_down(self, entries: Sequence[str]) -> None:
        self.place.set_aside.mkdir()
        draft = self._list.with_suffix(".new")
        draft.write_text(json.dumps(list(entries)), encoding="utf-8")
        if self.durable:
            flush(draft)
        draft.replace(self._list)
        if self.durable:
            flush(self.place.set_aside)  # guard: files in a place of which no list tells

    def _return(self, number: int, path: str) -> None:
        with directory_of(self.place.tree, path, make=True) as found:
            if found is not None:
                remove_entry(*found)
                os.rename(self._held(number), found[1], dst_dir_fd=found[0])


def untouched(
    place: SandboxLayout, engine: PrivateRepository, states: Mapping[str, FileState], index: Path
) -> frozenset[str]:
    """The paths whose files are, byte for byte, what a checkout of these states gives under the attributes in
    the index, a copy of the caller's own that is used up."""
    with exported(place, engine, states, index) as export:
        return frozenset(path for path in states if _are_alike(place.tree, export, path))


@contextmanager
def exported(
    place: SandboxLayout, engine: PrivateRepository, states: Mapping[str, FileState | None], index: Path
) -> Iterator[Path]:
    """A directory with the files that a checkout of these states gives; no command can reach it.

    Attributes are those of the index, a copy of the caller's own, with these states in it.
    """
    export = place.scratch("export")
    export.mkdir()
    there = {path: state for path, state in states.items() if state is not None}
    no_object = "0" * max((len(state.content) for state in there.values()), default=40)
    lines = [index_line(0, no_object, path) for path, state in states.items() if state is None]
    lines += [index_line(state.mode, state.content, path) for path, state in there.items()]
    feed = b"".join(os.fsencode(path) + b"\0" for path in there)
    try:
        engine.git("update-index", "--replace", "-z", "--index-info", index=index, feed=b"".join(lines))
        options = ("checkout-index", "-z", "--stdin", f"--prefix={export}/")
        engine.git(*options, work_tree=place.nothing, index=index, feed=feed)
        yield export
    finally:
        remove_all(export)


def _are_alike(tree: Path, export: Path, path: str) -> bool:
    """By size first: what a command left there may be larger than memory."""
    if _size_of(tree, path) != _size_of(export, path):
        return False
    return read_file(tree, path) == read_file(export, path)


def _size_of(root: Path, path: str) -> int | None:
    with directory_of(root, path) as found:
        try:
            return None if found is None else os.lstat(found[1], dir_fd=found[0]).st_size
        except OSError:
            return None
