"""The resource of a plan: the root of a repository, or a directory outside any repository.

Commands start in the sandbox's copy of the user's current directory. A sandbox contains only directories with
files. If the copy of the current directory is missing, because it had no files or a plan deleted its last
file, it is created.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.core.errors import GitFailed, SandboxRefused
from cleveragents.git.plumbing import run_git, user_environment, within
from cleveragents.storage.files.paths import open_directory, open_root

if TYPE_CHECKING:
    from cleveragents.sandboxes.ports import Progress

__all__ = ["announce_large", "ensure_apart", "find_resource", "is_repository", "working_directory"]


_NO_REPOSITORY = "not a git repository"
_SECONDS = 60.0
_LARGE_BYTES = 50_000_000
_NAMED = 3


def find_resource(path: Path, *, seconds: float = _SECONDS) -> tuple[Path, str]:
    """Return the resource for `path`, and the relative path (with `/`) from the resource to `path`.

    The resource is the root of the repository that contains `path`; without a repository, it is the directory
    `path`, or the directory of the file `path`. Raises `SandboxRefused` if there is neither, or if git fails.
    """
    here = path.resolve()
    directory = here if here.is_dir() else here.parent
    if not here.exists():
        raise SandboxRefused(str(path), "no such directory")
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
            reason = "this is a bare repository, or lies inside a .git directory; use a clone with files"
            raise SandboxRefused(str(path), reason) from error
        raise SandboxRefused(str(path), error.problem) from error
    lines = os.fsdecode(told)[:-1].split("\n")
    if len(lines) != 3:
        raise SandboxRefused(str(path), "the name contains a line break, which git does not support")
    prefix, root, git_directory = lines[0], Path(lines[1]), Path(lines[2])
    # guard: a repository's core.worktree may name any directory, which would then become the resource
    if not directory.is_relative_to(root) or not _is_of(root, git_directory):
        reason = (
            f"core.worktree of the repository is {root}, but its .git is elsewhere; unset "
            "core.worktree, or use a clone"
        )
        raise SandboxRefused(str(path), reason)
    return root, prefix.rstrip("/")


def ensure_apart(resource: Path, sandboxes: Path) -> None:
    """Raise `SandboxRefused` if sandboxes are stored inside the resource, as in a home directory, unless git
    ignores them there. An early check; creating a sandbox checks again.
    """
    if not sandboxes.resolve().is_relative_to(resource.resolve()):
        return
    if is_repository(resource):
        inside = str(sandboxes.resolve() / "plan")
        environment = user_environment()
        if run_git("check-ignore", inside, environment=environment, directory=resource, succeeds=(0, 1)):
            return
    reason = (
        f"sandboxes are stored inside the directory, in {sandboxes}; `cd` into a project, or set "
        "state.directory"
    )
    raise SandboxRefused(str(resource), reason)


def _why_none(found: Path) -> str:
    """Explain why an existing `.git` is not a repository, with a remedy."""
    if not found.is_file():
        return "the .git directory is not a valid repository; remove it, or run `git init`"
    remedies = "run `git worktree repair` in the main repository, or `git submodule update --init`"
    return f"the .git file points to a missing repository, as after a move; {remedies}, or remove the file"


def _is_of(root: Path, git_directory: Path) -> bool:
    """Return whether the `.git` in `root` is `git_directory`, or a file that points to it."""
    found = root / ".git"
    if found.is_file():
        found = root / os.fsdecode(found.read_bytes()).removeprefix("gitdir:").strip()
    return found.exists() and found.samefile(git_directory)


def is_repository(resource: Path) -> bool:
    """Return whether `resource` is the root of a repository, which may be bare."""
    if os.path.lexists(resource / ".git"):
        return True
    return (resource / "HEAD").is_file() and all((resource / part).is_dir() for part in ("objects", "refs"))


def working_directory(root: Path, below: str) -> Path:
    """Return the directory `below` the sandbox's root; create it unless another file has its name."""
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
        return  # a file or a link has its name: starting a command there reports it
    finally:
        os.close(here)


def announce_large(progress: Progress, resource: Path, paths: Iterable[str], kind: str) -> None:
    """Announce the copy of these files, and name the largest, if their total size is 50 MB or more.

    `kind` describes the files, such as `uncommitted files`.
    """
    sizes = {}
    for path in paths:
        with suppress(OSError):  # deleted meanwhile
            status = os.lstat(resource / path)
            sizes[path] = status.st_size if stat.S_ISREG(status.st_mode) else 0
    total = sum(sizes.values())
    if total < _LARGE_BYTES:
        return
    largest = sorted(sizes, key=lambda path: -sizes[path])[:_NAMED]
    names = ", ".join(f"{path} ({_megabytes(sizes[path])})" for path in largest if sizes[path] * 100 >= total)
    progress(f"copying {_megabytes(total)} of {kind}" + (f", the largest: {names}" if names else ""))


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
