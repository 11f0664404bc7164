"""Record the files of a sandbox in an index, without git reading them.

We walk the tree ourselves (`tree.walk`), compare stat data with the index, and read changed files through
open directories. git receives blobs and names. If settings or attributes convert line endings and the like,
git receives copies of the changed files in a directory that no command can reach.

All functions are safe while hostile processes change the tree. For a consistent result, the caller holds the
sandbox's lock and has ended the processes of the call.

To find ignored paths, git receives names, and copies of the .gitignore files in a directory of ours.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct

from cleveragents.core.change import EXECUTABLE, GITLINK, REGULAR, SYMLINK, FileState
from cleveragents.core.errors import GitFailed, SandboxRefused
from cleveragents.git.git_directory import LooseObjects
from cleveragents.git.index_file import IndexEntry, entries_of, stat_key, with_stats
from cleveragents.git.plumbing import PrivateRepository, index_line, within
from cleveragents.git.user_repository import MODULES, submodule_paths
from cleveragents.sandboxes.facts import SandboxLayout
from cleveragents.sandboxes.tree.walk import KnownPaths, TreeSurvey, read_bytes, survey
from cleveragents.storage.files.file_copy import copy_file
from cleveragents.storage.files.paths import DirectoryCursor, directory_of, remove_all

__all__ = [
    "ATTRIBUTES",
    "SandboxTree",
    "TreeScan",
    "Unrecordable",
    "ignored_by",
    "is_unchanged",
    "open_tree",
    "rules_for",
]


ATTRIBUTES = ".gitattributes"
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_ATTEMPTS = 20
_LARGEST_MODULES = 1 << 20
# File systems may give two changes this close together the same time.
_TICK_NS = 50_000_000

_IGNORE_FILE = ".gitignore"
_LARGEST_RULES = 1 << 20
# Commands can write the rules, and matching can take forever.
_SECONDS = 60.0


class Unrecordable(Struct, frozen=True):
    """Files of the tree that could not be recorded, and the reason."""

    problem: str
    paths: tuple[str, ...]


class TreeScan(Struct, frozen=True):
    """A survey of the tree, the index entries to compare it with, and the times when the survey began and the
    index was written.
    """

    found: TreeSurvey
    entries: dict[str, IndexEntry]
    began_ns: int
    written_ns: int


class SandboxTree(Struct, frozen=True):
    """The tree of one sandbox. Holds only immutable state, so any thread may share it.

    `plain`: no setting converts a file's bytes; a .gitattributes file may, unless the tree is `exact`.
    `gitlinks` are the submodules of the base.
    """

    place: SandboxLayout
    engine: PrivateRepository
    objects: LooseObjects
    plain: bool
    exact: bool = False
    gitlinks: tuple[str, ...] = ()

    @property
    def root(self) -> Path:
        return self.place.tree

    def entries(self, index: Path) -> dict[str, IndexEntry]:
        """Return the entries of an index of this sandbox."""
        return entries_of(index, name_bytes=self._name_bytes)

    def survey(
        self, index: Path, *, never_entered: Collection[str] = ()
    ) -> tuple[TreeSurvey, dict[str, IndexEntry]]:
        """Return the current files and the entries of the index. Raises `SandboxRefused` if the survey has a
        problem.

        Skips directories with a name in `never_entered` unless they contain tracked files.
        """
        look = self.look(index, never_entered=never_entered)
        self._ensure_reliable(look)
        return look.found, look.entries

    def look(self, index: Path, *, never_entered: Collection[str] = ()) -> TreeScan:
        """Like `survey`, but return a result with a problem instead of raising."""
        written_ns = _written_ns(index)
        began_ns = time.time_ns()
        entries = self.entries(index)
        links = [path for path, entry in entries.items() if entry.mode == GITLINK]
        ignores = partial(ignored_by, self.engine, self.place)
        known = KnownPaths(entries.keys(), frozenset((*links, *self.gitlinks)), frozenset(never_entered))
        return TreeScan(survey(self.root, known, ignores), entries, began_ns, written_ns)

    def stage(self, index: Path, look: TreeScan) -> Unrecordable | None:
        """Update `index`, the caller's own copy, to the surveyed tree; return the files that could not be
        recorded.

        Of submodules, only their removal is recorded (`kept_submodules`). Raises `SandboxRefused` if a path
        is too long or a file never stops growing.
        """
        self._ensure_reliable(look)
        found, entries = look.found, look.entries
        changed = [
            path
            for path, status in found.files.items()
            if path not in entries or not is_unchanged(entries[path], status, look.written_ns)
        ]
        gone = [path for path, entry in entries.items() if path not in found.files and entry.mode != GITLINK]
        left = None
        if changed or gone:
            plain = self.plain and (self.exact or not _hold_attributes(found.files))
            record = self._record_plainly if plain else self._record_by_git
            left = record(index, changed, gone, look.began_ns)
        self._record_submodules(index, entries)
        return left

    def _ensure_reliable(self, look: TreeScan) -> None:
        if look.found.problem:
            raise SandboxRefused(str(self.root), look.found.problem)

    def kept_submodules(self) -> frozenset[str]:
        """Return the submodules that were not removed.

        A submodule counts as removed only if its directory is gone and .gitmodules does not name it, because
        an empty directory is easily lost.
        """
        gone = self._gone_submodules()
        return frozenset(self.gitlinks) - (gone - self._named_submodules() if gone else gone)

    def half_removed_submodules(self) -> frozenset[str]:
        """Return the submodules whose directory was removed while .gitmodules still names them."""
        gone = self._gone_submodules()
        return gone & self._named_submodules() if gone else gone

    def state_by_git(self, path: str, index: Path) -> FileState | None:
        """Return the state of one file as git would record it. Modifies `index`, the caller's own copy."""
        attributes = self._there(above for above in _attributes_above(path) if above != path)
        left = self._record_by_git(index, [*attributes, path], (), time.time_ns())
        if left is not None and path in left.paths:
            raise SandboxRefused(str(self.root), f"cannot record {path!r}: {left.problem}")
        entry = self.entries(index).get(path)
        return None if entry is None else FileState(entry.mode, entry.name)

    def attributes_on_the_way(self, path: str) -> list[str]:
        """Return the paths named .gitattributes, of any file type, in the directories above a path."""
        with DirectoryCursor(self.root) as cursor:
            return [above for above in _attributes_above(path) if _exists(cursor, above)]

    def state_at(self, directory: int, name: str) -> tuple[FileState, os.stat_result] | None:
        """Store the bytes of a file in an open directory, without conversion; return its state and stat data.

        None if it is neither a file nor a link. Raises `SandboxRefused` if the file never stops growing.
        """
        try:
            status = os.lstat(name, dir_fd=directory)
            if stat.S_ISLNK(status.st_mode):
                target = os.readlink(os.fsencode(name), dir_fd=directory)
                return FileState(SYMLINK, self.objects.keep(target)), status
            if not stat.S_ISREG(status.st_mode):
                return None
            descriptor = os.open(name, _READ, dir_fd=directory)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            return self._regular(descriptor)
        finally:
            os.close(descriptor)

    def _regular(self, descriptor: int) -> tuple[FileState, os.stat_result] | None:
        for _ in range(_ATTEMPTS):
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return None
            name = self.objects.keep_file(descriptor, status.st_size)
            if name is not None:
                return FileState(EXECUTABLE if status.st_mode & stat.S_IXUSR else REGULAR, name), status
            os.lseek(descriptor, 0, os.SEEK_SET)
        raise SandboxRefused(str(self.root), "cannot record a file that never stops growing")

    def _gone_submodules(self) -> frozenset[str]:
        with DirectoryCursor(self.root) as cursor:
            return frozenset(path for path in self.gitlinks if cursor.open(path) is None)

    def _named_submodules(self) -> frozenset[str]:
        """Return the submodules in .gitmodules; all submodules if it cannot be read."""
        with DirectoryCursor(self.root) as cursor:
            root = cursor.open("")
            if root is None or not os.path.lexists(self.root / MODULES):
                return frozenset()
            content = read_bytes(root, MODULES, at_most=_LARGEST_MODULES)
        if content is None:
            return frozenset(self.gitlinks)
        named = submodule_paths(self.engine, content)
        return frozenset(self.gitlinks) if named is None else named

    def _record_submodules(self, index: Path, entries: Mapping[str, IndexEntry]) -> None:
        if not self.gitlinks:
            return
        kept = self.kept_submodules()
        lines = [self._no_entry(path) for path in self.gitlinks if path in entries and path not in kept]
        back = [path for path in kept if path not in entries]
        if back:
            base = self.entries(self.place.base_index)
            lines += [index_line(GITLINK, base[path].name, path) for path in back]
        if lines:
            self.engine.git("update-index", "-z", "--index-info", index=index, feed=b"".join(lines))

    @property
    def _name_bytes(self) -> int:
        return 20 if self.objects.algorithm == "sha1" else 32

    def _record_plainly(
        self, index: Path, changed: Sequence[str], gone: Sequence[str], began_ns: int
    ) -> Unrecordable | None:
        stats: dict[str, os.stat_result] = {}
        closed: list[str] = []
        lines = [self._no_entry(path) for path in gone]
        with DirectoryCursor(self.root) as cursor:
            for path in changed:
                directory, _, name = path.rpartition("/")
                descriptor = cursor.open(directory)
                try:
                    found = None if descriptor is None else self.state_at(descriptor, name)
                except OSError:
                    closed.append(path)
                    continue
                if found is None:
                    lines.append(self._no_entry(path))  # it was removed or replaced after the survey
                else:
                    state, stats[path] = found
                    lines.append(index_line(state.mode, state.content, path))
        options = ("update-index", "--replace", "-z", "--index-info")
        self.engine.git(*options, index=index, feed=b"".join(lines))
        return self._recorded(index, stats, closed, began_ns)

    def _record_by_git(
        self, index: Path, changed: Sequence[str], gone: Sequence[str], began_ns: int
    ) -> Unrecordable | None:
        shadow = self.place.scratch("changed")
        shadow.mkdir()
        try:
            stats, closed = self._copy(changed, shadow)
            there = frozenset(stats)
            away = [self._no_entry(path) for path in (*gone, *changed) if path not in there]
            removing = ("update-index", "--replace", "-z", "--index-info")
            self.engine.git(*removing, index=index, feed=b"".join(away))
            feed = b"".join(os.fsencode(path) + b"\0" for path in stats)
            adding = ("update-index", "--add", "--replace", "-z", "--stdin")
            self.engine.git(*adding, work_tree=shadow, index=index, feed=feed)
        except GitFailed as error:  # a file does not fit its `working-tree-encoding`
            reason = (
                f"cannot record the files of the sandbox: {error.problem}; change the file, or .gitattributes"
            )
            raise SandboxRefused(str(self.root), reason) from error
        finally:
            remove_all(shadow)
        return self._recorded(index, stats, closed, began_ns)

    def _recorded(
        self, index: Path, stats: Mapping[str, os.stat_result], closed: Sequence[str], began_ns: int
    ) -> Unrecordable | None:
        """Complete the index; return the names that git silently refused, so that no file gets lost."""
        taken = with_stats(index, _settled(stats, began_ns), name_bytes=self._name_bytes)
        refused = tuple(path for path in stats if path not in taken)  # guard: see above
        if closed:
            return Unrecordable("not readable", (*closed, *refused))
        return Unrecordable("invalid path: git does not allow that name", refused) if refused else None

    def _there(self, paths: Iterable[str]) -> list[str]:
        """Return the paths that are regular files, not reached through a link."""
        with DirectoryCursor(self.root) as cursor:
            return [path for path in paths if _is_file(cursor, path)]

    def _copy(self, paths: Iterable[str], shadow: Path) -> tuple[dict[str, os.stat_result], list[str]]:
        """Copy these paths; return their stat data, and the paths that could not be read."""
        stats: dict[str, os.stat_result] = {}
        closed: list[str] = []
        with DirectoryCursor(self.root) as cursor:
            for path in paths:
                directory, _, name = path.rpartition("/")
                descriptor = cursor.open(directory)
                if descriptor is None:
                    continue
                with directory_of(shadow, path, make=True) as target:
                    assert target is not None
                    try:
                        status = copy_file(descriptor, target[0], name)
                    except OSError:
                        closed.append(path)
                        continue
                if status is not None:
                    stats[path] = status
        return stats, closed

    def _no_entry(self, path: str) -> bytes:
        return index_line(0, "0" * (2 * self._name_bytes), path)


def open_tree(directory: Path) -> SandboxTree:
    """Return the tree of the sandbox in `directory`. Raises `SandboxMissing`."""
    place = SandboxLayout(directory)
    facts = place.read_facts(directory.name)
    objects = LooseObjects(place.engine / "objects", facts.object_format, facts.durable)
    engine = PrivateRepository(place.engine, facts.traits)
    return SandboxTree(place, engine, objects, facts.plain, facts.exact, facts.gitlinks)


def is_unchanged(entry: IndexEntry, status: os.stat_result, written_ns: int) -> bool:
    """Return whether the file matches the index.

    A file changed at the time the index was written does not match: it may have changed again within the same
    clock tick.
    """
    return entry.key == stat_key(status) and status.st_ctime_ns < written_ns


def _settled(stats: Mapping[str, os.stat_result], began_ns: int) -> dict[str, os.stat_result | None]:
    """Return the stat data by which later changes can be detected; None for a file changed too recently."""
    return {
        path: status if status.st_ctime_ns < began_ns - _TICK_NS else None for path, status in stats.items()
    }


def _written_ns(index: Path) -> int:
    try:
        return index.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _hold_attributes(paths: Iterable[str]) -> bool:
    return any(path.rpartition("/")[2] == ATTRIBUTES for path in paths)


def _attributes_above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join([*parts[:count], ATTRIBUTES]) for count in range(len(parts))]


def _exists(cursor: DirectoryCursor, path: str) -> bool:
    directory, _, name = path.rpartition("/")
    try:
        descriptor = cursor.open(directory)
        if descriptor is None:
            return False
        os.lstat(name, dir_fd=descriptor)
    except OSError:
        return False
    return True


def _is_file(cursor: DirectoryCursor, path: str) -> bool:
    directory, _, name = path.rpartition("/")
    descriptor = cursor.open(directory)
    try:
        return descriptor is not None and stat.S_ISREG(os.lstat(name, dir_fd=descriptor).st_mode)
    except OSError:
        return False


def ignored_by(
    engine: PrivateRepository,
    place: SandboxLayout,
    paths: Collection[str],
    rules: Mapping[str, bytes],
    *,
    unless_in: Path | None = None,
) -> frozenset[str]:
    """Return the ignored paths; directories end in a slash. `rules` are .gitignore files by path.

    With `unless_in`, an index, its entries do not count as ignored.
    """
    if not paths:
        return frozenset()
    shadow = place.scratch("rules")
    shadow.mkdir()
    try:
        for path, content in rules.items():
            with directory_of(shadow, path, make=True):
                (shadow / path).write_bytes(content)
        # A name may have a special meaning for git; this prefix makes it a plain path.
        feed = b"".join(b"./" + os.fsencode(path) + b"\0" for path in paths)
        indexed = ("--no-index",) if unless_in is None else ()
        options = ("check-ignore", *indexed, "-z", "--stdin")
        with engine.start(
            *options, work_tree=shadow, index=unless_in, seconds_left=within(_SECONDS)
        ) as running:
            listed = running.finish(feed, succeeds=(0, 1))[0]
    except GitFailed as error:
        reason = f"cannot use its .gitignore files: git did not finish within {_SECONDS:.0f} s"
        raise SandboxRefused(str(place.tree), reason) from error
    finally:
        remove_all(shadow)
    return frozenset(name.removeprefix("./") for name in os.fsdecode(listed).split("\0")[:-1])


def rules_for(root: Path, paths: Iterable[str]) -> tuple[list[str], dict[str, bytes]]:
    """Return the paths, with a slash appended to directories, and the .gitignore files above them."""
    spelled: list[str] = []
    rules: dict[str, bytes] = {}
    seen: set[str] = set()
    with DirectoryCursor(root) as cursor:
        for path in sorted(paths):
            parts = path.split("/")
            for count in range(len(parts)):
                directory = "/".join(parts[:count])
                descriptor = cursor.open(directory)
                if descriptor is None:
                    break
                if directory not in seen:
                    seen.add(directory)
                    content = read_bytes(descriptor, _IGNORE_FILE, at_most=_LARGEST_RULES)
                    if content is not None:
                        rules[f"{directory}/{_IGNORE_FILE}" if directory else _IGNORE_FILE] = content
            spelled.append(path + _slash(cursor, path))
    return spelled, rules


def _slash(cursor: DirectoryCursor, path: str) -> str:
    directory, _, name = path.rpartition("/")
    descriptor = cursor.open(directory)
    if descriptor is None:
        return ""
    try:
        status = os.lstat(name, dir_fd=descriptor)
    except OSError:
        return ""
    return "/" if stat.S_ISDIR(status.st_mode) else ""
