"""Which git is run: one that an absolute entry of PATH names.

An empty or relative entry means the directory that a program is started in. Ours is a repository's, or a
sandbox's, and a file `git` there is not git.
"""

from __future__ import annotations

import functools
import os
import shutil
from pathlib import Path

from cleveragents.errors import ToolRefused

__all__ = ["git_program", "search_path"]


def search_path() -> str:
    """The user's PATH, without entries that depend on where one is."""
    return _absolute(os.environ.get("PATH", os.defpath))


def git_program() -> str:
    """Its absolute path. `ToolRefused` if there is none."""
    return _found_on(search_path())


@functools.lru_cache(maxsize=4)  # asked for before each git that is started
def _absolute(path: str) -> str:
    entries = path.split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if Path(entry).is_absolute())  # guard: see above


@functools.lru_cache(maxsize=4)
def _found_on(path: str) -> str:
    found = shutil.which("git", path=path) if path else None
    if found is None:
        raise ToolRefused("git", "the git command is not installed, or no absolute entry of PATH leads to it")
    return found
