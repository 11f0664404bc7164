"""What a plan works on: the root of a repository, or a directory that lies in none.

Where the commands of a plan start: in the directory in which its user stood, below the sandbox's root.

A sandbox has the directories that its files need. The user may have stood in one without any file that goes
along, and a plan may delete the last one in it; it is made then, so that what is written there is there.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from cleveragents.core.errors import GitFailed, SandboxRefused
from cleveragents.git.plumbing import run_git, user_environment, within
from cleveragents.storage.files.paths import open_directory, open_root

__all__ = ["ensure_apart", "find_resource", "is_repository", "working_directory"]


_NO_REPOSITORY = "not a git repository"
_SECONDS = 60.0


def find_resource(path: Path, *, seconds: float = _SECONDS) -> tuple[Path, str]:
    """The root of the repository that `path` lies in, or the directory itself; and what of `path` lies
    below the root, with `/`. Of a file, its directory is meant. `SandboxRefused`: neither, or git does not
    answer.
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
            "--absolute-git-dir",
            environment=user_environment(),
            directory=directory,
            seconds_left=within(seconds),
        )
    except GitFailed as error:
        if _NO_REPOSITORY in error.problem and not os.path.lexists(directory / ".git"):
            return directory, ""
        if _NO_REPOSITORY in error.problem:
            raise SandboxRefused(str(path), _why_none(directory / ".git")) from error
        if "work tree" in error.problem:
            reason = "it is a bare repository, or lies inside a .git directory; use a clone with files"
            raise SandboxRefused(str(path), reason) from error
        raise SandboxRefused(str(path), error.problem) from error
    lines = os.fsdecode(told)[:-1].split("\n")
    if len(lines) != 3:
        raise SandboxRefused(str(path), "its name has a line break, which git's own files cannot hold")
    prefix, root, git_directory = lines[0], Path(lines[1]), Path(lines[2])
    # guard: a repository's core.worktree may name any directory, which then would be what we work on
    if not directory.is_relative_to(root) or not _is_of(root, git_directory):
        reason = f"its core.worktree is {root}, which is not where its .git is; unset it, or use a clone"
        raise SandboxRefused(str(path), reason)
    return root, prefix.rstrip("/")


def ensure_apart(resource: Path, sandboxes: Path) -> None:
    """`SandboxRefused` where sandboxes are kept inside what they would be made of, as in a home directory,
    unless git ignores them there. Whoever makes one looks again; this is for those who ask before."""
    if not sandboxes.resolve().is_relative_to(resource.resolve()):
        return
    if is_repository(resource):
        inside = str(sandboxes.resolve() / "plan")
        environment = user_environment()
        if run_git("check-ignore", inside, environment=environment, directory=resource, succeeds=(0, 1)):
            return
    reason = f"sandboxes are kept inside it, in {sandboxes}; `cd` into a project, or set state.directory"
    raise SandboxRefused(str(resource), reason)


def _why_none(found: Path) -> str:
    """Why a `.git` that is there makes no repository, and what helps."""
    if not found.is_file():
        return "git does not take its .git for a repository; remove that, or `git init` there"
    remedies = "`git worktree repair` in the main repository, or `git submodule update --init`, mends that"
    return f"its .git is a file that names no repository, as after a move; {remedies}; or remove it"


def _is_of(root: Path, git_directory: Path) -> bool:
    """Whether the `.git` in `root` is that directory, or a file that names it."""
    found = root / ".git"
    if found.is_file():
        found = root / os.fsdecode(found.read_bytes()).removeprefix("gitdir:").strip()
    return found.exists() and found.samefile(git_directory)


def is_repository(resource: Path) -> bool:
    """Whether it is the root of a repository, bare ones included."""
    if os.path.lexists(resource / ".git"):
        return True
    return (resource / "HEAD").is_file() and all((resource / part).is_dir() for part in ("objects", "refs"))


def working_directory(root: Path, below: str) -> Path:
    """That directory, which is there then, unless something else is in its place."""
    wanted = root / below
    if not wanted.is_dir():
        _make(root, Path(below).parts)
    return wanted


def _make(root: Path, parts: tuple[str, ...]) -> None:
    here = open_root(root)
    try:
        for part in parts:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=here)
            below = open_directory(here, part)  # guard: no link leads out of the sandbox
            os.close(here)
            here = below
    except OSError:
        return  # a file or a link is in its place: whoever wants to start there says so
    finally:
        os.close(here)
