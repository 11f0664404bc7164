"""Which git is run, and where it never is.

It is one that an absolute entry of PATH names. An empty or relative entry means the directory that a program
is started in: a repository's, where a file `git` is not git.

It is never run in the tree of a sandbox, nor with a `.git` in one. Commands of an agent write there, at any
time: configuration that names programs, objects that are links to other files, directories that become links.
"""

from __future__ import annotations

import functools
import os
import shutil
from pathlib import Path

from cleveragents.core.errors import SandboxRefused, ToolRefused

__all__ = ["FACTS_FILE", "TREE", "ensure_no_sandbox", "git_program", "search_path"]

TREE = "tree"
"""What the directory with a sandbox's files is called."""

FACTS_FILE = "sandbox.json"
"""The file beside `TREE` that makes it a sandbox: it is there before any command runs."""


def ensure_no_sandbox(place: Path | str | None) -> None:
    """`SandboxRefused` if the path is, or is in, the tree of a sandbox."""
    if place is None:
        return
    path = os.path.realpath(place)
    while f"{os.sep}{TREE}" in path:
        above, _, name = path.rpartition(os.sep)
        if name == TREE and os.path.lexists(f"{above}{os.sep}{FACTS_FILE}"):  # guard: see above
            raise SandboxRefused(
                path, "git does not run on the files of a sandbox; use the repository itself"
            )
        path = above


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
