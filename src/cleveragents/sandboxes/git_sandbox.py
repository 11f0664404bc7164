"""A sandbox of either strategy: files in `tree`, their content and history in our own git directory.

All git commands use `engine`, never the `.git` that commands see, and git never reads `tree`: `SandboxTree`
and `tree.restore` read and write its files. An index is copied, modified and put in place as a whole, so
readers in several processes need no lock, and a killed process leaves no lock file.

Some files cannot be recorded: git refuses certain names (`GIT~1`, `.GIT`), and files in the place of a
submodule belong neither to the submodule nor to the plan. They are never lost, but moved to a directory
beside the sandbox's tree.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal

from cleveragents.changes.model.merge_conflict import TreeMerge
from cleveragents.core.change import SYMLINK, Difference, FileState
from cleveragents.core.errors import CleverAgentsError, SandboxMissing, SandboxRefused
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.git.git_directory import LooseObjects, copy_index
from cleveragents.git.index_file import holds_attributes
from cleveragents.git.merge_tree import merged_content
from cleveragents.git.plumbing import PrivateRepository, changed_between, index_line, raw_changes
from cleveragents.sandboxes.facts import SandboxFacts, SandboxLayout
from cleveragents.sandboxes.lock import is_abandoned, locked, marked
from cleveragents.sandboxes.ports import Unapplied
from cleveragents.sandboxes.tree.ignored_files import IgnoredFiles
from cleveragents.sandboxes.tree.index import (
    ATTRIBUTES,
    SandboxTree,
    TreeScan,
    Unrecordable,
    ignored_by,
    rules_for,
)
from cleveragents.sandboxes.tree.merge import MergeLocation, copy_objects, files_of, merge_of
from cleveragents.sandboxes.tree.restore import FileQuarantine, restore_files, untouched
from cleveragents.sandboxes.tree.visible_git import VisibleGit
from cleveragents.storage.files.paths import (
    directory_of,
    is_repository_path,
    open_directory,
    remove_all,
    remove_empty,
)

__all__ = ["Sandbox", "move_aside", "strange_submodules"]


# Below the limit of every kernel for one argument list.
_ARGUMENT_BYTES = 100_000
_BUSY_SECONDS = 30.0


class Sandbox:
    """An open sandbox. Any process may open it; one call at a time may write (`writing`).

    New content goes to the sandbox's own store; the content of the base is borrowed, not copied. Any thread
    may share it: its state is immutable.
    """

    def __init__(self, place: SandboxLayout, facts: SandboxFacts, faults: FaultPoints | None = None) -> None:
        self.place = place
        self.facts = facts  # recorded when it was created
        self._engine = PrivateRepository(place.engine, facts.traits)
        self._objects = LooseObjects(place.engine / "objects", facts.object_format, facts.durable)
        self._tree = SandboxTree(place, self._engine, self._objects, facts.plain, facts.exact, facts.gitlinks)
        self._ignored = IgnoredFiles(self._tree, facts.durable)
        self._visible = VisibleGit(place, facts, self._engine)
        self._aside = FileQuarantine(place, facts.durable, faults or NoFaults())

    @property
    def plan_id(self) -> str:
        return self.facts.plan_id

    @property
    def root(self) -> Path:
        """The directory with the files of the sandbox."""
        return self.place.tree

    @property
    def base(self) -> str:
        """The tree that the sandbox started with."""
        return self.facts.base

    @property
    def repository(self) -> PrivateRepository:
        """Our git directory, for merging into the user's files."""
        return PrivateRepository(self.place.engine)

    @property
    def readable(self) -> tuple[Path, ...]:
        """Directories outside `root` that a command in the sandbox must be able to read."""
        return tuple(Path(path) for path in self.facts.readable)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user, such as submodules left empty."""
        return self.facts.notes

    @contextmanager
    def writing(self, *, timeout_seconds: float = 0.0) -> Iterator[None]:
        """Hold the write lock of the sandbox, across processes. Raises `SandboxBusy`.

        First restores the files that a killed process had hidden (`without_ignored`).
        """
        with locked(self.place.lock, self.plan_id, timeout_seconds=timeout_seconds):
            self._aside.put_back()  # guard: the process that hid them is dead, since the lock was free
            try:
                yield
            finally:
                with self._refusing("cannot reset the git directory of the sandbox"):
                    self._visible.reset()  # guard: a person may type `git status` there next

    @contextmanager
    def occupied(self) -> Iterator[None]:
        """Mark the sandbox as in use during the block. Programs may use its files in the block, also between
        calls; the caller ends all of them before the block ends.

        On exit, code that was planted in git directories is removed, before the user learns that the work is
        done. Raises `SandboxRefused` if the removal fails, unless the block itself raised.
        """
        self._ensure_there()
        with marked(self.place.occupied) as unmark:
            try:
                yield
            except BaseException:
                with suppress(CleverAgentsError, OSError):  # the original error matters more; the mark stays
                    self._clear(_BUSY_SECONDS)
                    unmark()
                raise
            self._clear(_BUSY_SECONDS)
            unmark()

    def vacate(self) -> None:
        """Remove planted code if a process was killed inside `occupied`. Does nothing while such a process
        lives.
        """
        if is_abandoned(self.place.occupied):
            with suppress(CleverAgentsError, OSError):  # the mark stays in any case
                self._clear(0.0)

    def _clear(self, timeout_seconds: float) -> None:
        with suppress(SandboxMissing), self.writing(timeout_seconds=timeout_seconds):
            self._look(everywhere=True)

    def _look(self, *, everywhere: bool = False) -> TreeScan:
        """Survey the tree, and disarm the repositories in it, even if the survey finds a problem.

        To disarm a repository is to remove the code that git would run from it. Repositories in skipped
        places, such as ignored directories, are disarmed with `everywhere`, or if a commit may name them.
        """
        self._ensure_there()
        with self._refusing("cannot read the files of the sandbox"):
            look = self._tree.look(self.place.index)
            repositories = look.found.repositories
            try:
                self._ignored.note_repositories(self._visible.disarm(repositories))
            finally:
                if everywhere or self._visible.has_other_commits(repositories):
                    self._visible.disarm_below(look.found.unseen)
            return look

    def scan(self) -> Mapping[str, Difference]:
        """Return every path whose file differs from the base, with both states; store their content.

        Ignored files are skipped unless the base contains them. Calls stat for every file, and reads changed
        files. Raises `SandboxRefused`, with the path, if a file cannot be recorded.
        """
        look = self._look()
        strange = strange_submodules(self.root, self.facts.gitlinks)
        if strange:
            problem = f"{strange[0]} is a submodule, but other files are in its place"
            raise self._unrecordable(Unrecordable(problem, strange))
        with self._refusing("cannot record the files of the sandbox"), self._index(self.place.index) as index:
            left = self._tree.stage(index, look)
            if left is not None:
                raise self._unrecordable(left)
            options = ("--cached", "--raw", "-z", "--no-abbrev", "--no-renames")
            listed = self._engine.git("diff-index", *options, self.base, index=index)
            index.replace(self.place.index)
        differences = raw_changes(listed)
        for path in self._merely_converted(differences):
            del differences[path]
        return differences

    def state_of(self, path: str) -> FileState | None:
        """Return the current state of a file and store its content. Reads no other file."""
        self._ensure_there()
        if not is_repository_path(path):
            return None
        if path in self.facts.gitlinks:
            with self._refusing(f"cannot read {path!r}"):
                return self.base_states((path,))[path] if path in self._tree.kept_submodules() else None
        if not self._needs_no_git(path):
            return self._state_by_git(path)
        with directory_of(self.root, path) as found, self._refusing(f"cannot record {path!r}"):
            known = None if found is None else self._tree.state_at(*found)
            return None if known is None else known[0]

    def ignored(self, paths: Iterable[str]) -> frozenset[str]:
        """Return the paths that `scan` skips, because a rule ignores them and the base lacks them."""
        spelled, rules = rules_for(self.root, filter(is_repository_path, paths))
        found = ignored_by(self._engine, self.place, spelled, rules, unless_in=self.place.index)
        return frozenset(path.rstrip("/") for path in found)

    def unapplied(self, recorded: Iterable[str] = ()) -> Unapplied:
        """Return the ignored files that will never be applied, and the repositories created in the sandbox.
        Calls stat for every file.

        A directory with only ignored files ends in a slash. Excludes files that were copied into the sandbox,
        files of the setup, and files `recorded` before a rule ignored them. Includes hidden files
        (`without_ignored`).
        """
        self._ensure_there()
        found = self._ignored.unapplied(recorded)
        # The `.git` at the root of a repository's sandbox is part of the sandbox.
        own = {""} if self.facts.common_dir is not None else set()
        made = [path or "." for path in found.repositories if path not in own]
        ignored = tuple(sorted({*found.ignored, *self._aside.entries()}))
        return Unapplied(ignored, tuple(sorted(made)), found.submodules)

    def count_as_set_up(self) -> None:
        """Treat all files that are ignored now as part of the setup. Only the first call has an effect."""
        self._ensure_there()
        self._ignored.count_as_set_up()

    @contextmanager
    def without_ignored(self, recorded: Iterable[str] = ()) -> Iterator[tuple[str, ...]]:
        """Hide the ignored files of `unapplied` for the duration of the block, and yield them.

        Afterwards they are restored, and other ignored files created meanwhile are removed. The caller holds
        `writing` and does not change other files. Raises `SandboxRefused`.
        """
        self._ensure_there()
        kept = tuple(recorded)
        made = self._ignored.made(kept)
        try:
            self._aside.move(made)
            try:
                yield made
            finally:
                # guard: only now, while the previous files are away
                for entry in self._ignored.made(kept):
                    self._aside.remove(entry)
        finally:
            self._aside.put_back()

    def base_states(self, paths: Iterable[str], base: str | None = None) -> Mapping[str, FileState | None]:
        """Return the states of these paths in the base, or in another stored tree."""
        states: dict[str, FileState | None] = dict.fromkeys(paths)
        for names in _portions(path for path in states if is_repository_path(path)):
            listed = self._engine.git("--literal-pathspecs", "ls-tree", "-z", base or self.base, "--", *names)
            for line in os.fsdecode(listed).split("\0")[:-1]:
                facts, _, path = line.partition("\t")
                mode, kind, name = facts.split(" ")
                if kind != "tree" and path in states:
                    states[path] = FileState(int(mode, 8), name)
        return states

    def content(self, name: str) -> bytes:
        """Return content by its object name, from the sandbox's store or from the base."""
        kept = self._objects.read(name)
        return self._engine.git("cat-file", "blob", name) if kept is None else kept

    def keep_content(self, content: bytes) -> str:
        """Store content and return its object name."""
        return self._objects.keep(content)

    def restore(self, states: Mapping[str, FileState | None]) -> None:
        """Set each path to its state; touch no other file."""
        self._ensure_there()
        for path in states:
            if not is_repository_path(path):
                raise SandboxRefused(str(self.root), f"cannot restore {path!r}: invalid path")
        with self._index(self.place.index) as index, self._refusing("cannot restore files"):
            restore_files(self.place, self._engine, states, index)
            for path in self.facts.gitlinks:
                if path in states and states[path] is None:
                    remove_empty(self.root, path)

    def put_aside(self) -> tuple[str, ...]:
        """Move the files that `scan` cannot record to a directory beside `root`; return their paths."""
        look = self._look()
        with self._index(self.place.index) as index:
            left = self._tree.stage(index, look)
        refused = () if left is None else left.paths
        found = (*strange_submodules(self.root, self.facts.gitlinks), *refused)
        if found:
            move_aside(self.place, found)
        return found

    def tree(self, states: Mapping[str, FileState | None]) -> str:
        """Write a git tree: the base with `states` applied. Return the id of the tree. No file changes."""
        if not states:
            return self.base
        listed = _ListedFiles(str(self.place.engine), self.base, tuple(sorted(states.items())), self)
        name = _written(listed)  # an apply asks twice, before and after it locks the sandbox
        return name if self._objects.has(name) else _written.__wrapped__(listed)

    def _write_tree(self, states: Mapping[str, FileState | None]) -> str:
        with self._index(self.place.base_index) as index:
            no_object = "0" * len(self.base)
            gone = [index_line(0, no_object, path) for path, state in states.items() if state is None]
            there = [
                index_line(state.mode, state.content, path)
                for path, state in states.items()
                if state is not None
            ]
            # Removals first, so that a file can replace a directory.
            self._update_index(index, [*gone, *there])
            return self._engine.text("write-tree", index=index)

    def changes_of(self, tree: str, base: str | None = None) -> Mapping[str, Difference]:
        """Return every path that differs between the base, or another stored tree, and `tree`."""
        return changed_between(self._engine, base or self.base, tree)

    def merge_content(
        self, ancestor: str | None, ours: str, theirs: str, *, favour: Literal["ours", "theirs"] | None = None
    ) -> str | None:
        """Merge three contents and return the stored result; None if they conflict.

        Without an ancestor, an empty content is used. `favour` names the side that wins conflicts.
        """
        return merged_content(self._engine, ancestor, ours, theirs, favour=favour)

    def files_below(self, tree: str) -> Mapping[str, FileState]:
        """Return every file of a stored tree."""
        return files_of(self._engine, tree)

    def keeps(self, tree: str) -> bool:
        """Return whether the tree is in the sandbox's store."""
        told = self._engine.git("cat-file", "--batch-check", feed=tree.encode("ascii") + b"\n")
        return not told.endswith(b" missing\n")

    def take_in(self, other: Sandbox, tree: str) -> None:
        """Copy a tree of another sandbox of the same resource, and that sandbox's base, into the store."""
        source, durable = other.place, self.facts.durable
        if not self.keeps(other.base):  # missing if this sandbox was recreated since
            head = self.facts.head
            known = f"{head}^{{tree}}" if head else None
            copy_objects(source, self.place, other.base, known=known, durable=durable)
        copy_objects(source, self.place, tree, known=other.base, durable=durable)

    def merge(self, base: str, ours: str, theirs: str, *, labels: tuple[str, str]) -> TreeMerge:
        """Merge the changes from `base` to `theirs` into `ours`, with git's defaults and current attributes.

        All three trees must be in the sandbox's store. `labels`, in ASCII, name ours and theirs in conflict
        markers. Changes no file.
        """
        with self._attributes() as rules:
            place = MergeLocation(self._engine, rules, self.place.index, self.place.scratch("index"))
            return merge_of(place, base, ours, theirs, labels)

    def diff(
        self,
        tree: str,
        *,
        base: str | None = None,
        options: Sequence[str] = (),
        paths: Sequence[str] = (),
    ) -> bytes:
        """Return git's diff from the base, or another stored tree, to `tree`; `options` such as `--stat`,
        `--raw -z`, `--color`.
        """
        if tree == (base or self.base):
            return b""
        with self._attributes() as rules:
            return self._engine.git(
                "--literal-pathspecs",
                "-c",
                "core.quotePath=false",  # show names unescaped
                "diff",
                "--no-ext-diff",
                "--no-textconv",
                *options,
                base or self.base,
                tree,
                "--",
                *paths,
                work_tree=rules,
                index=self.place.index,
            )

    @contextmanager
    def _attributes(self) -> Iterator[Path]:
        """Yield a work tree for git that holds only the .gitattributes files, as they were last recorded."""
        if not holds_attributes(self.place.index):
            yield self.place.nothing
            return
        rules = self.place.scratch("attributes")
        rules.mkdir()
        try:
            for path, entry in self._tree.entries(self.place.index).items():
                if path.rpartition("/")[2] == ATTRIBUTES and entry.mode != SYMLINK:
                    (rules / path).parent.mkdir(parents=True, exist_ok=True)
                    (rules / path).write_bytes(self.content(entry.name))
            yield rules
        finally:
            remove_all(rules)

    @contextmanager
    def _refusing(self, what: str) -> Iterator[None]:
        """Raise `SandboxRefused` if a command has locked a file or keeps replacing it."""
        try:
            yield
        except OSError as error:
            raise SandboxRefused(str(self.root), f"{what} ({error.strerror or error})") from error

    def _ensure_there(self) -> None:
        if not self.root.is_dir():
            raise SandboxMissing(self.plan_id, str(self.place.directory))

    def _unrecordable(self, left: Unrecordable) -> SandboxRefused:
        named = ", ".join(map(repr, left.paths))
        reason = (
            f"cannot record {named}: {left.problem}; remove or rename it there, "
            "or roll the plan back, which moves it out of the sandbox"
        )
        return SandboxRefused(str(self.root), reason)

    def _merely_converted(self, found: Mapping[str, Difference]) -> frozenset[str]:
        """Return the files that git reports as changed only because of a conversion."""
        suspects = {
            path: step.before
            for path, step in found.items()
            if step.before and step.after and step.before.mode == step.after.mode != SYMLINK
        }
        if all(map(self._needs_no_git, suspects)):
            return frozenset()
        with self._index(self.place.index) as index:
            return untouched(self.place, self._engine, suspects, index)

    def _needs_no_git(self, path: str) -> bool:
        """Return whether git stores the file's bytes and mode as they are."""
        if not self.facts.plain or self.facts.exact:
            return self.facts.plain
        return not self._tree.attributes_on_the_way(path) and not holds_attributes(self.place.index)

    def _state_by_git(self, path: str) -> FileState | None:
        with self._index(self.place.index) as index:
            state = self._tree.state_by_git(path, index)
        return None if state is None else self._unconverted(path, state)

    def _unconverted(self, path: str, state: FileState) -> FileState:
        before = self.base_states((path,))[path]
        if before is None or before == state:
            return state
        return before if self._merely_converted({path: Difference(before, state)}) else state

    def _update_index(self, index: Path, lines: Sequence[bytes]) -> None:
        # `--replace` must precede the option it applies to.
        self._engine.git("update-index", "--replace", "-z", "--index-info", index=index, feed=b"".join(lines))

    @contextmanager
    def _index(self, source: Path) -> Iterator[Path]:
        """Yield a temporary copy of an index."""
        index = self.place.scratch("index")
        copy_index(source, index)
        try:
            yield index
        finally:
            index.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class _ListedFiles:
    """The files that a tree adds to its base, as a cache key."""

    store: str
    base: str
    states: tuple[tuple[str, FileState | None], ...]
    sandbox: Sandbox = field(compare=False)


@lru_cache(maxsize=16)
def _written(files: _ListedFiles) -> str:
    return files.sandbox._write_tree(dict(files.states))


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


def strange_submodules(tree: Path, submodules: Sequence[str]) -> tuple[str, ...]:
    """Return the submodules whose path holds neither an empty directory nor the submodule itself."""
    strange = []
    for path in submodules:
        with directory_of(tree, path) as found:
            if found is not None and _is_strange(*found):
                strange.append(path)
    return tuple(strange)


def move_aside(place: SandboxLayout, paths: Sequence[str]) -> Path:
    """Move these paths out of the tree; return their new directory."""
    aside = place.directory / f"aside-{secrets.token_hex(4)}"
    aside.mkdir()
    for path in paths:
        with directory_of(place.tree, path) as there, directory_of(aside, path, make=True) as here:
            if there is not None and here is not None:
                os.rename(there[1], here[1], src_dir_fd=there[0], dst_dir_fd=here[0])
    return aside


def _is_strange(directory: int, name: str) -> bool:
    try:
        if not stat.S_ISDIR(os.lstat(name, dir_fd=directory).st_mode):
            return True
        descriptor = open_directory(directory, name)
    except FileNotFoundError:
        return False
    try:
        with os.scandir(descriptor) as entries:
            there = [entry.name for entry in entries]
    finally:
        os.close(descriptor)
    return bool(there) and ".git" not in there
