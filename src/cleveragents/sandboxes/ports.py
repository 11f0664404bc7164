"""Sandboxes: private copies of a repository or directory in which a plan works.

A cache of the environments that setup commands make: virtual environments, node_modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from cleveragents.changes.model.merge_conflict import TreeMerge
from cleveragents.core.change import Difference, FileState
from cleveragents.core.identifiers import Fence
from cleveragents.core.json_value import JsonValue

__all__ = [
    "Sandbox",
    "SandboxRequest",
    "SandboxStrategy",
    "Sandboxes",
    "SetupInputs",
    "SetupStore",
    "StartTree",
    "Unapplied",
]


@dataclass(frozen=True, slots=True)
class StartTree:
    """Where a sub-plan begins: with a tree that the sandbox of that plan, its parent's, holds."""

    plan_id: str
    tree: str


@dataclass(frozen=True, slots=True)
class SandboxRequest:
    """What a sandbox is to be made of.

    `resource` is the root of a repository or a plain directory. `from_head`: only what is committed, instead
    of the working tree as the user sees it. `include` are patterns of ignored files to bring along, in the
    syntax of .gitignore. What a `.worktreeinclude` file in the resource names is not among them unless the
    caller, who knows whether the resource is trusted, puts it there.

    `start`: its base is that tree, instead of what the resource holds. The tree's content is copied, so that
    the sandbox it came from may go at any time; ignored files come as into any other sandbox of the resource.

    `remote` is what the plan calls its resource, if that is a git remote, of which `resource` is a checkout.
    `fence`: it is registered only while that job runs under that token.
    """

    plan_id: str
    resource: Path
    from_head: bool = False
    include: tuple[str, ...] = ()
    start: StartTree | None = None
    remote: str | None = None
    fence: Fence | None = None


@dataclass(frozen=True, slots=True)
class Unapplied:
    """What is in a sandbox and is never applied. `ignored` are `ignored_entries`; `repositories` are the
    directories in which a plan made a `.git`: of each, its files are applied, and its `.git` is not;
    `submodules` are those whose directory a plan removed, and which .gitmodules still names."""

    ignored: tuple[str, ...] = ()
    repositories: tuple[str, ...] = ()
    submodules: tuple[str, ...] = ()


class Sandbox(Protocol):
    """One sandbox, opened. Any process may open it; one writing call at a time (`writing`).

    Content is kept in a store of the sandbox's own; what the base holds is borrowed, not copied.
    """

    @property
    def plan_id(self) -> str: ...

    @property
    def root(self) -> Path:
        """Where its files are."""
        ...

    @property
    def base(self) -> str:
        """The name of the tree it began with."""
        ...

    @property
    def readable(self) -> tuple[Path, ...]:
        """Directories outside `root` that a command in it must be able to read."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know of it: submodules left empty, and the like."""
        ...

    def writing(self, *, timeout_seconds: float = 0.0) -> AbstractContextManager[None]:
        """Held by the one call that may change files, across processes. `SandboxBusy`.

        What a killed process had set aside (`without_ignored`) is back in its place.
        """
        ...

    def occupied(self) -> AbstractContextManager[None]:
        """Held while programs may use the files, also between calls. None of them runs when it is left: what
        they planted in git directories is removed then, and only then does a person hear that all is done.
        `SandboxRefused` if that fails and nothing else did.
        """
        ...

    def vacate(self) -> None:
        """Removes what was planted where a process was killed that had it `occupied`; does nothing where one
        lives."""
        ...

    def scan(self) -> Mapping[str, Difference]:
        """Every path whose file differs from the base, with both states; their content is kept.

        Ignored files are not looked at, unless the base holds them. O(files) stats, O(change) reads.
        `SandboxRefused` when a file cannot be recorded; it is named.
        """
        ...

    def state_of(self, path: str) -> FileState | None:
        """What the file is now; its content is kept. Nothing else is looked at."""
        ...

    def ignored(self, paths: Iterable[str]) -> frozenset[str]:
        """Those of the paths that `scan` does not look at, because a rule says so and the base lacks them."""
        ...

    def ignored_entries(self, recorded: Iterable[str] = ()) -> tuple[str, ...]:
        """What is there and will never be applied, because it is ignored: files, and directories (they end in
        a slash) in which nothing else is.

        Not among them is what came with the sandbox, what counts as set up, and what was `recorded` before a
        rule came that hides it. What is set aside just now is.
        """
        ...

    def unapplied(self, recorded: Iterable[str] = ()) -> Unapplied:
        """`ignored_entries`, and the repositories that were made in it. O(files) stats."""
        ...

    def count_as_set_up(self) -> None:
        """What is ignored now counts as having come with the sandbox; only the first call does anything."""
        ...

    def without_ignored(self, recorded: Iterable[str] = ()) -> AbstractContextManager[tuple[str, ...]]:
        """Sets `ignored_entries` aside for as long as the block lasts, and yields them.

        Afterwards they are as they were, and whatever else is ignored and came meanwhile is gone. The caller
        holds `writing`, and leaves the other files as they were. `SandboxRefused`.
        """
        ...

    def base_states(self, paths: Iterable[str]) -> Mapping[str, FileState | None]:
        """What these paths were in the base."""
        ...

    def content(self, name: str) -> bytes:
        """Content by its name, from this sandbox's store or from the base."""
        ...

    def restore(self, states: Mapping[str, FileState | None]) -> None:
        """Makes each of these paths be in that state; touches no other file."""
        ...

    def put_aside(self) -> tuple[str, ...]:
        """Moves exactly what `scan` cannot record out of `root`, to a directory beside it, and names it."""
        ...

    def tree(self, states: Mapping[str, FileState | None]) -> str:
        """The name of the tree that is the base with these paths in these states. Changes no file."""
        ...

    def changes_of(self, tree: str) -> Mapping[str, Difference]:
        """Every path that differs between the base and `tree`."""
        ...

    def merge_content(
        self, ancestor: str | None, ours: str, theirs: str, *, favour: Literal["ours", "theirs"] | None = None
    ) -> str | None:
        """The name of the three contents' merge, which is kept; None if they conflict. No ancestor: an empty
        one. With `favour`, that side has its way in each place where they do."""
        ...

    def files_below(self, tree: str) -> Mapping[str, FileState]:
        """Every file of a tree that is kept here."""
        ...

    def keeps(self, tree: str) -> bool:
        """Whether the content of that tree is kept here."""
        ...

    def take_in(self, other: Sandbox, tree: str) -> None:
        """Keeps the content of a tree of another sandbox of the same resource, and of that one's base."""
        ...

    def merge(self, base: str, ours: str, theirs: str, *, labels: tuple[str, str]) -> TreeMerge:
        """What git makes of bringing base → theirs into `ours`, all of them kept here, with git's defaults
        and the attributes of the files as they are now. `labels`, in ASCII, name ours and theirs in text that
        git marks. Changes no file."""
        ...

    def diff(self, tree: str, *, options: Sequence[str] = (), paths: Sequence[str] = ()) -> bytes:
        """git's own difference from the base to `tree`; `options` such as `--stat`, `--raw -z`, `--color`."""
        ...


class SandboxStrategy(Protocol):
    """One way of making sandboxes. Every method from any thread and process."""

    @property
    def name(self) -> str: ...

    def suits(self, resource: Path) -> bool:
        """Whether it makes sandboxes of such a resource."""
        ...

    def create(self, request: SandboxRequest, directory: Path, origin: Sandbox | None = None) -> Sandbox:
        """Makes it in `directory`, which is its alone and holds at most a lock. `SandboxRefused`.

        `origin` is the sandbox that `request.start` names, made by this strategy, too. Interrupted or failed,
        it leaves nothing in the resource that `remove` does not take away.
        """
        ...

    def open(self, plan_id: str, resource: Path, directory: Path) -> Sandbox:
        """The sandbox that was made there. `SandboxMissing`."""
        ...

    def remove(self, plan_id: str, resource: Path, directory: Path) -> None:
        """Takes away all but the lock, and whatever it left in the resource. Twice is harmless."""
        ...


class Sandboxes(Protocol):
    """All sandboxes of this state, by plan; the registry is in the database, so any process knows them."""

    def create(self, request: SandboxRequest, *, progress: Callable[[str], None] | None = None) -> Sandbox:
        """Makes and registers it. One that was half made by a process that died is made anew.

        `SandboxRefused`, `QuotaExceeded`.
        """
        ...

    def open(self, plan_id: str, *, fence: Fence | None = None) -> Sandbox:
        """`SandboxMissing`.

        Of a plan on a remote whose sandbox another machine has, one is made here, of what is recorded. With
        the `fence` of the job that runs the plan it is the plan's sandbox from then on; without, something
        to look at.
        """
        ...

    def remove(self, plan_id: str) -> None:
        """Removes and forgets it; one that another call is writing in raises `SandboxBusy`. Twice is
        harmless."""
        ...

    def sizes(self) -> Mapping[str, int]:
        """Bytes on disk of every sandbox, by plan."""
        ...


@dataclass(frozen=True, slots=True)
class SetupInputs:
    """Everything but the files of the sandbox that decides what a setup makes, or who may have it.

    `project` is the plan's: no project gets what another one's plans made. `paths` are kept. `command` is
    what `CommandRunner.inputs_of` says of the setup command.
    """

    project: str
    paths: tuple[str, ...]
    command: Mapping[str, JsonValue]


class SetupStore(Protocol):
    """Environments by key. Safe for many processes at once."""

    def key(self, inputs: SetupInputs, tree: Path) -> str | None:
        """The key of what the setup makes of the files in `tree`; every input and every file is part of it.

        Call it before the setup runs. None if not all files can be read; such a setup is not cached.
        """
        ...

    def take(self, key: str, tree: Path, paths: Sequence[str]) -> bool:
        """Copies the environment with that key into `tree`; False if there is none, or it was altered."""
        ...

    def keep(self, key: str, tree: Path, paths: Sequence[str]) -> None:
        """Keeps a copy of these directories of `tree`, unless not all in them can be copied."""
        ...
