"""Files in a sandbox that cannot be recorded: which they are, and how they get out of the way.

git refuses some names (`GIT~1`, `.GIT`), and what is put in a submodule's place is neither the submodule nor
a change of ours. Such files are never lost: they are moved to a directory beside the sandbox's files.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path

from cleveragents.sandboxes.facts import SandboxPlace
from cleveragents.storage.files.paths import directory_of, open_directory

__all__ = ["move_aside", "strange_submodules"]


def strange_submodules(tree: Path, submodules: Sequence[str]) -> tuple[str, ...]:
    """Those in whose place something else is: their directory is to be empty, or to hold the submodule."""
    strange = []
    for path in submodules:
        with directory_of(tree, path) as found:
            if found is not None and _is_strange(*found):
                strange.append(path)
    return tuple(strange)


def move_aside(place: SandboxPlace, paths: Sequence[str]) -> Path:
    """Moves what is at these paths out of the tree, and says where to."""
    aside = place.directory / f"aside-{secrets.token_hex(4)}"
    aside.mkdir()
    for path in paths:
        with directory_of(place.tree, path) as there, directory_of(aside, path, make=True) as here:
            if there is not None and here is not None:
                os.rename(there[1], here[1], src_dir_fd=there[0], dst_dir_fd=here[0])
    return aside


def _is_strange(directory: int, name: str) -> bool:
    try:
        if not stat.S_ISDIR(os.lstat(name, dir_fd=directory).st_mode):
            return True
        descriptor = open_directory(directory, name)
    except FileNotFoundError:
        return False
    try:
        with os.scandir(descriptor) as entries:
            there = [entry.name for entry in entries]
    finally:
        os.close(descriptor)
    return bool(there) and ".git" not in there
