"""The files of a place: paths and the digests of their contents, before they are analysed.

Contents are named by git's digests, whether or not git knows them. In a directory outside of any repository,
links are not followed, and hidden files and directories with generated or downloaded files are skipped.
`.gitignore` files are applied as in a repository if git is installed. Nested repositories are entered like
other directories.

The index remembers the stamps of files that git does not track, and which contents were used recently.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cleveragents.context.index.build.segment import array_of, sealed, unsealed
from cleveragents.context.index.index_file import transaction
from cleveragents.context.index.place import IndexDeadline, ResolvedPlace
from cleveragents.core.errors import GitFailed, ToolRefused
from cleveragents.git.git_directory import GitDirectory
from cleveragents.git.plumbing import PrivateRepository
from cleveragents.storage.files.paths import directory_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "MOST_BYTES",
    "NEVER_SOUGHT",
    "FileEntry",
    "FileStamps",
    "IndexView",
    "blob_digest",
    "directory_view",
    "left_out",
    "named",
    "place_name",
    "read_below",
    "read_regular",
    "remember",
    "remembered_stamps",
    "stamp_of",
]


MOST_BYTES = 1 << 20
"""The largest file that is searched; larger ones are data."""
# A file system may give the same time to changes that are this far apart.
_RACY_NS = 2_000_000_000
_FIRST_NAMED = 3
# Files read before the clock is checked again; this many bytes count as one more file.
_LOOK_EVERY = 256
_WORTH_A_FILE = 1 << 16
_PORTION = 512
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

NEVER_SOUGHT = (
    "__pycache__",
    "node_modules",
    "bower_components",
    "site-packages",
    ".venv",
    ".tox",
    ".nox",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".gradle",
    ".idea",
    ".terraform",
)
"""Directories that never contain a project's own code, whatever a repository says."""

_ELSEWHERE = frozenset({*NEVER_SOUGHT, "venv", "env", "build", "dist", "target", "vendor", "out", "coverage"})
MOST_VIEWS = 32
_AGAIN_SECONDS = 3600
Stamps = Mapping[str, tuple[str, bytes]]


class FileEntry(NamedTuple):
    """A file. `size` is 0 if only git knows it; `on_disk`: the content is read from the disk."""

    path: str
    digest: bytes
    size: int
    on_disk: bool


@dataclass(frozen=True, slots=True)
class IndexView:
    """The files of a place, sorted by path.

    `stamps` are kept to recognise unchanged files at the next visit. If the view is not `whole`, the deadline
    passed before all files were read.
    """

    entries: list[FileEntry]
    notes: tuple[str, ...] = ()
    whole: bool = True
    stamps: Mapping[str, tuple[str, bytes]] = field(default_factory=dict)


def stamp_of(status: os.stat_result) -> str:
    """Return a stamp that changes whenever the file changes, except if the file changes right after its stamp
    was read.
    """
    return f"{status.st_mtime_ns}:{status.st_ctime_ns}:{status.st_size}:{status.st_ino}"


@dataclass
class FileStamps:
    """Determines the digests of files whose content git does not know; files that changed since the last view
    are read.

    A content read within two seconds of the file's modification time is not remembered, because the file may
    change again without a new time. When the time is over, no more files are read; but each view reads at
    least some files, so that eventually all are known. `late`: some files were not read. `keep` receives the
    results in portions, so that little is lost if the view is interrupted. Not thread-safe: one per view.
    """

    root: Path
    known: Mapping[str, tuple[str, bytes]]
    now_ns: int
    name_bytes: int = 20
    patience: IndexDeadline = field(default_factory=IndexDeadline)
    keep: Callable[[dict[str, tuple[str, bytes]]], None] | None = None
    fresh: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    late: bool = False
    _learned: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    _work: int = 0
    _enough: bool = False

    @property
    def notes(self) -> list[str]:
        """Notes on the files without an entry."""
        late = ["out of time before all files were read"] if self.late else []
        return [*left_out(self.unreadable, "because they cannot be read"), *late]

    def look(self, path: str) -> FileEntry | None:
        """Return the current state of a file; None if it is gone, unreadable, or the time is over."""
        try:
            return self.entry(path, os.lstat(f"{self.root}/{path}"))
        except OSError as error:
            self.miss(path, error)
            return None

    def miss(self, path: str, error: OSError) -> None:
        """Record a file without an entry. A missing file needs no note."""
        if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
            self.unreadable.append(path)

    def entry(self, path: str, status: os.stat_result) -> FileEntry | None:
        """Return the entry of a file with known stat data. Raises `OSError`."""
        if not stat.S_ISREG(status.st_mode):
            return None
        stamp = stamp_of(status)
        remembered = self.known.get(path)
        if remembered is not None and remembered[0] == stamp:
            self.fresh[path] = remembered
            return FileEntry(path, remembered[1], status.st_size, True)
        if status.st_size > MOST_BYTES:
            # Reading it to compute its digest would take longer than reading all the others.
            digest = blob_digest(f"too large: {path} {stamp}".encode(), name_bytes=self.name_bytes)
            return FileEntry(path, digest, status.st_size, True)
        data = None if self._is_late(status.st_size) else self._read(path)
        if data is None:
            return None
        digest = blob_digest(data, name_bytes=self.name_bytes)
        if max(status.st_mtime_ns, status.st_ctime_ns) < self.now_ns - _RACY_NS:  # guard: racy
            self._learn(path, (stamp, digest))
        return FileEntry(path, digest, len(data), True)

    def _is_late(self, size: int) -> bool:
        if self._work >= _LOOK_EVERY:
            self._work = 0
            self._enough = self._enough or self.patience.is_over
        self._work += 1 + size // _WORTH_A_FILE
        self.late = self.late or self._enough
        return self._enough

    def _learn(self, path: str, told: tuple[str, bytes]) -> None:
        self.fresh[path] = told
        self._learned[path] = told
        if self.keep is not None and len(self._learned) >= _PORTION:
            self.keep(self._learned)
            self._learned = {}

    def _read(self, path: str) -> bytes | None:
        """Read a file, not through links: a directory may have been replaced by a link to files that must not
        be searched.
        """
        with directory_of(self.root, path) as found:
            if found is None:
                return None
            data = read_regular(found[1], at_most=MOST_BYTES, directory=found[0])
            if data is None:
                status = os.stat(found[1], dir_fd=found[0], follow_symlinks=False)
                self.unreadable += [path] if stat.S_ISREG(status.st_mode) else []
            return data


def named(paths: Iterable[bytes], unreadable: list[str]) -> Iterator[str]:
    """Yield the paths that are UTF-8, and add the others to `unreadable`."""
    for path in paths:
        try:
            yield path.decode("utf-8")
        except UnicodeDecodeError:
            unreadable.append(path.decode("utf-8", "backslashreplace"))


def left_out(paths: list[str], why: str) -> list[str]:
    """Return a list with a note on files that are left out; empty if there are none."""
    if not paths:
        return []
    shown = ", ".join(paths[:_FIRST_NAMED]) + (", …" if len(paths) > _FIRST_NAMED else "")
    return [f"{len(paths)} left out, {why}: {shown}"]


def blob_digest(data: bytes, *, name_bytes: int = 20) -> bytes:
    """Return git's digest of a content, for repositories whose digests have `name_bytes` bytes."""
    name = hashlib.sha1(usedforsecurity=False) if name_bytes == 20 else hashlib.sha256()
    name.update(b"blob %d\0" % len(data))
    name.update(data)
    return name.digest()


def read_regular(path: Path | bytes | str, *, at_most: int, directory: int | None = None) -> bytes | None:
    """Return the content of a regular file, relative to an open directory if one is given; None if it is not
    a regular file, is unreadable, or is longer than `at_most`.

    Never blocks: the file may have been replaced by a pipe.
    """
    try:
        descriptor = os.open(path, _READ, dir_fd=directory)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > at_most:
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(at_most + 1)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return data if len(data) <= at_most else None


def read_below(root: Path, path: str, *, at_most: int) -> bytes | None:
    """Return the content of a file as `read_regular` does, for a path below `root`, without following any
    link on the way.
    """
    try:
        with directory_of(root, path) as found:
            return None if found is None else read_regular(found[1], at_most=at_most, directory=found[0])
    except OSError:
        return None


def directory_view(root: Path, stamps: FileStamps, most_files: int) -> IndexView:
    """Return the files below the root in their current state."""
    found: list[str] = []
    notes: list[str] = []
    ignoring: list[str] = []
    for path, name in _walk(str(root), stamps):
        if name == ".gitignore":
            ignoring.append(path.removesuffix(name))
        elif len(found) == most_files:
            notes.append(f"only the first {most_files} files are read")
            break
        else:
            found.append(path)
    if ignoring:
        found = _not_ignored(root, found, ignoring, notes)
    unreadable: list[str] = []
    entries = []
    for path in found:
        if not _is_text(path):
            unreadable.append(_shown(path))
            continue
        entry = stamps.look(path)
        if entry is not None:
            entries.append(entry)
    entries.sort()
    notes += left_out(unreadable, "because their names are not UTF-8")
    notes += stamps.notes
    return IndexView(entries, tuple(notes), not stamps.late, stamps.fresh)


def _walk(root: str, stamps: FileStamps) -> Iterator[tuple[str, str]]:
    """Yield the path below the root and the name of each file, including `.gitignore` files."""
    waiting = [""]
    seen = 0
    while waiting:
        below = waiting.pop()
        seen += 1
        if seen % _LOOK_EVERY == 0 and stamps.patience.is_over:
            stamps.late = True
            return
        try:
            with os.scandir(f"{root}/{below}") as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            stamps.miss(_shown(below), error)
            continue
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                if entry.name[0] != "." and entry.name not in _ELSEWHERE:
                    waiting.append(f"{below}{entry.name}/")
            elif entry.is_file(follow_symlinks=False) and (
                entry.name[0] != "." or entry.name == ".gitignore"
            ):
                yield below + entry.name, entry.name


def _not_ignored(root: Path, paths: list[str], ignoring: list[str], notes: list[str]) -> list[str]:
    """Return the paths that no `.gitignore` file in the directories `ignoring` matches."""
    # A file name may look like a git pathspec; with this prefix, it is only a name.
    feed = b"".join(b"./" + os.fsencode(path) + b"\0" for path in paths)
    try:
        with tempfile.TemporaryDirectory(prefix="cleveragents-ignored-") as place:
            directory = Path(place) / "git"
            GitDirectory().write(directory)
            told = PrivateRepository(directory).git(
                "check-ignore",
                "--no-index",
                "-z",
                "--stdin",
                work_tree=root,
                feed=feed,
                succeeds=(0, 1),
            )
    except ToolRefused as error:
        notes.append(f".gitignore files are not applied: {error}")
        return paths
    except (GitFailed, OSError) as error:
        doubtful = [path for path in paths if path.startswith(tuple(ignoring))]
        notes += left_out([_shown(path) for path in doubtful], f"because they may be ignored ({error})")
        return sorted({*paths} - {*doubtful})  # guard: files that may be ignored are not shown
    ignored = {name.removeprefix("./") for name in os.fsdecode(told).split("\0")}
    return [path for path in paths if path not in ignored]


def _shown(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _is_text(path: str) -> bool:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def place_name(ground: ResolvedPlace) -> bytes:
    """Return a stable name of the place; each commit of a repository is a place of its own."""
    return os.fsencode(f"{ground.root}@{ground.commit or ''}")


def remembered_stamps(connection: sqlite3.Connection, ground: ResolvedPlace) -> dict[str, tuple[str, bytes]]:
    """Return the stamp and digest of each remembered file, by path."""
    if ground.commit is not None:
        return {}
    return {
        path: (stamp, bytes(digest))
        for path, stamp, digest in connection.execute(
            "SELECT path, stamp, digest FROM known_file WHERE place = ?", (place_name(ground),)
        )
    }


def remember(
    connection: sqlite3.Connection,
    ground: ResolvedPlace,
    before: Stamps,
    view: IndexView,
    rows: NDArray[np.int64],
) -> None:
    """Store the stamps that differ from `before`, if any, and the contents in use. `rows` are the contents in
    use.

    A file that is missing from an incomplete view may still exist, so its stamp is kept.
    """
    import numpy as np

    now = view.stamps
    place = place_name(ground)
    known = connection.execute("SELECT used, rows FROM view WHERE place = ?", (place,)).fetchone()
    if known is not None and not view.whole:  # guard: otherwise contents in use may be dropped
        rows = np.union1d(rows, array_of(unsealed(known[1]), "<i8"))
    used = rows.astype("<i8").tobytes()
    moment = int(time.time())
    fresh = known is None or known[1] != sealed(used) or known[0] < moment - _AGAIN_SECONDS
    gone = [path for path in before if path not in now] if view.whole else []
    learned = [(path, *told) for path, told in now.items() if before.get(path) != told]
    if not (fresh or gone or learned):
        return
    with transaction(connection):
        connection.execute(
            "INSERT OR REPLACE INTO view VALUES (?, ?, ?, ?)",
            (place, os.fsencode(ground.root), moment, sealed(used)),
        )
        connection.executemany(
            "DELETE FROM known_file WHERE place = ? AND path = ?", ((place, path) for path in gone)
        )
        connection.executemany(
            "INSERT OR REPLACE INTO known_file VALUES (?, ?, ?, ?)", ((place, *one) for one in learned)
        )
        _forget_old_views(connection)


def _forget_old_views(connection: sqlite3.Connection) -> None:
    old: Sequence[tuple[bytes]] = connection.execute(
        "SELECT place FROM view ORDER BY used DESC, place LIMIT -1 OFFSET ?", (MOST_VIEWS,)
    ).fetchall()
    connection.executemany("DELETE FROM view WHERE place = ?", old)
    connection.executemany("DELETE FROM known_file WHERE place = ?", old)
