"""What a directory holds that is in no repository.

Links are not followed, hidden files and directories are passed over, and so are those that hold what tools
make or fetch. If there are .gitignore files and git is installed, they are heeded as in a repository.
Repositories inside are entered like other directories.

What was known of files that git does not vouch for, and which contents were looked at lately.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.context.index.build.segment import array_of, sealed, unsealed
from cleveragents.context.index.index_file import transaction
from cleveragents.context.index.place import Ground
from cleveragents.context.index.view import FileStamps, View, left_out
from cleveragents.core.errors import GitFailed, ToolRefused
from cleveragents.git.git_directory import GitDirectory
from cleveragents.git.plumbing import PrivateRepository

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["NEVER_SOUGHT", "directory_view", "place_name", "remember", "remembered_stamps"]


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
"""Directories that nobody writes code in, whatever a repository says of them."""
_LOOK_EVERY = 256
_ELSEWHERE = frozenset({*NEVER_SOUGHT, "venv", "env", "build", "dist", "target", "vendor", "out", "coverage"})

MOST_VIEWS = 32
_AGAIN_SECONDS = 3600
Stamps = Mapping[str, tuple[str, bytes]]


def directory_view(root: Path, stamps: FileStamps, most_files: int) -> View:
    """The files below the root, as they are now."""
    found: list[str] = []
    notes: list[str] = []
    ignoring: list[str] = []
    for path, name in _walk(str(root), stamps):
        if name == ".gitignore":
            ignoring.append(path.removesuffix(name))
        elif len(found) == most_files:
            notes.append(f"only the first {most_files} files are looked at")
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
    notes += left_out(unreadable, "because their names are no UTF-8")
    notes += stamps.notes
    return View(entries, tuple(notes), not stamps.late, stamps.fresh)


def _walk(root: str, stamps: FileStamps) -> Iterator[tuple[str, str]]:
    """Path below the root and name of each file, .gitignore files among them."""
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
    """Those that no .gitignore file in the directories `ignoring` names."""
    # A file may be called as git calls many; with this before it, no name is anything but a name.
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
        notes.append(f".gitignore files are not heeded: {error}")
        return paths
    except (GitFailed, OSError) as error:
        doubtful = [path for path in paths if path.startswith(tuple(ignoring))]
        notes += left_out([_shown(path) for path in doubtful], f"because they may be ignored ({error})")
        return sorted({*paths} - {*doubtful})  # guard: what nobody wants shown is not shown
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


def place_name(ground: Ground) -> bytes:
    """The same each time that the place is looked at; all commits of a repository count as one each."""
    return os.fsencode(f"{ground.root}@{ground.commit or ''}")


def remembered_stamps(connection: sqlite3.Connection, ground: Ground) -> dict[str, tuple[str, bytes]]:
    """By path: stamp and digest."""
    if ground.commit is not None:
        return {}
    return {
        path: (stamp, bytes(digest))
        for path, stamp, digest in connection.execute(
            "SELECT path, stamp, digest FROM known_file WHERE place = ?", (place_name(ground),)
        )
    }


def remember(
    connection: sqlite3.Connection, ground: Ground, before: Stamps, view: View, rows: NDArray[np.int64]
) -> None:
    """Writes down what has changed since `before`, if anything has. `rows` are the contents in use.

    What a view that is not whole does not have may still be there: it stays as it was.
    """
    import numpy as np

    now = view.stamps
    place = place_name(ground)
    known = connection.execute("SELECT used, rows FROM view WHERE place = ?", (place,)).fetchone()
    if known is not None and not view.whole:  # guard: what is in use may be dropped otherwise
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
