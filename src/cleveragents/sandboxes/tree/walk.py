"""Walks the files of a sandbox while hostile processes may be changing them.

git looks files up by path, so a process that replaces a directory by a symbolic link at the right moment
makes git read, or write, outside the tree. Here every directory is opened from its parent with `O_NOFOLLOW`,
and everything else is done through those descriptors: whatever a process does meanwhile, no step leaves the
tree.

What is in a `.git`, at any depth, is nobody's work and may say anything: it is never looked at.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

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
# A system call takes 4,095 bytes; our own directories come before these.
_LONGEST_PATH = 3_500
_DEEPEST_PATH = 200
_LARGEST_RULES = 1 << 20
_ALL_RULES = 32 << 20
_IGNORE_FILE = ".gitignore"


def read_bytes(directory: int, name: str, *, at_most: int) -> bytes | None:
    """The content of a regular file in an open directory; None if there is none, or it is too large."""
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
    """Whether git would take a directory with such entries for a git directory. Its objects and refs may be
    where `commondir` says."""
    return "HEAD" in names and ("commondir" in names or ("objects" in names and "refs" in names))


def git_holders(top: int, *, itself: bool = True) -> Iterator[tuple[int, Collection[str]]]:
    """The directories that hold a `.git`, or are a git directory: those below an open one, and `itself`. Each
    comes with the names in it, and is open until the next is asked for.

    One descriptor is enough at any depth: the way up is `..`, if that is where we came from. `OSError` if
    not. What does not let us in, and is not ours, is passed over: it keeps a person's git out as well.
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
                    raise OSError(errno.EBUSY, "a directory was moved meanwhile")
            else:
                return
    finally:
        os.close(here)


def names_in(directory: int) -> list[str]:
    """What an open directory holds."""
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries]


def _entries_in(directory: int) -> tuple[Collection[str], list[str]]:
    """All names, and those of directories that are to be entered."""
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
    """What a tree holds. `files` are the files and links that are tracked or not ignored, with stat data.
    `ignored` names the rest: a directory ends in a slash, and nothing but ignored files is in it.
    `repositories` are the directories that hold a `.git`. `unseen` are the directories that were not looked
    into: ignored ones, those of submodules, and those whose path is too long. `problem` says why the rest is
    not to be relied on: repositories were looked for all the same."""

    files: dict[str, os.stat_result] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    repositories: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    problem: str = ""


Ignores = Callable[[Collection[str], dict[str, bytes]], frozenset[str]]
"""Those of some paths that are ignored, given the .gitignore files on the way to them; directories end in a
slash."""


@dataclass(frozen=True, slots=True)
class KnownPaths:
    """What is known before a walk: the paths that are `tracked`, those of submodules, which are `left_alone`,
    and names of directories that are `never_entered` unless something in them is tracked."""

    tracked: Collection[str]
    left_alone: frozenset[str] = frozenset()
    never_entered: frozenset[str] = frozenset()


def survey(root: Path, known: KnownPaths, ignores: Ignores) -> TreeSurvey:
    """Looks at every file below `root` that is tracked or not ignored.

    It has a `problem` if a path is too long for any system call, or the rules are too large, or of no use.
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
        """Level by level where nothing is tracked: the rules above decide whether a directory is entered."""
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
        except SandboxRefused as refusal:  # rules that are of no use hide no repository
            self._found.problem = refusal.reason
            return frozenset()

    def _visit(self, top: str) -> None:
        """One directory, and all tracked ones below it."""
        pending = [top]
        while pending:
            path = pending.pop()
            descriptor = self._cursor.open(path)
            if descriptor is not None:
                pending += reversed(self._look(descriptor, f"{path}/" if path else ""))

    def _look(self, descriptor: int, before: str) -> list[str]:
        """The tracked directories in an open one."""
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
                self._found.problem = f"{path[:60]!r}… cannot be recorded: its path is longer than {bounds}"
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
            return  # gone, or replaced while we look
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
            self._found.problem = f"its .gitignore files have more than {_ALL_RULES >> 20} MiB together"
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
    """The ignored entries; an untracked directory with nothing else in it takes the place of its files."""
    holding = _directories_of(found.files)
    hiding = _directories_of(path.rstrip("/") for path in found.ignored)
    whole = {path for path in entered if path not in holding and path in hiding}
    kept = [path for path in found.ignored if whole.isdisjoint(_above(path))]
    return [*kept, *(f"{path}/" for path in whole if whole.isdisjoint(_above(path)))]


def _above(path: str) -> list[str]:
    parts = path.rstrip("/").split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]
