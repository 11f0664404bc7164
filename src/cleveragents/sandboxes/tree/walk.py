"""Walk the files of a sandbox while hostile processes may change them.

git opens files by path, so a process that replaces a directory by a symbolic link at the right moment makes
git read or write outside the tree. Here every directory is opened from its parent with `O_NOFOLLOW`, and all
other operations use those descriptors: whatever a process does meanwhile, no step leaves the tree.

The content of a `.git`, at any depth, is untrusted and never examined.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct

from cleveragents.core.errors import SandboxRefused
from cleveragents.storage.files.paths import DirectoryCursor, open_directory

__all__ = [
    "KnownPaths",
    "TreeSurvey",
    "git_holders",
    "is_git_directory",
    "names_in",
    "read_bytes",
    "survey",
]

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# A system call accepts 4,095 bytes, including our own directories before these.
_LONGEST_PATH = 3_500
_DEEPEST_PATH = 200
_LARGEST_RULES = 1 << 20
_ALL_RULES = 32 << 20
_IGNORE_FILE = ".gitignore"


def read_bytes(directory: int, name: str, *, at_most: int) -> bytes | None:
    """Return the content of a regular file in an open directory; None if it is missing or too large."""
    try:
        descriptor = os.open(name, _READ, dir_fd=directory)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(at_most + 1)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return data if len(data) <= at_most else None


def is_git_directory(names: Collection[str]) -> bool:
    """Return whether git would treat a directory with these entries as a git directory. Its objects and refs
    may be where `commondir` points.
    """
    return "HEAD" in names and ("commondir" in names or ("objects" in names and "refs" in names))


def git_holders(top: int, *, itself: bool = True) -> Iterator[tuple[int, Collection[str]]]:
    """Yield the directories below `top` (and `top`, if `itself`) that hold a `.git` or are a git directory.

    Each is an open descriptor with its entries, and stays open until the next one. One descriptor is enough
    at any depth: the walk goes up through `..` and checks that this is the same directory as before. Raises
    `OSError` if it is not. Directories of other users that deny access are skipped: they deny it to a
    person's git as well.
    """
    here = os.dup(top)
    above: list[tuple[os.stat_result, list[str]]] = []
    try:
        names, pending = _entries_in(here)
        names = names if itself else ()
        while True:
            if ".git" in names or is_git_directory(names):
                yield here, names
            names = ()
            if pending:
                below = _opened(here, pending.pop())
                if below is not None:
                    above.append((os.fstat(here), pending))
                    os.close(here)
                    here = below
                    names, pending = _entries_in(here)
            elif above:
                known, pending = above.pop()
                parent = os.open("..", _DIRECTORY, dir_fd=here)
                os.close(here)
                here = parent
                if not os.path.samestat(known, os.fstat(here)):  # guard: it would lead elsewhere
                    raise OSError(errno.EBUSY, "a directory was moved during the walk")
            else:
                return
    finally:
        os.close(here)


def names_in(directory: int) -> list[str]:
    """Return the names in an open directory."""
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries]


def _entries_in(directory: int) -> tuple[Collection[str], list[str]]:
    """Return all names, and those of the directories to enter."""
    with os.scandir(directory) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    return [name for name, _ in found], [
        name for name, is_directory in found if is_directory and name != ".git"
    ]


def _opened(directory: int, name: str) -> int | None:
    try:
        return open_directory(directory, name)
    except OSError:
        return None


@dataclass(slots=True)
class TreeSurvey:
    """The content of a tree.

    `files` are the files and links that are tracked or not ignored, with stat data. `ignored` lists all other
    entries; a directory in it ends in a slash and contains only ignored files. `repositories` are the
    directories with a `.git`. `unseen` are directories that were not entered: ignored directories,
    submodules, and directories whose path is too long. `problem` is the reason why the result is unreliable;
    `repositories` is complete even then.
    """

    files: dict[str, os.stat_result] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    repositories: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    problem: str = ""


Ignores = Callable[[Collection[str], dict[str, bytes]], frozenset[str]]
"""A function that returns the ignored ones of some paths, given the .gitignore files above them; directories
end in a slash.
"""


class KnownPaths(Struct, frozen=True):
    """Facts known before a walk: the `tracked` paths, the submodules (`left_alone`), and names of directories
    that are `never_entered` unless they contain tracked files.
    """

    tracked: Collection[str]
    left_alone: frozenset[str] = frozenset()
    never_entered: frozenset[str] = frozenset()


def survey(root: Path, known: KnownPaths, ignores: Ignores) -> TreeSurvey:
    """Survey every file below `root` that is tracked or not ignored.

    The result has a `problem` if a path is too long for a system call, or the ignore rules are too large or
    unusable.
    """
    with DirectoryCursor(root) as cursor:
        return _Walk(cursor, known, ignores).run()


class _Walk:
    """One survey. Not thread-safe."""

    def __init__(self, cursor: DirectoryCursor, known: KnownPaths, ignores: Ignores) -> None:
        self._cursor = cursor
        self._known = known
        self._tracked_directories = _directories_of(known.tracked)
        self._ignores = ignores
        self._rules: dict[str, bytes] = {}
        self._rule_bytes = 0
        self._found = TreeSurvey()
        self._unknown: dict[str, os.stat_result] = {}
        self._untracked_directories: list[str] = []

    def run(self) -> TreeSurvey:
        """Walk untracked directories level by level: the ignore rules of a level decide where to go next."""
        waiting = [""]
        entered: list[str] = []
        while waiting:
            for directory in sorted(waiting):
                self._visit(directory)
            files, directories = self._unknown, self._untracked_directories
            self._unknown, self._untracked_directories = {}, []
            asked = [*files, *(f"{path}/" for path in directories)]
            hidden = self._hidden(asked)
            self._found.files |= {path: status for path, status in files.items() if path not in hidden}
            self._found.ignored += [path for path in asked if path in hidden]
            waiting = [path for path in directories if f"{path}/" not in hidden]
            self._found.unseen += [path for path in directories if f"{path}/" in hidden]
            entered += waiting
        self._found.ignored = _collapsed(self._found, entered)
        return self._found

    def _hidden(self, asked: list[str]) -> frozenset[str]:
        if not asked or self._found.problem:
            return frozenset()
        try:
            return self._ignores(asked, self._rules)
        except SandboxRefused as refusal:  # unusable rules must not hide a repository
            self._found.problem = refusal.reason
            return frozenset()

    def _visit(self, top: str) -> None:
        """Survey one directory and all tracked ones below it."""
        pending = [top]
        while pending:
            path = pending.pop()
            descriptor = self._cursor.open(path)
            if descriptor is not None:
                pending += reversed(self._look(descriptor, f"{path}/" if path else ""))

    def _look(self, descriptor: int, before: str) -> list[str]:
        """Survey an open directory; return its tracked subdirectories."""
        tracked: list[str] = []
        with os.scandir(descriptor) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            path = before + entry.name
            if entry.name == ".git":
                self._found.repositories.append(before.removesuffix("/"))
                continue
            if path in self._known.left_alone:
                self._pass_over(entry, path)
                continue
            if len(os.fsencode(path)) > _LONGEST_PATH or path.count("/") > _DEEPEST_PATH:
                bounds = f"{_LONGEST_PATH} bytes or {_DEEPEST_PATH} directories"
                self._found.problem = f"cannot record {path[:60]!r}…: the path is longer than {bounds}"
                self._pass_over(entry, path)
                continue
            if entry.is_dir(follow_symlinks=False):
                if path in self._tracked_directories:
                    tracked.append(path)
                elif entry.name not in self._known.never_entered:
                    self._untracked_directories.append(path)
            else:
                self._file(entry, path, descriptor)
        return tracked

    def _pass_over(self, entry: os.DirEntry[str], path: str) -> None:
        if entry.is_dir(follow_symlinks=False):
            self._found.unseen.append(path)

    def _file(self, entry: os.DirEntry[str], path: str, descriptor: int) -> None:
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            return  # removed or replaced meanwhile
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
            return
        if entry.name == _IGNORE_FILE and stat.S_ISREG(status.st_mode):
            self._rule(path, read_bytes(descriptor, entry.name, at_most=_LARGEST_RULES))
        if path in self._known.tracked:
            self._found.files[path] = status
        else:
            self._unknown[path] = status

    def _rule(self, path: str, rules: bytes | None) -> None:
        if rules is None:
            return
        self._rule_bytes += len(rules)
        if self._rule_bytes > _ALL_RULES:
            self._found.problem = f"the .gitignore files exceed {_ALL_RULES >> 20} MiB"
            return
        self._rules[path] = rules


def _directories_of(paths: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for path in paths:
        directory = path.rpartition("/")[0]
        while directory and directory not in found:
            found.add(directory)
            directory = directory.rpartition("/")[0]
    return found


def _collapsed(found: TreeSurvey, entered: list[str]) -> list[str]:
    """Return the ignored entries. An untracked directory with only ignored files replaces its files."""
    holding = _directories_of(found.files)
    hiding = _directories_of(path.rstrip("/") for path in found.ignored)
    whole = {path for path in entered if path not in holding and path in hiding}
    kept = [path for path in found.ignored if whole.isdisjoint(_above(path))]
    return [*kept, *(f"{path}/" for path in whole if whole.isdisjoint(_above(path)))]


def _above(path: str) -> list[str]:
    parts = path.rstrip("/").split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]
