"""`Applier` for plans on remotes: the same merge, then a push instead of moved files.

No machine owns a remote exclusively. The lock covers only this state directory; it avoids pushes that would
be rejected. The remote accepts a push only if its branch is still at the merged commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cleveragents.access.model.project import TO_BRANCH, RemoteAddress, branch_of, new_branch, remote_of
from cleveragents.apply.applier import ensure_no_git_directory
from cleveragents.apply.journal import PREPARED, STAGING, JournalEntry
from cleveragents.apply.lock import resource_lock, try_resource_lock
from cleveragents.apply.merge import MergeResult, submodule_conflicts
from cleveragents.apply.ports import (
    USUAL,
    Applier,
    ApplyOptions,
    ApplyRecord,
    FileConflict,
    Preparation,
    Recovered,
)
from cleveragents.apply.preparation import MergeInput
from cleveragents.apply.push import PushedCommit, PushPreparation, PushTarget, RemoteEngine
from cleveragents.apply.target import merge_following_renames
from cleveragents.core.errors import ApplyRefused, CleverAgentsError, Remedy
from cleveragents.core.text.redaction import redact_text

if TYPE_CHECKING:
    from cleveragents.core.identifiers import Fence
    from cleveragents.plans.model.plan import Plan
    from cleveragents.sandboxes.git_sandbox import Sandbox

__all__ = ["AnyApplier", "RemoteApplier", "destination_of"]

_SUBJECT = 72


class RemoteApplier(Struct, frozen=True):
    """Applies to remotes. Stateless: any number of machines may have one. `base_of` returns the commit that a
    plan started from.
    """

    engine: RemoteEngine
    plan: Callable[[str], Plan]
    base_of: Callable[[str, RemoteAddress], str]

    @contextmanager
    def prepare(
        self, plan_id: str, sandbox: Sandbox, tree: str, terms: ApplyOptions = USUAL
    ) -> Iterator[Preparation]:
        plan, address = self._plan(plan_id)
        merge_input = MergeInput("apply", plan_id, terms.base or sandbox.base, tree)
        message = f"{_subject(plan)}\n\nApplied by CleverAgents."
        with self._held(address, terms):
            self.engine.mirrors.fetch(address)
            landed = self._landed(plan, address)
            target = self._target(plan, address, terms.branch) if landed is None else landed.target(address)
            with self._prepared(sandbox, target, merge_input, message, landed, terms.fence) as preparation:
                yield preparation

    @contextmanager
    def prepare_undo(
        self, plan_id: str, sandbox: Sandbox, terms: ApplyOptions = USUAL
    ) -> Iterator[Preparation]:
        plan, address = self._plan(plan_id)
        last = self.engine.journal.last_of_plan(plan_id)
        if last is None or last.kind != "apply":
            raise ApplyRefused(plan_id, "the plan has no apply to undo")
        merge_input = MergeInput("undo", plan_id, last.journal.merged, last.journal.ours)
        message = f"Undo: {_subject(plan)}\n\nUndone by CleverAgents."
        # An apply without changes moved no branch.
        ref = address.ref if last.journal.commit is None else last.journal.commit.ref
        with self._held(address, terms):
            self.engine.mirrors.fetch(address)
            tip = self.engine.mirrors.value_of(address, ref)
            if tip is None:
                raise ApplyRefused(plan_id, f"branch {branch_of(ref)} no longer exists at {address.shown}")
            target, landed = PushTarget(address, ref, tip, tip), self._landed(plan, address)
            with self._prepared(sandbox, target, merge_input, message, landed, terms.fence) as preparation:
                yield preparation

    def is_busy(self, resource: str) -> bool:
        return True

    def is_busy_here(self, resource: str) -> bool:
        address = remote_of(resource)
        if address is None:
            return False
        with try_resource_lock(self.engine.mirrors.applying(address)) as held:
            return not held

    def recover(self) -> Sequence[Recovered]:
        """Recover the journal entries of this state directory; workers recover others with their jobs."""
        found: list[Recovered] = []
        for entry in self.engine.journal.open_entries(remote=True):
            if entry.journal.home == self.engine.home and not self.is_busy_here(entry.resource):
                found += self._isolated(entry)
        return found

    def last_of_plan(self, plan_id: str) -> ApplyRecord | None:
        last = self.engine.journal.last_of_plan(plan_id)
        return None if last is None else last.record

    def undecided(self) -> Collection[str]:
        entries = self.engine.journal.open_entries(remote=True)
        return frozenset(entry.plan_id for entry in entries if entry.state in (STAGING, PREPARED))

    def give_up(self, plan_id: str) -> Sequence[str]:
        given_up = []
        for entry in self._open(plan_id):
            if self.engine.journal.end(entry, done=False):
                given_up.append(entry.resource)
            self.engine.journal.close(entry)
        return given_up

    @contextmanager
    def deciding(self, plan_id: str, resource: str, terms: ApplyOptions = USUAL) -> Iterator[None]:
        for entry in self._open(plan_id):
            self._decided(entry, terms.fence)
        yield

    def _isolated(self, entry: JournalEntry) -> list[Recovered]:
        try:
            done = self._decided(entry, None)
        except CleverAgentsError as error:
            import structlog

            log = structlog.get_logger()
            log.warning("apply.recovery_failed", plan_id=entry.plan_id, apply_id=entry.id, error=str(error))
            return []
        return [Recovered(entry.plan_id, entry.id, entry.kind, done)]

    def _decided(self, entry: JournalEntry, fence: Fence | None) -> bool:
        """Return whether the remote contains the result. If it does, record the apply."""
        plan, address = self._plan(entry.plan_id)
        self.engine.mirrors.fetch(address)
        landed = self._landed(plan, address)
        if landed is not None:  # guard: a result in the branch is applied, even if its push was not confirmed
            self.engine.record_landed(landed, fence)
        if landed is None or landed.entry.id != entry.id:
            self.engine.journal.end(entry, done=False, fence=fence)
            self.engine.journal.close(entry)
        return landed is not None

    def _open(self, plan_id: str) -> list[JournalEntry]:
        return [one for one in self.engine.journal.open_entries(remote=True) if one.plan_id == plan_id]

    def _plan(self, plan_id: str) -> tuple[Plan, RemoteAddress]:
        plan = self.plan(plan_id)
        address = remote_of(plan.resource)
        if address is None:
            raise ApplyRefused(plan_id, f"{plan.resource} is not a remote")
        return plan, address

    def _landed(self, plan: Plan, address: RemoteAddress) -> PushedCommit | None:
        return self.engine.landed(plan.id, address, self.base_of(plan.root, address))

    def _target(self, plan: Plan, address: RemoteAddress, asked: str | None) -> PushTarget:
        """Return the branch to push to, as fetched just now. A new branch starts at the tip of the plan's own
        branch; if that branch is gone, at the commit that the plan started from. Raises `ApplyRefused`.
        """
        branch = destination_of(plan, asked) or address.branch
        there = self.engine.mirrors.mirrored(address)
        other = Remedy("plan.apply", plan.id, {"to_branch": None}, "Push the result to another branch")
        if branch == address.branch:
            tip = self.engine.mirrors.value_of(address, address.ref)
            if tip is None:
                gone = f"branch {branch} no longer exists at {address.shown}; push it again, then apply"
                raise ApplyRefused(plan.id, gone, remedies=(other,))
            return PushTarget(address, address.ref, tip, tip)
        held = [one for one in there if _is_in_the_way(one, branch)]
        if held:  # guard: never overwrite another branch
            taken = f"branch {held[0]} already exists at {address.shown}"
            raise ApplyRefused(plan.id, taken, remedies=(other,))
        tip = self.engine.mirrors.value_of(address, address.ref) or self.base_of(plan.root, address)
        return PushTarget(address, f"refs/heads/{branch}", tip, "")

    @contextmanager
    def _held(self, address: RemoteAddress, terms: ApplyOptions) -> Iterator[None]:
        place = self.engine.mirrors.applying(address)

        def told(_: str) -> None:
            if terms.waiting is not None:
                terms.waiting(f"another plan is being applied to {address.shown}")

        lock = resource_lock(place, waiting=told, timeout_seconds=terms.timeout_seconds, stop=terms.stop)
        with lock:
            yield

    @contextmanager
    def _prepared(
        self,
        sandbox: Sandbox,
        target: PushTarget,
        merge_input: MergeInput,
        message: str,
        landed: PushedCommit | None,
        fence: Fence | None,
    ) -> Iterator[Preparation]:
        repository = sandbox.repository
        ours = repository.text("rev-parse", f"{target.tip}^{{tree}}")
        merge = MergeResult(merge_input.base, ours, merge_input.theirs, ours, {})
        if landed is None:
            merge = merge_following_renames(repository, merge_input.base, ours, merge_input.theirs)
            if merge_input.kind == "apply":  # guard: an undo may restore such a file
                ensure_no_git_directory(merge_input.plan_id, repository, merge)
            found = merge.conflicts or submodule_conflicts(repository, merge)
            merge = replace(merge, conflicts=tuple(_caused(one, target) for one in found))
        preparation = PushPreparation(
            self.engine, repository, target, merge_input, merge, landed=landed, message=message, fence=fence
        )
        try:
            yield preparation
        finally:
            preparation.close()


class AnyApplier:
    """`Applier` for every plan: one for directories, one for remotes."""

    def __init__(
        self, directories: Applier, remotes: RemoteApplier, resource_of: Callable[[str], str]
    ) -> None:
        self._directories = directories
        self._remotes = remotes
        self._resource_of = resource_of

    def prepare(
        self, plan_id: str, sandbox: Sandbox, tree: str, terms: ApplyOptions = USUAL
    ) -> AbstractContextManager[Preparation]:
        return self._for(self._resource_of(plan_id)).prepare(plan_id, sandbox, tree, terms)

    def prepare_undo(
        self, plan_id: str, sandbox: Sandbox, terms: ApplyOptions = USUAL
    ) -> AbstractContextManager[Preparation]:
        return self._for(self._resource_of(plan_id)).prepare_undo(plan_id, sandbox, terms)

    def is_busy(self, resource: str) -> bool:
        return self._for(resource).is_busy(resource)

    def is_busy_here(self, resource: str) -> bool:
        return self._for(resource).is_busy_here(resource)

    def recover(self) -> Sequence[Recovered]:
        return [*self._directories.recover(), *self._remotes.recover()]

    def last_of_plan(self, plan_id: str) -> ApplyRecord | None:
        return self._for(self._resource_of(plan_id)).last_of_plan(plan_id)

    def undecided(self) -> Collection[str]:
        return {*self._directories.undecided(), *self._remotes.undecided()}

    def give_up(self, plan_id: str) -> Sequence[str]:
        return [*self._directories.give_up(plan_id), *self._remotes.give_up(plan_id)]

    def deciding(
        self, plan_id: str, resource: str, terms: ApplyOptions = USUAL
    ) -> AbstractContextManager[None]:
        return self._for(resource).deciding(plan_id, resource, terms)

    def _for(self, resource: str) -> Applier:
        return self._directories if remote_of(resource) is None else self._remotes


def _is_in_the_way(there: str, wanted: str) -> bool:
    """Return whether the branch names clash: they are equal, or one is a parent directory of the other."""
    return there == wanted or there.startswith(f"{wanted}/") or wanted.startswith(f"{there}/")


def _subject(plan: Plan) -> str:
    first = redact_text(plan.goal).strip().partition("\n")[0]
    return first[:_SUBJECT] or f"Apply plan {plan.id}"


def _caused(conflict: FileConflict, target: PushTarget) -> FileConflict:
    branch = branch_of(target.ref) if target.expected else target.address.branch
    return replace(conflict, cause=conflict.cause or f"another commit on {branch}")


def destination_of(plan: Plan, asked: str | None = None) -> str | None:
    """Return the new branch for the result of a plan on a remote; `asked` overrides the request of the plan.
    None means the branch that the plan started from. Raises `InvalidName`.
    """
    said = asked or plan.request.get(TO_BRANCH)
    return new_branch(said, plan.id) if isinstance(said, str) and said else None
