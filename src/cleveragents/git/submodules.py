"""The submodules that a `.gitmodules` file names."""

from __future__ import annotations

import os

from cleveragents.core.errors import GitFailed
from cleveragents.git.plumbing import PrivateRepository

__all__ = ["MODULES", "submodule_paths"]

MODULES = ".gitmodules"
_PATHS = r"^submodule\..*\.path$"


def submodule_paths(repository: PrivateRepository, content: bytes) -> frozenset[str] | None:
    """The paths of the submodules that such content names; None if git cannot read it."""
    options = ("--no-includes", "--file", "-", "-z", "--get-regexp", _PATHS)
    try:
        listed = repository.git("config", *options, feed=content, succeeds=(0, 1))
    except GitFailed:
        return None
    return frozenset(row.partition("\n")[2] for row in os.fsdecode(listed).split("\0")[:-1])
