"""What a plan works on: the root of a repository, or a directory that lies in none."""

from __future__ import annotations

import os
from pathlib import Path

from cleveragents.errors import GitFailed, SandboxRefused
from cleveragents.infrastructure.git.plumbing import run_git, user_environment

__all__ = ["find_resource", "is_repository"]

_NO_REPOSITORY = "not a git repository"


def find_resource(path: Path) -> tuple[Path, str]:
    """The root of the repository that `path` lies in, or the directory itself; and what of `path` lies
    below the root, with `/`. Of a file, its directory is meant. `SandboxRefused`: neither.
    """
    here = path.resolve()
    directory = here if here.is_dir() else here.parent
    if not here.exists():
        raise SandboxRefused(str(path), "there is no such directory")
    try:
        told = run_git(
            "rev-parse",
            "--show-prefix",
            "--show-toplevel",
            environment=user_environment(),
            directory=directory,
        )
    except GitFailed as error:
        if _NO_REPOSITORY in error.problem:
            return directory, ""
        if "work tree" in error.problem:
            reason = "it is a bare repository, or lies inside a .git directory; use a clone with files"
            raise SandboxRefused(str(path), reason) from error
        raise SandboxRefused(str(path), error.problem) from error
    prefix, _, root = os.fsdecode(told)[:-1].partition("\n")
    return Path(root), prefix.rstrip("/")


def is_repository(resource: Path) -> bool:
    """Whether it is the root of a repository, bare ones included."""
    if os.path.lexists(resource / ".git"):
        return True
    return (resource / "HEAD").is_file() and all((resource / part).is_dir() for part in ("objects", "refs"))
