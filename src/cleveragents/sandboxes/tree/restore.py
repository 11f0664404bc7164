"""Restore files of a sandbox while hostile processes may change its directories.

git writes the files into a directory that no command can reach. From there each file is renamed into place,
relative to open directories. So even if a command replaces a directory by a link, no file is written outside
the tree.

Ignored files can be hidden for a while and restored, even after repeated crashes. The list of files is
written first, and files are moved, not copied. Until the list is deleted, each file is in one of two places,
and the next writer restores the hidden files.

A file counts as unchanged if its bytes are those of a checkout of the base. git would instead compare the
form in which it stores files: a file committed with other line endings than its attributes require would
count as changed.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct, field

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
# More than one is needed only if a process keeps interfering.
_ATTEMPTS = 100


def restore_files(
    place: SandboxLayout, engine: PrivateRepository, states: Mapping[str, FileState | None], index: Path
) -> None:
    """Set each path to its state, replacing whatever is there. Modifies `index`.

    Raises `SandboxRefused` if a process keeps interfering.
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
    """Create the directory of a submodule."""
    with _made_directory_of(tree, path) as (directory, name):
        below = _made(directory, name)
        if below is None:
            raise _contested(tree, path)
        os.close(below)


def _put(export: Path, tree: Path, path: str) -> None:
    with directory_of(export, path) as source, _made_directory_of(tree, path) as (directory, name):
        assert source is not None
        for _ in range(_ATTEMPTS):
            remove_entry(directory, name)  # first: some file systems flush a file that replaces another
            with suppress(IsADirectoryError, FileExistsError):
                os.rename(source[1], name, src_dir_fd=source[0], dst_dir_fd=directory)
                return
    raise _contested(tree, path)


@contextmanager
def _made_directory_of(tree: Path, path: str) -> Iterator[tuple[int, str]]:
    """Yield the open parent directory of `path` and the last part of `path`. Creates missing directories, and
    replaces anything else on the way by directories.
    """
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
    return SandboxRefused(str(tree), f"cannot restore {path!r}: a process keeps replacing the directory")


class FileQuarantine(Struct, frozen=True):
    """Hides entries of one sandbox and restores them. Has no state besides the files; the caller holds the
    sandbox's lock.

    Entries are paths below the sandbox's tree; the path of a directory may end in a slash.
    """

    place: SandboxLayout
    durable: bool = False
    faults: FaultPoints = field(default_factory=NoFaults)

    def entries(self) -> tuple[str, ...]:
        """Return the entries that are hidden, or are being moved."""
        try:
            return tuple(json.loads(self._list.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError):
            return ()

    def move(self, entries: Sequence[str]) -> None:
        """Hide the entries. Raises `SandboxRefused`; some may then be hidden, so call `put_back`."""
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
            reason = f"cannot hide ignored files during a check ({error.strerror}: {error.filename})"
            raise SandboxRefused(str(self.place.tree), reason) from error
        self.faults.reach("sandbox.aside.moved")

    def put_back(self) -> None:
        """Restore every hidden entry, replacing whatever took its place. An entry that cannot be restored is
        moved to a directory beside the tree.

        Costs nothing if no entry is hidden.
        """
        if not self.place.set_aside.is_dir() or not self.place.tree.is_dir():
            return
        for number, entry in enumerate(self.entries()):
            if os.path.lexists(self._held(number)):  # guard: some may not be moved, or be back
                self._return(number, entry.rstrip("/"))
        self.faults.reach("sandbox.aside.returned")
        if any(path.name.isdigit() for path in self.place.set_aside.iterdir()):  # guard: nothing is lost
            self.place.set_aside.rename(self.place.directory / f"aside-{secrets.token_hex(4)}")
        else:
            remove_all(self.place.set_aside)

    def remove(self, entry: str) -> None:
        """Delete an entry permanently."""
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
            flush(self.place.set_aside)  # guard: never hide files without a durable list of them

    def _return(self, number: int, path: str) -> None:
        with directory_of(self.place.tree, path, make=True) as found:
            if found is not None:
                remove_entry(*found)
                os.rename(self._held(number), found[1], dst_dir_fd=found[0])


def untouched(
    place: SandboxLayout, engine: PrivateRepository, states: Mapping[str, FileState], index: Path
) -> frozenset[str]:
    """Return the paths whose files equal, byte by byte, a checkout of these states under the index's
    attributes.

    Modifies the index, the caller's own copy.
    """
    with exported(place, engine, states, index) as export:
        return frozenset(path for path in states if _are_alike(place.tree, export, path))


@contextmanager
def exported(
    place: SandboxLayout, engine: PrivateRepository, states: Mapping[str, FileState | None], index: Path
) -> Iterator[Path]:
    """Yield a directory with a checkout of these states, which no command can reach.

    Attributes come from the index, the caller's own copy, with these states added.
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
    """Return whether two files are equal. Compares sizes first: a file may be larger than memory."""
    if _size_of(tree, path) != _size_of(export, path):
        return False
    return read_file(tree, path) == read_file(export, path)


def _size_of(root: Path, path: str) -> int | None:
    with directory_of(root, path) as found:
        try:
            return None if found is None else os.lstat(found[1], dir_fd=found[0]).st_size
        except OSError:
            return None
