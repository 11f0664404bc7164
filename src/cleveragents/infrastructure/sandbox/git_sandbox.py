"""A sandbox of either strategy: files in `tree`, their content and history in a git directory of ours.

Everything is asked of `engine`, never of the `.git` that commands see. An index is copied, worked on and put
in place whole, so that readers in several processes need no lock and a killed one leaves none.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from cleveragents.application.ports.faults import FaultPoints, NoFaults
from cleveragents.application.ports.sandboxes import Sandbox
from cleveragents.domain.file_state import EXECUTABLE, GITLINK, REGULAR, SYMLINK, Difference, FileState
from cleveragents.domain.merge_conflict import TreeMerge
from cleveragents.errors import GitFailed, SandboxMissing, SandboxRefused
from cleveragents.infrastructure.git.content_merge import merged_content
from cleveragents.infrastructure.git.git_directory import copy_index
from cleveragents.infrastructure.git.index_file import holds_attributes
from cleveragents.infrastructure.git.loose_objects import LooseObjects
from cleveragents.infrastructure.git.plumbing import PrivateRepository, index_line
from cleveragents.infrastructure.sandbox.carrying import copy_objects, place_of
from cleveragents.infrastructure.sandbox.conversions import untouched
from cleveragents.infrastructure.sandbox.facts import SandboxFacts, SandboxPlace
from cleveragents.infrastructure.sandbox.ignored import IgnoredFiles
from cleveragents.infrastructure.sandbox.locking import locked
from cleveragents.infrastructure.sandbox.paths import delete_file, directory_of, is_repository_path
from cleveragents.infrastructure.sandbox.setting_aside import SettingAside
from cleveragents.infrastructure.sandbox.tree_merge import MergePlace, files_of, merge_of
from cleveragents.infrastructure.sandbox.unrecordable import move_aside, refused_by_git, strange_submodules

__all__ = ["GitSandbox"]

_ATTRIBUTES = ".gitattributes"
# Below what every kernel takes as one argument list.
_ARGUMENT_BYTES = 100_000
_ATTEMPTS = 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


class GitSandbox:
    """`Sandbox` on a directory that a strategy made. Stateless but for what never changes, so any thread
    may share it; `writing` is for those who change files."""

    def __init__(self, place: SandboxPlace, facts: SandboxFacts, faults: FaultPoints | None = None) -> None:
        self._place = place
        self._facts = facts
        self._engine = PrivateRepository(place.engine, facts.traits)
        self._objects = LooseObjects(place.engine / "objects", facts.object_format, facts.durable)
        self._ignored = IgnoredFiles(place, self._engine, facts.durable)
        self._aside = SettingAside(place, facts.durable, faults or NoFaults())

    @property
    def plan_id(self) -> str:
        return self._facts.plan_id

    @property
    def root(self) -> Path:
        return self._place.tree

    @property
    def base(self) -> str:
        return self._facts.base

    @property
    def facts(self) -> SandboxFacts:
        """What was written down when it was made."""
        return self._facts

    @property
    def repository(self) -> PrivateRepository:
        """Our git directory, for those who merge into the user's files."""
        return PrivateRepository(self._place.engine)

    @property
    def readable(self) -> tuple[Path, ...]:
        return tuple(Path(path) for path in self._facts.readable)

    @property
    def notes(self) -> tuple[str, ...]:
        return self._facts.notes

    @contextmanager
    def writing(self, *, timeout_seconds: float = 0.0) -> Iterator[None]:
        with locked(self._place.lock, self.plan_id, timeout_seconds=timeout_seconds):
            self._aside.put_back()  # guard: who set it aside is dead, or the lock were not ours
            yield

    def scan(self) -> Mapping[str, Difference]:
        self._ensure_there()
        strange = strange_submodules(self.root, self._facts.gitlinks)
        if strange:
            problem = f"{strange[0]} is a submodule, and files were put in its place"
            raise self._unrecordable(problem=problem, paths=strange)
        with self._index(self._place.index) as index:
            try:
                self._engine.stage(self.root, index, spared=self._facts.gitlinks, enter=True)
            except GitFailed as error:
                refused = self._refused_by_git()
                raise self._unrecordable(problem=error.problem, paths=refused) from error
            options = ("--cached", "--raw", "-z", "--no-abbrev", "--no-renames")
            listed = self._engine.git("diff-index", *options, self.base, index=index)
            index.replace(self._place.index)
        found = dict(_differences(listed))
        for path in self._merely_converted(found):
            del found[path]
        return found

    def state_of(self, path: str) -> FileState | None:
        self._ensure_there()
        if not is_repository_path(path):
            return None
        if path in self._facts.gitlinks:
            return self.base_states((path,))[path]
        if not self._needs_no_git(path):
            return self._state_by_git(path)
        with directory_of(self.root, path) as found:
            return None if found is None else self._state_at(*found)

    def ignored(self, paths: Iterable[str]) -> frozenset[str]:
        feed = b"".join(os.fsencode(path) + b"\0" for path in paths if is_repository_path(path))
        if not feed:
            return frozenset()
        listed = self._engine.git(
            "check-ignore",
            "-z",
            "--stdin",
            work_tree=self.root,
            index=self._place.index,
            feed=feed,
            succeeds=(0, 1),
        )
        return frozenset(os.fsdecode(listed).split("\0")[:-1])

    def ignored_entries(self, recorded: Iterable[str] = ()) -> tuple[str, ...]:
        self._ensure_there()
        return tuple(sorted({*self._ignored.made(recorded), *self._aside.entries()}))

    def count_as_set_up(self) -> None:
        self._ensure_there()
        self._ignored.count_as_set_up()

    @contextmanager
    def without_ignored(self, recorded: Iterable[str] = ()) -> Iterator[tuple[str, ...]]:
        self._ensure_there()
        kept = tuple(recorded)
        made = self._ignored.made(kept)
        try:
            self._aside.move(made)
            try:
                yield made
            finally:
                # guard: only now, when all that was there before is away
                for entry in self._ignored.made(kept):
                    self._aside.remove(entry)
        finally:
            self._aside.put_back()

    def base_states(self, paths: Iterable[str]) -> Mapping[str, FileState | None]:
        states: dict[str, FileState | None] = dict.fromkeys(paths)
        for names in _portions(path for path in states if is_repository_path(path)):
            listed = self._engine.git("--literal-pathspecs", "ls-tree", "-z", self.base, "--", *names)
            for line in os.fsdecode(listed).split("\0")[:-1]:
                facts, _, path = line.partition("\t")
                mode, kind, name = facts.split(" ")
                if kind != "tree" and path in states:
                    states[path] = FileState(int(mode, 8), name)
        return states

    def content(self, name: str) -> bytes:
        kept = self._objects.read(name)
        return self._engine.git("cat-file", "blob", name) if kept is None else kept

    def restore(self, states: Mapping[str, FileState | None]) -> None:
        self._ensure_there()
        for path in states:
            if not is_repository_path(path):
                raise SandboxRefused(str(self.root), f"{path!r} is not a path that can be restored")
        for path, state in states.items():
            if state is None:
                delete_file(self.root, path)
        files = {path: state for path, state in states.items() if state is not None and state.mode != GITLINK}
        # They decide how the bytes of the others are written, so they come first.
        first = {path: state for path, state in files.items() if path.rpartition("/")[2] == _ATTRIBUTES}
        for portion in (first, {path: state for path, state in files.items() if path not in first}):
            if portion:
                self._check_out(portion)

    def put_aside(self) -> tuple[str, ...]:
        self._ensure_there()
        found = (*strange_submodules(self.root, self._facts.gitlinks), *self._refused_by_git())
        if found:
            move_aside(self._place, found)
        return found

    def tree(self, states: Mapping[str, FileState | None]) -> str:
        if not states:
            return self.base
        with self._index(self._place.base_index) as index:
            no_object = "0" * len(self.base)
            gone = [index_line(0, no_object, path) for path, state in states.items() if state is None]
            there = [
                index_line(state.mode, state.content, path)
                for path, state in states.items()
                if state is not None
            ]
            # First what goes, so that a file may come where a directory was.
            self._update_index(index, [*gone, *there])
            return self._engine.text("write-tree", index=index)

    def changes_of(self, tree: str) -> Mapping[str, Difference]:
        listed = self._engine.git(
            "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", self.base, tree
        )
        return dict(_differences(listed))

    def merge_content(
        self, ancestor: str | None, ours: str, theirs: str, *, favour: Literal["ours", "theirs"] | None = None
    ) -> str | None:
        return merged_content(self._engine, ancestor, ours, theirs, favour=favour)

    def files_below(self, tree: str) -> Mapping[str, FileState]:
        return files_of(self._engine, tree)

    def keeps(self, tree: str) -> bool:
        told = self._engine.git("cat-file", "--batch-check", feed=tree.encode("ascii") + b"\n")
        return not told.endswith(b" missing\n")

    def take_in(self, other: Sandbox, tree: str) -> None:
        source, durable = place_of(other), self._facts.durable
        if not self.keeps(other.base):  # it is no tree of this one if this one was made anew since
            head = self._facts.head
            known = f"{head}^{{tree}}" if head else None
            copy_objects(source, self._place, other.base, known=known, durable=durable)
        copy_objects(source, self._place, tree, known=other.base, durable=durable)

    def merge(self, base: str, ours: str, theirs: str, *, labels: tuple[str, str]) -> TreeMerge:
        place = MergePlace(self._engine, self.root, self._place.index, self._place.scratch("index"))
        return merge_of(place, base, ours, theirs, labels)

    def diff(self, tree: str, *, options: Sequence[str] = (), paths: Sequence[str] = ()) -> bytes:
        if tree == self.base:
            return b""
        return self._engine.git(
            "--literal-pathspecs",
            "-c",
            "core.quotePath=false",  # names as people write them
            "diff",
            "--no-ext-diff",
            "--no-textconv",
            *options,
            self.base,
            tree,
            "--",
            *paths,
            work_tree=self.root,
            index=self._place.index,
        )

    def _ensure_there(self) -> None:
        if not self.root.is_dir():
            raise SandboxMissing(self.plan_id, str(self._place.directory))

    def _refused_by_git(self) -> tuple[str, ...]:
        with self._index(self._place.index) as index:
            return refused_by_git(self._engine, self.root, index, self._facts.gitlinks)

    def _unrecordable(self, *, problem: str, paths: Sequence[str]) -> SandboxRefused:
        named = ", ".join(map(repr, paths)) or "a file"
        reason = (
            f"{named} cannot be recorded: {problem}; remove or rename it there, "
            "or roll the plan back, which puts it aside"
        )
        return SandboxRefused(str(self.root), reason)

    def _merely_converted(self, found: Mapping[str, Difference]) -> frozenset[str]:
        """Files that count as changed for git, and that nobody changed."""
        suspects = {
            path: step.before
            for path, step in found.items()
            if step.before and step.after and step.before.mode == step.after.mode != SYMLINK
        }
        return frozenset() if all(map(self._needs_no_git, suspects)) else self._untouched(suspects)

    def _untouched(self, suspects: Mapping[str, FileState]) -> frozenset[str]:
        return untouched(self._place, self._engine, suspects)

    def _needs_no_git(self, path: str) -> bool:
        """Whether a file's bytes are its content, and its permissions its mode."""
        if not self._facts.plain:
            return False
        directory = ""
        for part in path.split("/"):
            if os.path.lexists(self.root / directory / _ATTRIBUTES):
                return False
            directory = f"{directory}/{part}" if directory else part
        return not holds_attributes(self._place.index)

    def _state_at(self, directory: int, name: str) -> FileState | None:
        try:
            status = os.lstat(name, dir_fd=directory)
            if stat.S_ISLNK(status.st_mode):
                target = os.readlink(os.fsencode(name), dir_fd=directory)
                return FileState(SYMLINK, self._objects.keep(target))
            if not stat.S_ISREG(status.st_mode):
                return None
            descriptor = os.open(name, _READ, dir_fd=directory)
        except FileNotFoundError:
            return None
        try:
            return self._regular(descriptor)
        finally:
            os.close(descriptor)

    def _regular(self, descriptor: int) -> FileState | None:
        for _ in range(_ATTEMPTS):
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return None
            name = self._objects.keep_file(descriptor, status.st_size)
            if name is not None:
                return FileState(EXECUTABLE if status.st_mode & stat.S_IXUSR else REGULAR, name)
            os.lseek(descriptor, 0, os.SEEK_SET)
        raise SandboxRefused(str(self.root), "a file is being written without end, and cannot be recorded")

    def _state_by_git(self, path: str) -> FileState | None:
        with self._index(self._place.index) as index:
            feed = os.fsencode(path) + b"\0"
            options = ("--add", "--remove", "--replace", "-z", "--stdin")
            self._engine.git("update-index", *options, work_tree=self.root, index=index, feed=feed)
            listed = self._engine.git("--literal-pathspecs", "ls-files", "-s", "-z", "--", path, index=index)
        for line in os.fsdecode(listed).split("\0")[:-1]:
            facts, _, name = line.partition("\t")
            if name == path:
                mode, content, _ = facts.split(" ")
                return self._unconverted(path, FileState(int(mode, 8), content))
        return None

    def _unconverted(self, path: str, state: FileState) -> FileState:
        before = self.base_states((path,))[path]
        if before is None or before == state:
            return state
        return before if self._merely_converted({path: Difference(before, state)}) else state

    def _check_out(self, states: Mapping[str, FileState]) -> None:
        index = self._place.scratch("index")
        try:
            lines = [index_line(state.mode, state.content, path) for path, state in states.items()]
            self._update_index(index, lines)
            self._engine.git("checkout-index", "--all", "--force", work_tree=self.root, index=index)
        finally:
            index.unlink(missing_ok=True)

    def _update_index(self, index: Path, lines: Sequence[bytes]) -> None:
        # `--replace` has to come before what it is about.
        self._engine.git("update-index", "--replace", "-z", "--index-info", index=index, feed=b"".join(lines))

    @contextmanager
    def _index(self, source: Path) -> Iterator[Path]:
        """A copy of an index, for one use."""
        index = self._place.scratch("index")
        copy_index(source, index)
        try:
            yield index
        finally:
            index.unlink(missing_ok=True)


def _differences(listed: bytes) -> Iterator[tuple[str, Difference]]:
    fields = os.fsdecode(listed).split("\0")[:-1]
    for facts, path in zip(fields[::2], fields[1::2], strict=True):
        old_mode, new_mode, old, new, _ = facts[1:].split(" ")
        yield path, Difference(_state(old_mode, old), _state(new_mode, new))


def _state(mode: str, name: str) -> FileState | None:
    number = int(mode, 8)
    return FileState(number, name) if number else None


def _portions(paths: Iterable[str]) -> Iterator[list[str]]:
    portion: list[str] = []
    size = 0
    for path in paths:
        size += len(os.fsencode(path)) + 16
        if size > _ARGUMENT_BYTES and portion:
            yield portion
            portion, size = [], len(os.fsencode(path)) + 16
        portion.append(path)
    if portion:
        yield portion
