"""Puts files back into a sandbox while hostile processes may be changing its directories.

git writes the files into a directory that no command can reach. From there each is moved into place by a
rename between open directories, so a directory that is swapped for a link at any moment leads nowhere.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from cleveragents.core.errors import SandboxRefused
from cleveragents.core.file_state import GITLINK, FileState
from cleveragents.git.plumbing import PrivateRepository
from cleveragents.sandboxes.facts import SandboxPlace
from cleveragents.sandboxes.tree.conversions import exported
from cleveragents.storage.files.paths import (
    delete_file,
    directory_of,
    open_directory,
    open_root,
    remove_entry,
)

__all__ = ["restore_files"]

_IN_THE_WAY = frozenset({errno.ENOTDIR, errno.ELOOP})
# Only a process that fights for the place makes it take more than one.
_ATTEMPTS = 100


def restore_files(
    place: SandboxPlace, engine: PrivateRepository, states: Mapping[str, FileState | None], index: Path
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
