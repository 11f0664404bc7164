"""A sandbox of either strategy: files in `tree`, their content and history in a git directory of ours.

Everything is asked of `engine`, never of the `.git` that commands see, and git never looks at `tree`: what is
there is read and written by `SandboxTree` and `tree_restore`. An index is copied, worked on and put in place
whole, so that readers in several processes need no lock and a killed one leaves none.

Files in a sandbox that cannot be recorded: which they are, and how they get out of the way.

git refuses some names (`GIT~1`, `.GIT`), and what is put in a submodule's place is neither the submodule nor
a change of ours. Such files are never lost: they are moved to a directory beside the sandbox's files.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from cleveragents.changes.model.merge_conflict import TreeMerge
from cleveragents.core.change import SYMLINK, Difference, FileState
from cleveragents.core.errors import CleverAgentsError, SandboxMissing, SandboxRefused
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.git.git_directory import LooseObjects, copy_index
from cleveragents.git.index_file import holds_attributes
from cleveragents.git.merge_tree import merged_content
from cleveragents.git.plumbing import PrivateRepository, index_line
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


# Below what every kernel takes as one argument list.
_ARGUMENT_BYTES = 100_000
_BUSY_SECONDS = 30.0


class Sandbox:
    """One sandbox, opened. Any process may open it; one writing call at a time (`writing`).

    Content is kept in a store of the sandbox's own; what the base holds is borrowed, not copied.
    Stateless but for what never changes, so any thread may share it.
    """

    def __init__(self, place: SandboxLayout, facts: SandboxFacts, faults: FaultPoints | None = None) -> None:
        self.place = place
        self.facts = facts  # what was written down when it was made
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
        """Where its files are."""
        return self.place.tree

    @property
    def base(self) -> str:
        """The name of the tree it began with."""
        return self.facts.base

    @property
    def repository(self) -> PrivateRepository:
        """Our git directory, for those who merge into the user's files."""
        return PrivateRepository(self.place.engine)

    @property
    def readable(self) -> tuple[Path, ...]:
        """Directories outside `root` that a command in it must be able to read."""
        return tuple(Path(path) for path in self.facts.readable)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know of it: submodules left empty, and the like."""
        return self.facts.notes

    @contextmanager
    def writing(self, *, timeout_seconds: float = 0.0) -> Iterator[None]:
        """Held by the one call that may change files, across processes. `SandboxBusy`.

        What a killed process had set aside (`without_ignored`) is back in its place.
        """
        with locked(self.place.lock, self.plan_id, timeout_seconds=timeout_seconds):
            self._aside.put_back()  # guard: who set it aside is dead, or the lock were not ours
            try:
                yield
            finally:
                with self._refusing("its git directory cannot be reset"):
                    self._visible.reset()  # guard: a person may type `git status` there next

    @contextmanager
    def occupied(self) -> Iterator[None]:
        """Held while programs may use the files, also between calls. None of them runs when it is left: what
        they planted in git directories is removed then, and only then does a person hear that all is done.
        `SandboxRefused` if that fails and nothing else did.
        """
        self._ensure_there()
        with marked(self.place.occupied) as unmark:
            try:
                yield
            except BaseException:
                with suppress(CleverAgentsError, OSError):  # what went wrong counts more; the mark stays
                    self._clear(_BUSY_SECONDS)
                    unmark()
                raise
            self._clear(_BUSY_SECONDS)
            unmark()

    def vacate(self) -> None:
        """Removes what was planted where a process was killed that had it `occupied`; does nothing where one
        lives."""
        if is_abandoned(self.place.occupied):
            with suppress(CleverAgentsError, OSError):  # the mark stays in any case
                self._clear(0.0)

    def _clear(self, timeout_seconds: float) -> None:
        with suppress(SandboxMissing), self.writing(timeout_seconds=timeout_seconds):
            self._look(everywhere=True)

    def _look(self, *, everywhere: bool = False) -> TreeScan:
        """What is there; repositories in it are disarmed, whatever else is wrong with it. Those that are not
        looked for, as in ignored directories, only where a commit may name them, or `everywhere`."""
        self._ensure_there()
        with self._refusing("it cannot be looked through"):
            look = self._tree.look(self.place.index)
            repositories = look.found.repositories
            try:
                self._ignored.note_repositories(self._visible.disarm(repositories))
            finally:
                if everywhere or self._visible.has_other_commits(repositories):
                    self._visible.disarm_below(look.found.unseen)
            return look

    def scan(self) -> Mapping[str, Difference]:
        """Every path whose file differs from the base, with both states; their content is kept.

        Ignored files are not looked at, unless the base holds them. O(files) stats, O(change) reads.
        `SandboxRefused` when a file cannot be recorded; it is named.
        """
        look = self._look()
        strange = strange_submodules(self.root, self.facts.gitlinks)
        if strange:
            problem = f"{strange[0]} is a submodule, and files were put in its place"
            raise self._unrecordable(Unrecordable(problem, strange))
        with self._refusing("it cannot be recorded"), self._index(self.place.index) as index:
            left = self._tree.stage(index, look)
            if left is not None:
                raise self._unrecordable(left)
            options = ("--cached", "--raw", "-z", "--no-abbrev", "--no-renames")
            listed = self._engine.git("diff-index", *options, self.base, index=index)
            index.replace(self.place.index)
        differences = dict(_differences(listed))
        for path in self._merely_converted(differences):
            del differences[path]
        return differences

    def state_of(self, path: str) -> FileState | None:
        """What the file is now; its content is kept. Nothing else is looked at."""
        self._ensure_there()
        if not is_repository_path(path):
            return None
        if path in self.facts.gitlinks:
            with self._refusing(f"{path!r} cannot be looked at"):
                return self.base_states((path,))[path] if path in self._tree.kept_submodules() else None
        if not self._needs_no_git(path):
            return self._state_by_git(path)
        with directory_of(self.root, path) as found, self._refusing(f"{path!r} cannot be recorded"):
            known = None if found is None else self._tree.state_at(*found)
            return None if known is None else known[0]

    def ignored(self, paths: Iterable[str]) -> frozenset[str]:
        """Those of the paths that `scan` does not look at, because a rule says so and the base lacks them."""
        spelled, rules = rules_for(self.root, filter(is_repository_path, paths))
        found = ignored_by(self._engine, self.place, spelled, rules, unless_in=self.place.index)
        return frozenset(path.rstrip("/") for path in found)

    def ignored_entries(self, recorded: Iterable[str] = ()) -> tuple[str, ...]:
        """What is there and will never be applied, because it is ignored: files, and directories (they end in
        a slash) in which nothing else is.

        Not among them is what came with the sandbox, what counts as set up, and what was `recorded` before a
        rule came that hides it. What is set aside just now is.
        """
        return self.unapplied(recorded).ignored

    def unapplied(self, recorded: Iterable[str] = ()) -> Unapplied:
        """`ignored_entries`, and the repositories that were made in it. O(files) stats."""
        self._ensure_there()
        found = self._ignored.unapplied(recorded)
        # What is at the root of a repository's sandbox came with it.
        own = {""} if self.facts.common_dir is not None else set()
        made = [path or "." for path in found.repositories if path not in own]
        ignored = tuple(sorted({*found.ignored, *self._aside.entries()}))
        return Unapplied(ignored, tuple(sorted(made)), found.submodules)

    def count_as_set_up(self) -> None:
        """What is ignored now counts as having come with the sandbox; only the first call does anything."""
        self._ensure_there()
        self._ignored.count_as_set_up()

    @contextmanager
    def without_ignored(self, recorded: Iterable[str] = ()) -> Iterator[tuple[str, ...]]:
        """Sets `ignored_entries` aside for as long as the block lasts, and yields them.

        Afterwards they are as they were, and whatever else is ignored and came meanwhile is gone. The caller
        holds `writing`, and leaves the other files as they were. `SandboxRefused`.
        """
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
        """What these paths were in the base."""
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
        """Content by its name, from this sandbox's store or from the base."""
        kept = self._objects.read(name)
        return self._engine.git("cat-file", "blob", name) if kept is None else kept

    def restore(self, states: Mapping[str, FileState | None]) -> None:
        """Makes each of these paths be in that state; touches no other file."""
        self._ensure_there()
        for path in states:
            if not is_repository_path(path):
                raise SandboxRefused(str(self.root), f"{path!r} is not a path that can be restored")
        with self._index(self.place.index) as index, self._refusing("files cannot be restored"):
            restore_files(self.place, self._engine, states, index)
            for path in self.facts.gitlinks:
                if path in states and states[path] is None:
                    remove_empty(self.root, path)

    def put_aside(self) -> tuple[str, ...]:
        """Moves exactly what `scan` cannot record out of `root`, to a directory beside it, and names it."""
        look = self._look()
        with self._index(self.place.index) as index:
            left = self._tree.stage(index, look)
        refused = () if left is None else left.paths
        found = (*strange_submodules(self.root, self.facts.gitlinks), *refused)
        if found:
            move_aside(self.place, found)
        return found

    def tree(self, states: Mapping[str, FileState | None]) -> str:
        """The name of the tree that is the base with these paths in these states. Changes no file."""
        if not states:
            return self.base
        with self._index(self.place.base_index) as index:
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
        """Every path that differs between the base and `tree`."""
        listed = self._engine.git(
            "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", self.base, tree
        )
        return dict(_differences(listed))

    def merge_content(
        self, ancestor: str | None, ours: str, theirs: str, *, favour: Literal["ours", "theirs"] | None = None
    ) -> str | None:
        """The name of the three contents' merge, which is kept; None if they conflict. No ancestor: an empty
        one. With `favour`, that side has its way in each place where they do."""
        return merged_content(self._engine, ancestor, ours, theirs, favour=favour)

    def files_below(self, tree: str) -> Mapping[str, FileState]:
        """Every file of a tree that is kept here."""
        return files_of(self._engine, tree)

    def keeps(self, tree: str) -> bool:
        """Whether the content of that tree is kept here."""
        told = self._engine.git("cat-file", "--batch-check", feed=tree.encode("ascii") + b"\n")
        return not told.endswith(b" missing\n")

    def take_in(self, other: Sandbox, tree: str) -> None:
        """Keeps the content of a tree of another sandbox of the same resource, and of that one's base."""
        source, durable = other.place, self.facts.durable
        if not self.keeps(other.base):  # it is no tree of this one if this one was made anew since
            head = self.facts.head
            known = f"{head}^{{tree}}" if head else None
            copy_objects(source, self.place, other.base, known=known, durable=durable)
        copy_objects(source, self.place, tree, known=other.base, durable=durable)

    def merge(self, base: str, ours: str, theirs: str, *, labels: tuple[str, str]) -> TreeMerge:
        """What git makes of bringing base → theirs into `ours`, all of them kept here, with git's defaults
        and the attributes of the files as they are now. `labels`, in ASCII, name ours and theirs in text that
        git marks. Changes no file."""
        with self._attributes() as rules:
            place = MergeLocation(self._engine, rules, self.place.index, self.place.scratch("index"))
            return merge_of(place, base, ours, theirs, labels)

    def diff(self, tree: str, *, options: Sequence[str] = (), paths: Sequence[str] = ()) -> bytes:
        """git's own difference from the base to `tree`; `options` such as `--stat`, `--raw -z`, `--color`."""
        if tree == self.base:
            return b""
        with self._attributes() as rules:
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
                work_tree=rules,
                index=self.place.index,
            )

    @contextmanager
    def _attributes(self) -> Iterator[Path]:
        """A work tree for git with the .gitattributes files that were last recorded, and nothing else."""
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
        """`SandboxRefused` for what a command has locked, or keeps replacing."""
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
            f"{named} cannot be recorded: {left.problem}; remove or rename it there, "
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
        if all(map(self._needs_no_git, suspects)):
            return frozenset()
        with self._index(self.place.index) as index:
            return untouched(self.place, self._engine, suspects, index)

    def _needs_no_git(self, path: str) -> bool:
        """Whether a file's bytes are its content, and its permissions its mode."""
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
        # `--replace` has to come before what it is about.
        self._engine.git("update-index", "--replace", "-z", "--index-info", index=index, feed=b"".join(lines))

    @contextmanager
    def _index(self, source: Path) -> Iterator[Path]:
        """A copy of an index, for one use."""
        index = self.place.scratch("index")
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


def strange_submodules(tree: Path, submodules: Sequence[str]) -> tuple[str, ...]:
    """Those in whose place something else is: their directory is to be empty, or to hold the submodule."""
    strange = []
    for path in submodules:
        with directory_of(tree, path) as found:
            if found is not None and _is_strange(*found):
                strange.append(path)
    return tuple(strange)


def move_aside(place: SandboxLayout, paths: Sequence[str]) -> Path:
    """Moves what is at these paths out of the tree, and says where to."""
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
