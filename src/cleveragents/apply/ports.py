"""Bringing a plan's result into the user's files, all of it or nothing, and taking it out again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from cleveragents.core.change import Difference
from cleveragents.core.identifiers import Fence
from cleveragents.processes.ports import StopSignal
from cleveragents.sandboxes.git_sandbox import Sandbox

__all__ = [
    "USUAL",
    "Applied",
    "Applier",
    "ApplyOptions",
    "ApplyRecord",
    "CommitRequest",
    "FileConflict",
    "Preparation",
    "Recovered",
    "Rename",
]


_WORDS = {
    "content": "both sides changed the same lines",
    "binary": "both sides changed it, and it is binary",
    "add/add": "both sides created it",
    "modify/delete": "one side changed it and the other deleted it",
    "rename/delete": "one side renamed it and the other deleted it",
    "rename/rename": "the two sides renamed it differently",
    "file/directory": "it is a file on one side and a directory on the other",
}
_ONE_SIDED = {
    "not checked out": "your sparse checkout leaves it out",
    "submodule": "it is a submodule",
}


@dataclass(frozen=True, slots=True)
class FileConflict:
    """A file on which both sides changed the same place. `hunks` shows each place with both sides, as text;
    `cause` says who changed it: the user, or the plan that was applied before."""

    path: str
    kind: str
    hunks: tuple[str, ...] = ()
    cause: str = ""

    def __str__(self) -> str:
        what = _ONE_SIDED.get(self.kind) or _WORDS.get(self.kind, self.kind)
        cause = f"; the other change is by {self.cause}" if self.cause and self.kind not in _ONE_SIDED else ""
        return "\n".join([f"{self.path}: {what}{cause}", *self.hunks])


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """Make a commit of it, too. The plan's id is added as a trailer. On a remote, where a commit is made
    anyway, `branch` is a new one that gets it, in the place of the one that the plan began with."""

    message: str
    branch: str | None = None


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """How an apply is prepared: `waiting` is told once when another apply is under way, and that is waited
    for `timeout_seconds`, or until `stop` says so. Of remotes only: it is done while the job of the `fence`
    runs under it, and to a new `branch`, if that is said."""

    waiting: Callable[[str], None] | None = None
    timeout_seconds: float = 600.0
    fence: Fence | None = None
    branch: str | None = None
    stop: StopSignal | None = None


USUAL = ApplyOptions()


@dataclass(frozen=True, slots=True)
class Rename:
    """A rename that a merge followed: a change of the file `old` went to the file `new`."""

    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.old} → {self.new}"


@dataclass(frozen=True, slots=True)
class Applied:
    """What an apply or an undo did to the user's files."""

    id: str
    changes: Mapping[str, Difference]
    commit: str | None = None
    renames: tuple[Rename, ...] = ()


@dataclass(frozen=True, slots=True)
class ApplyRecord:
    """What an apply or an undo (`kind`) did, as the journal keeps it: how many files it changed, the commit
    that it made, if any, and the renames that it followed."""

    kind: str
    files: int
    commit: str | None
    renames: tuple[Rename, ...]


@dataclass(frozen=True, slots=True)
class Recovered:
    """An apply that a crash had interrupted: `completed`, or undone."""

    plan_id: str
    apply_id: str
    kind: str
    completed: bool
    left_alone: tuple[str, ...] = ()


class Preparation(Protocol):
    """A merge that is decided and not yet made. The resource is locked while it exists."""

    @property
    def merged(self) -> str:
        """The tree that would result, in the sandbox's store."""
        ...

    @property
    def conflicts(self) -> Sequence[FileConflict]: ...

    @property
    def landed(self) -> bool:
        """Whether it is done already, by an attempt that could not say so: only the record is to be made."""
        ...

    @property
    def changes(self) -> Mapping[str, Difference]:
        """What would be done to the user's files; empty when there is nothing to do."""
        ...

    def apply(self, commit: CommitRequest | None = None) -> Applied:
        """Does it: all, or nothing and an error. `ApplyConflict` when there are conflicts, or when a file
        changed since; `ApplyRefused`. When it returned, it survives a kill -9."""
        ...


class Applier(Protocol):
    """Every method from any thread and process; one apply at a time per resource."""

    def prepare(
        self, plan_id: str, sandbox: Sandbox, tree: str, terms: ApplyOptions = USUAL
    ) -> AbstractContextManager[Preparation]:
        """Merges base → `tree` into the resource's present files. `ApplyBusy`. On a remote `StaleFence`,
        `RemoteMoved` if somebody pushed meanwhile, `RemoteUnreachable`; `ApplyRefused` if the branch that it
        is for is gone, or the new one is there already, and somebody else's."""
        ...

    def prepare_undo(
        self, plan_id: str, sandbox: Sandbox, terms: ApplyOptions = USUAL
    ) -> AbstractContextManager[Preparation]:
        """The same for taking out what the plan's last apply brought in. `ApplyRefused` if there is none."""
        ...

    def is_busy(self, resource: str) -> bool:
        """Whether an apply or undo to that resource is under way in a living process. Of a remote nobody can
        tell, and so it may be."""
        ...

    def is_busy_here(self, resource: str) -> bool:
        """The same, as far as processes of this state directory are concerned."""
        ...

    def deciding(
        self, plan_id: str, resource: str, terms: ApplyOptions = USUAL
    ) -> AbstractContextManager[None]:
        """For a plan that whoever applied it does not any more: what of it is done is recorded as done, the
        rest taken back. In the block nobody else of this machine applies anything to that resource; who does
        is waited for. `ApplyBusy`, `ApplyRefused`; of a remote `RemoteUnreachable`, `StaleFence`."""
        ...

    def recover(self) -> Sequence[Recovered]:
        """Completes or undoes what applies of dead processes left half done; leaves living ones alone, and
        those that cannot be ended now."""
        ...

    def last_of_plan(self, plan_id: str) -> ApplyRecord | None:
        """The last completed apply or undo of the plan."""
        ...

    def undecided(self) -> Collection[str]:
        """The plans of which an apply or undo was begun and is neither done nor taken back."""
        ...

    def give_up(self, plan_id: str) -> Sequence[str]:
        """Forgets what the plan's applies left half done, whose files stay as they are; says where that is.
        `ApplyBusy` while one is under way."""
        ...
