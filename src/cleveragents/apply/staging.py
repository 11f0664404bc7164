"""Write the new contents beside the user's files, and record the old and new state of each.

git writes the new files, byte for byte as in the merged tree; for sandboxes of earlier versions, as a
checkout would write them. The new files get the metadata of the files they replace. They are written to the
same file system, because a swap is atomic only within a file system.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType

from cleveragents.apply.exchange import (
    ABSENT,
    DirectoryHandle,
    FileObservation,
    Metadata,
    Place,
    fingerprint,
    for_new_content,
    read_metadata,
    write_metadata,
)
from cleveragents.apply.journal import Journal, MovedFile
from cleveragents.apply.merge import submodules_in
from cleveragents.apply.moves import parents_of
from cleveragents.apply.target import ApplyTarget, names_of_content
from cleveragents.core.change import Difference, FileState
from cleveragents.git.git_directory import copy_index
from cleveragents.sandboxes.tree.walk import read_bytes

__all__ = ["Staging", "emptied_by", "index_line_of", "made_by", "see", "staging_directory", "strange_content"]

_LONGEST_TARGET = 4096


def staging_directory(resource: Path, git_directory: Path | None, apply_id: str) -> Path:
    """Return the staging directory of an apply: inside the git directory if that is on the same file system,
    otherwise a hidden directory in the resource.
    """
    if git_directory is not None and git_directory.stat().st_dev == resource.stat().st_dev:
        return git_directory / "cleveragents" / apply_id
    return resource / f".cleveragents-{apply_id}"


def see(resource: Path, changes: Mapping[str, Difference]) -> dict[str, FileObservation]:
    """Read every path that is to change. A directory that a file replaces counts as missing."""
    with DirectoryHandle(resource) as folder:
        seen = {path: folder.look(path, _any_name(changes[path])) for path in sorted(changes)}
    return {
        path: FileObservation(ABSENT) if observation.is_directory else observation
        for path, observation in seen.items()
    }


def strange_content(
    apply_target: ApplyTarget, changes: Mapping[str, Difference], seen: Mapping[str, FileObservation]
) -> list[str]:
    """Return the paths whose content differs from the merged content: the file changed since the merge, or
    the user's index hides its change from git ("assume unchanged").
    """
    doubtful: dict[str, str] = {}
    strange: list[str] = []
    links_as_files = cache(apply_target.writes_links_as_files)
    for path, change in changes.items():
        observation, before = seen[path], change.before
        if before is None or observation.fingerprint == ABSENT:
            if (before is None) != (observation.fingerprint == ABSENT):
                strange.append(path)
        elif not (observation.is_link or observation.is_regular):
            strange.append(path)
        elif stat.S_ISLNK(before.mode) != observation.is_link:
            if observation.is_link or observation.blob != before.content or not links_as_files():
                strange.append(path)
        elif observation.blob != before.content:
            doubtful[path] = before.content
    # Not stored byte for byte: line endings are converted, or the file was changed.
    regular = [path for path in doubtful if seen[path].is_regular]
    names = names_of_content(apply_target.repository, apply_target.resource, regular)
    strange += [path for path, blob in doubtful.items() if names.get(path) != blob]
    return sorted(strange)


class Staging:
    """New contents being written to `directory` in the background.

    Leaving the block waits for git, even after an error. Not thread-safe: use it in the call that made it.
    """

    def __init__(
        self,
        apply_target: ApplyTarget,
        directory: Path,
        changes: Mapping[str, Difference],
        undoes: Journal | None = None,
    ) -> None:
        self._resource = apply_target.resource
        self._new = directory / "new"
        self._changes = changes
        self._undoes = undoes
        self._new.mkdir(mode=0o700, parents=True)
        (directory / "old").mkdir(mode=0o700)
        # Keeps this directory out of concurrent reads of the resource.
        (directory / ".gitignore").write_text("*\n", encoding="ascii")
        index = directory / "index"
        # The whole merged tree, because other files in it may define attributes for these.
        copy_index(apply_target.index, index)
        ordered = sorted(changes.items(), key=lambda item: item[1].after is not None)
        feed = b"".join(index_line_of(path, change) for path, change in ordered)
        apply_target.repository.git("update-index", "-z", "--index-info", index=index, feed=feed)
        arriving = [os.fsencode(path) + b"\0" for path in sorted(changes) if changes[path].after is not None]
        self._thread = ThreadPoolExecutor(1, "staging")
        self._written = self._thread.submit(
            apply_target.repository.git,
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

    def finish(
        self, seen: Mapping[str, FileObservation]
    ) -> tuple[tuple[MovedFile, ...], dict[str, Metadata]]:
        """Wait for the new contents; return the old and new state of each path, and the metadata of existing
        files.
        """
        self._written.result()
        files = []
        kept: dict[str, Metadata] = {}
        with DirectoryHandle(self._new) as folder, DirectoryHandle(self._resource) as user:
            for path in sorted(self._changes):
                change = self._changes[path]
                found = None if seen[path].fingerprint == ABSENT else read_metadata(user.place(path))
                if found is not None:
                    kept[path] = found
                becomes = ABSENT
                if change.after is not None:
                    becomes = self._arrived(folder.place(path), path, change, found)
                files.append(MovedFile(path, change.before, change.after, seen[path].fingerprint, becomes))
        return tuple(files), kept

    def _arrived(self, place: Place, path: str, change: Difference, found: Metadata | None) -> str:
        """Give the written file the metadata of the file that it replaces; return its fingerprint."""
        original = None if self._undoes is None else self._undoes.metadata.get(path)
        _keep_link(place, change, found, original)
        wanted = self._wanted(path, change, found, original)
        if wanted is not None:
            write_metadata(place, wanted)
        elif change.before is None:
            _inherit_group(place, self._resource / path)
        return fingerprint(place)

    def _wanted(
        self, path: str, change: Difference, found: Metadata | None, original: Metadata | None
    ) -> Metadata | None:
        """Return the metadata for a new file; None to keep its own."""
        if original is not None and (found is None or found == for_new_content(original, _back(change))):
            # An undo, and the user did not change the metadata since.
            return original if self._is_original(path, change) else for_new_content(original, change)
        return found and for_new_content(found, change)

    def _is_original(self, path: str, change: Difference) -> bool:
        files = () if self._undoes is None else self._undoes.files
        return any(file.path == path and file.before == change.after for file in files)


def made_by(resource: Path, changes: Mapping[str, Difference]) -> tuple[str, ...]:
    """Return the directories that the changes create."""
    needed = {
        parent for path, change in changes.items() if change.before is None for parent in parents_of(path)
    }
    needed |= {path for path, there in submodules_in(changes).items() if there}
    return tuple(sorted(path for path in needed if not (resource / path).is_dir()))


def emptied_by(resource: Path, changes: Mapping[str, Difference]) -> dict[str, Metadata]:
    """Return the directories that the changes may leave empty, with their metadata."""
    above = {
        parent for path, change in changes.items() if change.after is None for parent in parents_of(path)
    }
    above |= {path for path, there in submodules_in(changes).items() if not there}
    above -= {
        parent for path, change in changes.items() if change.after is not None for parent in parents_of(path)
    }
    with DirectoryHandle(resource) as folder:
        found = {path: read_metadata(folder.place(path)) for path in sorted(above)}
    return {path: metadata for path, metadata in found.items() if metadata is not None}


def index_line_of(path: str, change: Difference) -> bytes:
    """Return the new state of the path in the format of `git update-index -z --index-info`."""
    state = change.after or FileState(0, _any_name(change))  # mode 0 removes an entry
    head = f"{state.mode:o} {state.content}"
    return head.encode("ascii") + b"\t" + os.fsencode(path) + b"\0"


def _keep_link(place: Place, change: Difference, found: Metadata | None, original: Metadata | None) -> None:
    """Replace a file that git wrote instead of a symbolic link (`core.symlinks=false`) by a link, if the user
    has or had a link at this path.
    """
    directory, name = place
    known = found or original
    if change.after is None or not stat.S_ISLNK(change.after.mode) or known is None or not known.is_link:
        return
    if stat.S_ISREG(os.lstat(name, dir_fd=directory).st_mode):
        target = read_bytes(directory, name, at_most=_LONGEST_TARGET)
        os.unlink(name, dir_fd=directory)
        os.symlink(target or b"", os.fsencode(name), dir_fd=directory)


def _inherit_group(place: Place, path: Path) -> None:
    """Give a new file the group of its setgid directory, as if it had been created in it."""
    above = next((parent.lstat() for parent in path.parents if os.path.lexists(parent)), None)
    if above is not None and above.st_mode & stat.S_ISGID:
        with suppress(PermissionError):
            os.chown(place[1], -1, above.st_gid, dir_fd=place[0], follow_symlinks=False)


def _back(change: Difference) -> Difference:
    return Difference(change.after, change.before)


def _any_name(change: Difference) -> str:
    return change.before.content if change.before else ""
