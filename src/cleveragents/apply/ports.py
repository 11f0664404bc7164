"""Apply a plan's result to the user's files, all or nothing, and undo it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from msgspec import Struct

from cleveragents.core.change import Difference
from cleveragents.core.identifiers import Fence
from cleveragents.processes.ports import StopSignal
from cleveragents.sandboxes.git_sandbox import Sandbox

__all__ = [
    "BY_PLAN",
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
    "binary": "both sides changed the file, and it is binary",
    "add/add": "both sides created the file",
    "modify/delete": "one side changed the file, and the other deleted it",
    "rename/delete": "one side renamed the file, and the other deleted it",
    "rename/rename": "the two sides renamed the file differently",
    "file/directory": "a file on one side and a directory on the other",
    "in the way": "the path of the new file is taken",
    "a rename that cannot be named": "a rename is ambiguous",
}
_ONE_SIDED = {
    "not checked out": "the file is outside your sparse checkout",
    "submodule": "the path is a submodule",
}


BY_PLAN = "plan "
"""The beginning of a cause that is a plan."""


class FileConflict(Struct, frozen=True):
    """A file with conflicting changes. `hunks` shows each conflict with both sides, as text; `cause` names
    the author of the other change: the user, or a plan that was applied before.
    """

    path: str
    kind: str
    hunks: tuple[str, ...] = ()
    cause: str = ""

    @property
    def author(self) -> str | None:
        """The id of the plan that made the other change; None for a change of the user."""
        return self.cause.removeprefix(BY_PLAN) if self.cause.startswith(BY_PLAN) else None

    def __str__(self) -> str:
        what = _ONE_SIDED.get(self.kind) or _WORDS.get(self.kind, self.kind)
        cause = f"; the other change is by {self.cause}" if self.cause and self.kind not in _ONE_SIDED else ""
        return "\n".join([f"{self.path}: {what}{cause}", *self.hunks])


class CommitRequest(Struct, frozen=True):
    """A request to commit the applied result. The plan's id is added as a trailer.

    On a remote a commit is always made; `branch` then names a new branch for it instead of the plan's branch.
    """

    message: str
    branch: str | None = None


class ApplyOptions(Struct, frozen=True):
    """Options of an apply.

    `waiting` is called once if another apply holds the resource; the wait ends after `timeout_seconds` or on
    `stop`. `base` is the tree that the changes start from, if it is not the base of the sandbox. For remotes:
    `fence` must be valid while the job runs, and `branch` names a new branch to push to.
    """

    waiting: Callable[[str], None] | None = None
    timeout_seconds: float = 600.0
    fence: Fence | None = None
    branch: str | None = None
    stop: StopSignal | None = None
    base: str | None = None


USUAL = ApplyOptions()


class Rename(Struct, frozen=True):
    """A rename that a merge followed: a change of the file `old` went to the file `new`."""

    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.old} → {self.new}"


class Applied(Struct, frozen=True):
    """The changes of an apply or an undo to the user's files."""

    id: str
    changes: Mapping[str, Difference]
    commit: str | None = None
    renames: tuple[Rename, ...] = ()


class ApplyRecord(Struct, frozen=True):
    """The record of an apply or an undo (`kind`) in the journal: the number of changed files, the commit, if
    any, and the followed renames.
    """

    kind: str
    files: int
    commit: str | None
    renames: tuple[Rename, ...]


class Recovered(Struct, frozen=True):
    """An apply that a crash had interrupted and recovery has ended: `completed`, or undone."""

    plan_id: str
    apply_id: str
    kind: str
    completed: bool
    left_alone: tuple[str, ...] = ()


class Preparation(Protocol):
    """A prepared merge that is not yet applied. The resource is locked while it exists."""

    @property
    def merged(self) -> str:
        """The resulting tree, in the sandbox's store."""
        ...

    @property
    def conflicts(self) -> Sequence[FileConflict]: ...

    def keep_current(self) -> str:
        """Store the current files of the resource in the sandbox's store and return their tree. Ignored files
        that the sandbox does not have are left out. Raises `ApplyRefused` if the plan changes one of them.
        """
        ...

    @property
    def landed(self) -> bool:
        """Whether an earlier attempt already applied the merge and only failed to record it."""
        ...

    @property
    def changes(self) -> Mapping[str, Difference]:
        """The changes to the user's files; empty if there are none."""
        ...

    def apply(self, commit: CommitRequest | None = None) -> Applied:
        """Apply the merge completely, or raise an error and change nothing. The result survives a kill -9.

        Raises `ApplyConflict` if there are conflicts or a file changed meanwhile, and `ApplyRefused`.
        """
        ...

    def commit_apart(self, message: str) -> tuple[str, str] | None:
        """Commit the result without changing a file, index or branch, and return the commit and its tree;
        None if there is nothing to commit. Raises `ApplyConflict`, and `ApplyRefused`, also for a remote.
        """
        ...


class Applier(Protocol):
    """Applies and undoes results. Any thread and process may call every method; one apply runs at a time per
    resource.
    """

    def prepare(
        self, plan_id: str, sandbox: Sandbox, tree: str, terms: ApplyOptions = USUAL
    ) -> AbstractContextManager[Preparation]:
        """Merge the change from the sandbox's base to `tree` into the resource's current files, without
        writing them yet. Raises `ApplyBusy`.

        On a remote, also raises `StaleFence`, `RemoteUnreachable`, and `RemoteMoved` if another push came
        first; `ApplyRefused` if the target branch is gone, or the new branch already exists and belongs to
        others.
        """
        ...

    def prepare_undo(
        self, plan_id: str, sandbox: Sandbox, terms: ApplyOptions = USUAL
    ) -> AbstractContextManager[Preparation]:
        """Prepare to undo the plan's last apply. Raises `ApplyRefused` if there is none."""
        ...

    def is_busy(self, resource: str) -> bool:
        """Return whether a living process applies or undoes a plan in the resource. For a remote this is
        unknown, so the result is True.
        """
        ...

    def is_busy_here(self, resource: str) -> bool:
        """Return the result of `is_busy`, but only for processes of this state directory."""
        ...

    def deciding(
        self, plan_id: str, resource: str, terms: ApplyOptions = USUAL
    ) -> AbstractContextManager[None]:
        """Before the block, settle an abandoned apply of the plan: record it if it is complete, else undo it.

        Within the block, no other process on this machine applies to the resource; a running apply is waited
        for. Raises `ApplyBusy`, `ApplyRefused`; on a remote `RemoteUnreachable`, `StaleFence`.
        """
        ...

    def recover(self) -> Sequence[Recovered]:
        """Complete or undo the interrupted applies of dead processes. Skips the applies of living processes,
        and applies that cannot be completed or undone now.
        """
        ...

    def last_of_plan(self, plan_id: str) -> ApplyRecord | None:
        """Return the last completed apply or undo of the plan."""
        ...

    def undecided(self) -> Collection[str]:
        """Return the plans with an apply or undo that is neither complete nor undone."""
        ...

    def give_up(self, plan_id: str) -> Sequence[str]:
        """Give up the plan's interrupted applies, leaving their files as they are; return their resources.

        Raises `ApplyBusy` while an apply is running.
        """
        ...
