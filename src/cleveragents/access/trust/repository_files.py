"""The files of a repository that need trust. The search is limited, and each file is read once, from inside
the repository.

The content of a repository is not trusted: a path may be a link to anywhere, and a file may be a pipe or
gigabytes large. So a path is resolved first and refused if it leads out of the repository. Then the path is
opened step by step without following any link, so a link that another process creates meanwhile causes an
error.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from cleveragents.core.errors import ConfigurationError

__all__ = [
    "ACTIONS_DIRECTORY",
    "ACTORS_DIRECTORY",
    "PROMPT_ENDINGS",
    "RepositoryFile",
    "TrustSurvey",
    "TrustedContent",
    "action_paths",
    "actor_paths",
    "configured_paths",
    "names_inside",
    "read_inside",
    "repository_paths",
    "repository_root",
    "walk_inside",
]


ACTIONS_DIRECTORY = ".cleveragents/actions"
ACTORS_DIRECTORY = ".cleveragents/actors"

PROMPT_ENDINGS = (".md", ".txt")
"""The suffixes of prompt files."""
_OURS = ".cleveragents"
_SINGLE_FILES = (".cleveragents.toml", ".mcp.json", ".worktreeinclude")
_SKILL = "SKILL.md"
# The folders of skills; other files in them are read with the skill.
_IN_A_SKILL = re.compile(r"(?:\.cleveragents/)?skills/[^/]+/")
_FILE_LIMIT_BYTES = 1 << 20
_FILES_LIMIT = 200
_DEPTH_LIMIT = 8
_DIRECTORIES_LIMIT = 20_000
# Large folders, created by tools.
_SKIPPED = frozenset({".git", "node_modules", ".venv", "venv", "__pycache__", ".tox", ".nox"})
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_Folder: TypeAlias = tuple[str, list[str]]


def repository_root(directory: Path) -> Path:
    """Return the root of the repository around the directory, or the directory itself."""
    real = Path(os.path.realpath(directory))
    return next((folder for folder in (real, *real.parents) if (folder / ".git").exists()), real)


def action_paths(root: Path) -> list[str]:
    """Return the files of the repository's actions, relative to its root, by name."""
    return [path for path in _listed(root, ACTIONS_DIRECTORY) if path.endswith(".yaml")]


def actor_paths(root: Path) -> list[str]:
    """Return the files of the repository's actors, relative to its root, by name."""
    return [path for path in _listed(root, ACTORS_DIRECTORY) if path.endswith(".yaml")]


def configured_paths(root: Path) -> list[str]:
    """Return the files that need trust and have a fixed path."""
    single = [path for path in _SINGLE_FILES if os.path.lexists(root / path)]
    return [*single, *action_paths(root), *actor_paths(root)]


def repository_paths(
    root: Path, *, directories_limit: int = _DIRECTORIES_LIMIT
) -> tuple[list[str], list[tuple[str, str]]]:
    """Return every file that needs trust, and the skipped files with their reasons."""
    paths = configured_paths(root)
    paths += _prompts(root)
    paths += _checks(root)
    skills, given_up = _skills(root, directories_limit)
    paths += skills
    if len(paths) > _FILES_LIMIT:
        given_up.append((".", f"has {len(paths)} files; only the first {_FILES_LIMIT} are read"))
    return paths[:_FILES_LIMIT], given_up


def read_inside(root: Path, relative: str) -> bytes | None:
    """Return the content of the file; None if it does not exist. Raises `ConfigurationError` for a file that
    cannot be trusted.
    """
    real_root = Path(os.path.realpath(root))
    resolved = Path(os.path.realpath(real_root / relative))
    if not resolved.is_relative_to(real_root):  # guard: nothing outside is read
        raise _refusal(root, relative, "leads out of the repository; replace the link with the file")
    try:
        descriptor = _open_inside(real_root, resolved.relative_to(real_root).parts)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        swapped = error.errno == errno.ELOOP
        words = "is a circular link, or changed while it was read" if swapped else None
        raise _refusal(root, relative, words or f"cannot be read: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _refusal(root, relative, "is not a regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(_FILE_LIMIT_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > _FILE_LIMIT_BYTES:
        raise _refusal(root, relative, f"is larger than {_FILE_LIMIT_BYTES >> 20} MiB")
    return content


def names_inside(root: Path, folder: str) -> list[str]:
    """Return the sorted names in a folder of the repository; none if it is not a folder or leads out."""
    real_root = Path(os.path.realpath(root))
    real = Path(os.path.realpath(real_root / folder))
    if not real.is_relative_to(real_root):  # guard: a link out is not a folder of the repository
        return []
    try:
        descriptor = _open_inside(real_root, real.relative_to(real_root).parts)
    except OSError:
        return []
    try:
        with os.scandir(descriptor) as entries:
            return sorted(entry.name for entry in entries)
    except OSError:
        return []
    finally:
        os.close(descriptor)


def walk_inside(root: Path, is_skipped: Callable[[str], bool]) -> Iterator[_Folder]:
    """Yield each folder, relative to the root, with the names of its files, in order of path.

    Every folder is opened from its parent and never through a link, even if another process swaps one in.
    Folders for which `is_skipped` returns True, and very deep folders, are left out.
    """
    with suppress(OSError):
        yield from _below(os.open(os.path.realpath(root), _DIRECTORY_FLAGS), "", is_skipped)


def _open_inside(root: Path, parts: tuple[str, ...]) -> int:
    folder = os.open(root, _DIRECTORY_FLAGS)
    try:
        for part in parts[:-1]:
            inner = os.open(part, _DIRECTORY_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = inner
        return os.open(parts[-1] if parts else ".", _FILE_FLAGS, dir_fd=folder)
    finally:
        os.close(folder)


def _prompts(root: Path) -> list[str]:
    """Return the files that actors may use as prompts: text files in the directory of the actors, or in a
    folder of it.
    """
    beside = _listed(root, ACTORS_DIRECTORY)
    below = [path for folder in beside for path in _listed(root, folder)]
    return [path for path in (*beside, *below) if path.endswith(PROMPT_ENDINGS)]


def _checks(root: Path) -> list[str]:
    """Return paths that begin with `.cleveragents/checks`, such as `checks.yaml` and files in `checks/`."""
    found: list[str] = []
    for path in _listed(root, _OURS):
        if not path.rpartition("/")[2].startswith("checks"):
            continue
        inside = _listed(root, path)
        found += inside or [path]
    return found


def _listed(root: Path, folder: str) -> list[str]:
    """Return the names in a folder of the repository as paths."""
    return [f"{folder}/{name}" for name in names_inside(root, folder)]


def _skills(root: Path, limit: int) -> tuple[list[str], list[tuple[str, str]]]:
    found: list[str] = []
    others: list[str] = []
    for number, (folder, names) in enumerate(walk_inside(root, _SKIPPED.__contains__)):
        if number >= limit:
            return found + others, [
                (".", f"has more than {limit} directories; skills in the rest are ignored")
            ]
        if _SKILL in names:
            found.append(f"{folder}/{_SKILL}".lstrip("/"))
        if _IN_A_SKILL.match(f"{folder}/"):
            others += [f"{folder}/{name}" for name in names if name != _SKILL]
    return sorted(found) + sorted(others), []


def _below(descriptor: int, folder: str, is_skipped: Callable[[str], bool]) -> Iterator[_Folder]:
    """Yield the folder of an open directory and all folders below it; close the directory afterwards."""
    try:
        with os.scandir(descriptor) as entries:
            found = {entry.name: _is_directory(entry) for entry in entries}
        yield folder, [name for name, is_directory in found.items() if not is_directory]
        if folder.count("/") + 1 >= _DEPTH_LIMIT:
            return
        for name in sorted(name for name, is_directory in found.items() if is_directory):
            if is_skipped(name):
                continue
            with suppress(OSError):  # a link, or replaced by something else
                below = os.open(name, _DIRECTORY_FLAGS, dir_fd=descriptor)
                yield from _below(below, f"{folder}/{name}".lstrip("/"), is_skipped)
    finally:
        os.close(descriptor)


def _is_directory(entry: os.DirEntry[str]) -> bool:
    """Return whether the entry is a directory or a link to a directory. (Links are never entered.)"""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _refusal(root: Path, relative: str, problem: str) -> ConfigurationError:
    return ConfigurationError(str(root / relative), problem)


class RepositoryFile(Struct, frozen=True):
    """A file, read once. `trusted` refers to this content, so users of the file use `content` and do not read
    it again. `path` is relative to the root, with `/`.
    """

    path: str
    digest: str
    content: bytes
    trusted: bool


class TrustSurvey(Struct, frozen=True):
    """All files of a repository that need trust. `refused` are files that cannot be trusted, with the
    reasons, including a note if the search reached its limit.
    """

    root: Path
    files: tuple[RepositoryFile, ...]
    refused: tuple[tuple[str, str], ...] = ()

    @property
    def pending(self) -> tuple[RepositoryFile, ...]:
        """The files whose current content is not trusted."""
        return tuple(file for file in self.files if not file.trusted)


class TrustedContent(Struct, frozen=True):
    """A trusted content."""

    path: str
    digest: str
    trusted_at: datetime
