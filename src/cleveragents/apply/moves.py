"""Move the user's files from one state to the next, and back, one swap at a time.

Forward: each file that is swapped out must be, byte for byte, the file that was merged; otherwise it is
swapped back at once. Back: only the current files are examined, so the way back is the same after an error
and after a crash. A file in its new state is replaced by the kept old file. A file in neither state was
changed by another program and stays.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType

from cleveragents.apply.exchange import (
    ABSENT,
    DirectoryHandle,
    Metadata,
    Place,
    exchange,
    fingerprint,
    look,
    move,
    write_metadata,
)
from cleveragents.apply.journal import Journal, MovedFile
from cleveragents.core.faults import FaultPoints

__all__ = ["FileChanged", "Mover", "parents_of", "remove_staging"]

# The kernel's errors if a name holds something else than a moment ago.
_ANOTHERS_DOING = (errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENOTEMPTY)


class FileChanged(Exception):
    """The user changed a file after it was merged. The file keeps the user's change."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class Mover:
    """The moves of one journal. Not thread-safe: use it in the call that opened it, under the resource's
    lock.

    `name` is the prefix of its fault points.
    """

    def __init__(self, resource: Path, journal: Journal, faults: FaultPoints, name: str) -> None:
        self._journal = journal
        self._faults = faults
        self._name = name
        with ExitStack() as opened:
            self._folder = opened.enter_context(DirectoryHandle(resource))
            self._new = opened.enter_context(DirectoryHandle(Path(journal.staging, "new")))
            self._old = opened.enter_context(DirectoryHandle(Path(journal.staging, "old")))
            self._opened = opened.pop_all()
        self._written: dict[str, tuple[int, int]] = {}
        # Deletions first: a file may become a directory, and a directory a file.
        numbered = list(enumerate(journal.files))
        self._deletions = [(n, file) for n, file in numbered if file.becomes == ABSENT]
        self._arrivals = [(n, file) for n, file in numbered if file.becomes != ABSENT]

    def __enter__(self) -> Mover:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    def forward(self) -> None:
        """Move every file to its new state. After `FileChanged` or `OSError`, some files are already moved,
        so call `back`.
        """
        for number, file in self._deletions:
            self._step(self._take_out, number, file)
        for path in sorted(self._journal.emptied, reverse=True):
            self._empty(path)
        for number, file in self._arrivals:
            self._step(self._create if file.was == ABSENT else self._swap, number, file)
        for path, there in self._journal.submodules.items():
            if there:
                self._reach("before")
                self._folder.make_parents(f"{path}/.")
                self._reach("after")
        self._ensure_nobody_wrote()

    def back(self) -> list[str]:
        """Move every file to its old state, except files that others have changed; return their paths."""
        alone = [file.path for number, file in reversed(self._arrivals) if not self._returned(number, file)]
        for path in sorted(self._journal.made, reverse=True):
            self._folder.remove_directory(path)
        alone += [file.path for number, file in self._deletions if not self._put_back(number, file)]
        alone += [
            path
            for path, there in self._journal.submodules.items()
            if not there and not self._remade_directory(path)
        ]
        return sorted(alone)

    def is_complete(self) -> bool:
        """Return whether every file is in its new state."""
        links = self._journal.submodules.items()
        return all(self._folder.look(path).is_directory == there for path, there in links) and all(
            self._now(file) == file.becomes for file in self._journal.files
        )

    def holds_only_known(self) -> bool:
        """Return whether each kept file is in its recorded old or new state, so none holds other work."""
        for number, file in enumerate(self._journal.files):
            slots = [(self._old, str(number)), (self._old, f"{number}.spare")]
            if file.becomes != ABSENT:
                slots.append((self._new, file.path))
            if any(
                folder.fingerprint(slot) not in (ABSENT, file.was, file.becomes) for folder, slot in slots
            ):
                return False
        return True

    def _step(self, act: Callable[[int, MovedFile], None], number: int, file: MovedFile) -> None:
        self._reach("before")
        try:
            act(number, file)
        except OSError as error:
            if error.errno in _ANOTHERS_DOING:
                raise FileChanged(file.path) from error
            if error.errno is not None:  # name the file below the directory, not its temporary place
                raise OSError(error.errno, os.strerror(error.errno), file.path) from error
            raise
        self._reach("after")

    def _empty(self, path: str) -> None:
        if path not in self._journal.submodules:
            self._folder.remove_directory(path)
            return
        self._reach("before")
        if not self._folder.remove_directory(path):  # guard: it was checked out meanwhile
            raise FileChanged(path)
        self._reach("after")

    def _create(self, number: int, file: MovedFile) -> None:
        self._make_parents(file.path, self._journal.permissions)
        move(self._new.place(file.path), self._folder.place(file.path))

    def _take_out(self, number: int, file: MovedFile) -> None:
        target, slot = self._folder.place(file.path), self._old.place(str(number))
        move(target, slot)
        if not self._is_expected(slot, file):  # guard: delete only the version that was merged
            move(slot, target)
            raise FileChanged(file.path)

    def _swap(self, number: int, file: MovedFile) -> None:
        target, slot = self._folder.place(file.path), self._new.place(file.path)
        exchange(slot, target, self._spare(number))
        if not self._is_expected(slot, file):  # guard: replace only the version that was merged
            exchange(slot, target, self._spare(number))
            raise FileChanged(file.path)

    def _is_expected(self, slot: Place, file: MovedFile) -> bool:
        observation = look(slot)
        self._written[file.path] = observation.written
        return observation.fingerprint == file.was

    def _ensure_nobody_wrote(self) -> None:
        """Raise `FileChanged` if a program that had a file open wrote to it after it was swapped out."""
        for number, file in enumerate(self._journal.files):
            if file.was == ABSENT or file.was.startswith("120000:"):
                continue
            kept = self._old.place(str(number)) if file.becomes == ABSENT else self._new.place(file.path)
            directory, name = kept
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if (status.st_mtime_ns, status.st_size) != self._written[file.path]:  # guard: not a byte is lost
                raise FileChanged(file.path)

    def _returned(self, number: int, file: MovedFile) -> bool:
        """Undo a creation or replacement; return whether the path is in its old state."""
        now = self._now(file)
        if now == file.was:
            return True
        if now != file.becomes:  # guard: keep the changes of others
            return False
        self._reach("before")
        undone = self._withdrawn(file) if file.was == ABSENT else self._swapped_back(number, file)
        self._reach("after")
        return undone

    def _withdrawn(self, file: MovedFile) -> bool:
        target, slot = self._folder.place(file.path), self._new.place(file.path)
        if fingerprint(slot) != ABSENT:
            # Either only the link of a link-and-unlink move was made, or it is a file of another program.
            if not _same(target, slot):
                return False
            os.unlink(target[1], dir_fd=target[0])
            return True
        move(target, slot)
        if fingerprint(slot) == file.becomes:
            return True
        move(slot, target)
        return False

    def _swapped_back(self, number: int, file: MovedFile) -> bool:
        target, slot = self._folder.place(file.path), self._new.place(file.path)
        held = fingerprint(slot)
        if held == ABSENT:
            slot = self._old.place(str(number))
            held = fingerprint(slot)
        if held in (ABSENT, file.becomes):
            return False
        exchange(slot, target, self._spare(number, beside=True))
        if fingerprint(slot) == file.becomes:
            return True
        exchange(slot, target, self._spare(number, beside=True))
        return False

    def _put_back(self, number: int, file: MovedFile) -> bool:
        """Undo a deletion; return whether the path is in its old state."""
        slot = self._old.place(str(number))
        kept = fingerprint(slot) != ABSENT
        now = self._now(file)
        if now != ABSENT or not kept:
            return now == file.was
        self._reach("before")
        try:
            self._make_parents(file.path, self._journal.emptied)
            move(self._old.place(str(number)), self._folder.place(file.path))
        except (FileExistsError, NotADirectoryError):
            return False
        self._reach("after")
        return True

    def _make_parents(self, path: str, known: Mapping[str, Metadata | int]) -> None:
        missing = [parent for parent in parents_of(path) if not self._is_directory(parent)]
        self._folder.make_parents(path)
        for parent in missing:
            had = known.get(parent)
            directory, name = self._folder.place(parent)
            if isinstance(had, Metadata):
                write_metadata((directory, name), had)
            elif had is not None:
                os.chmod(name, had, dir_fd=directory)

    def _remade_directory(self, path: str) -> bool:
        try:
            self._make_parents(f"{path}/.", self._journal.emptied)
        except (FileExistsError, NotADirectoryError):  # keep what another process created there
            return False
        return True

    def _is_directory(self, path: str) -> bool:
        try:
            self._folder.place(f"{path}/.")
        except OSError:
            return False
        return True

    def _now(self, file: MovedFile) -> str:
        observation = self._folder.look(file.path)
        # A directory counts as no file: it exists if the file was replaced by files below its name.
        return ABSENT if observation.is_directory else observation.fingerprint

    def _spare(self, number: int, *, beside: bool = False) -> Place:
        return self._old.place(f"{number}.spare" if beside else str(number))

    def _reach(self, moment: str) -> None:
        self._faults.reach(f"{self._name}.move.{moment}")


def parents_of(path: str) -> Iterable[str]:
    """Yield the parent directories, nearest first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def remove_staging(directory: str) -> bool:
    """Remove the staging directory, and its parent if that is our own and empty. Return whether the directory
    is gone.
    """
    if not directory:
        return True
    shutil.rmtree(directory, ignore_errors=True)
    above = Path(directory).parent
    if above.name == "cleveragents":
        with suppress(OSError):
            above.rmdir()
    return not Path(directory).exists()


def _same(one: Place, other: Place) -> bool:
    first, second = (
        os.stat(name, dir_fd=directory, follow_symlinks=False) for directory, name in (one, other)
    )
    return os.path.samestat(first, second)
