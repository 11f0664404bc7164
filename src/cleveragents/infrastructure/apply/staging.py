"""Lays out the new contents beside the user's files, and says what every one of them was and becomes.

git writes the new files, so that line ends and the like come out as a checkout would have them. They are on
the filesystem of the files they are to replace, for only there a swap is one step.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from cleveragents.domain.file_state import Difference, FileState
from cleveragents.infrastructure.apply.exchange import ABSENT, Folder, Sight, fingerprint, look
from cleveragents.infrastructure.apply.journal import MovedFile
from cleveragents.infrastructure.apply.moves import parents_of
from cleveragents.infrastructure.apply.presence import Presence, names_of_content
from cleveragents.infrastructure.git.git_directory import copy_index

__all__ = ["Staging", "emptied_by", "index_line_of", "made_by", "see", "staging_directory", "strange_content"]


def staging_directory(resource: Path, git_directory: Path | None, apply_id: str) -> Path:
    """In the git directory, out of everybody's sight, if that is on the same filesystem."""
    if git_directory is not None and git_directory.stat().st_dev == resource.stat().st_dev:
        return git_directory / "cleveragents" / apply_id
    return resource / f".cleveragents-{apply_id}"


def see(resource: Path, changes: Mapping[str, Difference]) -> dict[str, Sight]:
    """Every path that is to change, as it is now. A directory that gives way to a file is no file."""
    with Folder(resource) as folder:
        seen = {path: folder.look(path, _any_name(changes[path])) for path in sorted(changes)}
    return {path: Sight(ABSENT) if sight.is_directory else sight for path, sight in seen.items()}


def strange_content(
    presence: Presence, changes: Mapping[str, Difference], seen: Mapping[str, Sight]
) -> list[str]:
    """Paths whose bytes are not those that were merged: changed since, or hidden from git by their user,
    whose index may say "assume unchanged" of a file that is not."""
    doubtful: dict[str, str] = {}
    strange: list[str] = []
    for path, change in changes.items():
        sight, before = seen[path], change.before
        if before is None or sight.fingerprint == ABSENT:
            if (before is None) != (sight.fingerprint == ABSENT):
                strange.append(path)
        elif stat.S_ISLNK(before.mode) != sight.is_link or not (sight.is_link or sight.is_regular):
            strange.append(path)
        elif sight.blob != before.content:
            doubtful[path] = before.content
    # Not kept byte for byte: line ends are converted, or it was changed.
    regular = [path for path in doubtful if seen[path].is_regular]
    names = names_of_content(presence.repository, presence.resource, regular)
    strange += [path for path, blob in doubtful.items() if names.get(path) != blob]
    return sorted(strange)


class Staging:
    """New contents on their way into `directory`, while something else is done.

    Leaving the block waits for git, whatever happened in it. Not thread-safe: use it in the call that made
    it.
    """

    def __init__(self, presence: Presence, directory: Path, changes: Mapping[str, Difference]) -> None:
        self._new = directory / "new"
        self._changes = changes
        self._new.mkdir(mode=0o700, parents=True)
        (directory / "old").mkdir(mode=0o700)
        # Whoever looks at the resource meanwhile does not take this for a part of it.
        (directory / ".gitignore").write_text("*\n", encoding="ascii")
        index = directory / "index"
        # The whole merged tree, for the attributes that its other files set for these.
        copy_index(presence.index, index)
        ordered = sorted(changes.items(), key=lambda item: item[1].after is not None)
        feed = b"".join(index_line_of(path, change) for path, change in ordered)
        presence.repository.git("update-index", "-z", "--index-info", index=index, feed=feed)
        arriving = [os.fsencode(path) + b"\0" for path in sorted(changes) if changes[path].after is not None]
        self._thread = ThreadPoolExecutor(1, "staging")
        self._written = self._thread.submit(
            presence.repository.git,
            *("checkout-index", "-z", "--stdin"),
            work_tree=self._new,
            index=index,
            feed=b"".join(arriving),
        )

    def __enter__(self) -> Staging:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown()

    def finish(self, seen: Mapping[str, Sight]) -> tuple[MovedFile, ...]:
        """The new contents are there; what each path was and becomes."""
        self._written.result()
        files = []
        with Folder(self._new) as folder:
            for path in sorted(self._changes):
                change = self._changes[path]
                becomes = ABSENT if change.after is None else _arrived(folder, path, change, seen[path])
                files.append(MovedFile(path, change.before, change.after, seen[path].fingerprint, becomes))
        return tuple(files)


def made_by(resource: Path, changes: Mapping[str, Difference]) -> tuple[str, ...]:
    """The directories that the changes bring with them."""
    needed = {
        parent for path, change in changes.items() if change.before is None for parent in parents_of(path)
    }
    return tuple(sorted(path for path in needed if not (resource / path).is_dir()))


def emptied_by(resource: Path, changes: Mapping[str, Difference]) -> dict[str, int]:
    """The directories that the changes may leave empty, and their permissions."""
    above = {
        parent for path, change in changes.items() if change.after is None for parent in parents_of(path)
    }
    above -= {
        parent for path, change in changes.items() if change.after is not None for parent in parents_of(path)
    }
    return {path: stat.S_IMODE((resource / path).lstat().st_mode) for path in sorted(above)}


def index_line_of(path: str, change: Difference) -> bytes:
    """What the path is to be, as `git update-index -z --index-info` reads it."""
    state = change.after or FileState(0, _any_name(change))  # mode 0 takes an entry out
    head = f"{state.mode:o} {state.content}"
    return head.encode("ascii") + b"\t" + os.fsencode(path) + b"\0"


def _arrived(folder: Folder, path: str, change: Difference, seen: Sight) -> str:
    """The fingerprint of what was written; a file that only its user may read stays so."""
    place = folder.place(path)
    sight = look(place)
    before, after = change.before, change.after
    if before is None or after is None or not sight.is_regular or not seen.is_regular:
        return sight.fingerprint
    permissions = seen.permissions & 0o777
    if after.mode & 0o100 and not permissions & 0o100:
        permissions |= (permissions & 0o444) >> 2
    elif not after.mode & 0o100 and before.mode & 0o100:
        permissions &= ~0o111
    if permissions == sight.permissions:
        return sight.fingerprint
    os.chmod(place[1], permissions, dir_fd=place[0])
    return fingerprint(place)


def _any_name(change: Difference) -> str:
    return change.before.content if change.before else ""
