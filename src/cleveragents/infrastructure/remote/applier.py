"""`Applier` for plans on remotes: the same merge, and a push in the place of moved files.

Nobody has such a resource for itself, so nothing is locked but what this state directory does: that only
spares it pushes that would not get through. What decides is where the branch is when the push arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from cleveragents.application.ports.applies import Applier, FileConflict, Preparation, Recovered
from cleveragents.application.ports.checkpoints import Fence
from cleveragents.application.ports.sandboxes import Sandbox
from cleveragents.domain.plan import Plan
from cleveragents.domain.redaction import redact_text
from cleveragents.domain.remote import RemoteAddress, remote_of
from cleveragents.errors import ApplyRefused, CleverAgentsError
from cleveragents.infrastructure.apply.applier import EngineSandbox
from cleveragents.infrastructure.apply.journal import PREPARED, STAGING, Entry
from cleveragents.infrastructure.apply.lock import resource_lock, try_resource_lock
from cleveragents.infrastructure.apply.merge import Merge, merge_trees
from cleveragents.infrastructure.apply.preparation import Wish
from cleveragents.infrastructure.remote.push import PushPreparation, RemoteEngine, Target

__all__ = ["AnyApplier", "RemoteApplier"]

_SUBJECT = 72


@dataclass(frozen=True, slots=True)
class RemoteApplier:
    """Applies to remotes. Stateless but for its parts: any number of machines may have one each. `base_of`
    says with which commit a plan began."""

    engine: RemoteEngine
    plan: Callable[[str], Plan]
    base_of: Callable[[str, RemoteAddress], str]

    @contextmanager
    def prepare(
        self,
        plan_id: str,
        sandbox: Sandbox,
        tree: str,
        *,
        waiting: Callable[[str], None] | None = None,
        timeout_seconds: float = 600.0,
        fence: Fence | None = None,
    ) -> Iterator[Preparation]:
        plan, address = self._plan(plan_id)
        wish = Wish("apply", plan_id, sandbox.base, tree)
        message = f"{_subject(plan)}\n\nApplied by CleverAgents."
        with self._held(address, waiting, timeout_seconds):
            tip = self.engine.mirrors.fetched(address)
            ref = _target_ref(plan, address)
            target = Target(address, ref, tip, self.engine.mirrors.value_of(address, ref) or "")
            with self._prepared(sandbox, target, wish, message, fence) as preparation:
                yield preparation

    @contextmanager
    def prepare_undo(
        self,
        plan_id: str,
        sandbox: Sandbox,
        *,
        waiting: Callable[[str], None] | None = None,
        timeout_seconds: float = 600.0,
        fence: Fence | None = None,
    ) -> Iterator[Preparation]:
        plan, address = self._plan(plan_id)
        last = self.engine.journal.last_of_plan(plan_id)
        if last is None or last.kind != "apply":
            raise ApplyRefused(plan_id, "there is nothing of it to undo")
        wish = Wish("undo", plan_id, last.journal.merged, last.journal.ours)
        message = f"Undo: {_subject(plan)}\n\nUndone by CleverAgents."
        with self._held(address, waiting, timeout_seconds):
            self.engine.mirrors.fetch(address)
            ref = _target_ref(plan, address)
            tip = self.engine.mirrors.value_of(address, ref)
            if tip is None:
                raise ApplyRefused(plan_id, f"{address.shown} has no {ref} any more")
            with self._prepared(sandbox, Target(address, ref, tip, tip), wish, message, fence) as preparation:
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
        """Of this state directory's own; what others left is for who gets their jobs."""
        found: list[Recovered] = []
        for entry in self.engine.journal.open_entries(remote=True):
            if entry.journal.home == self.engine.home and not self.is_busy_here(entry.resource):
                found += self._isolated(entry)
        return found

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

    def decide(self, plan_id: str, fence: Fence | None) -> None:
        for entry in self._open(plan_id):
            self._decided(entry, fence)

    def _isolated(self, entry: Entry) -> list[Recovered]:
        try:
            done = self._decided(entry, None)
        except CleverAgentsError as error:
            import structlog

            log = structlog.get_logger()
            log.warning("apply.recovery_failed", plan_id=entry.plan_id, apply_id=entry.id, error=str(error))
            return []
        return [Recovered(entry.plan_id, entry.id, entry.kind, done)]

    def _decided(self, entry: Entry, fence: Fence | None) -> bool:
        """Whether it was pushed; our records say so then."""
        plan, address = self._plan(entry.plan_id)
        ref = _target_ref(plan, address)
        self.engine.mirrors.fetch(address)
        landed = self.engine.landed(plan.id, address, ref, self.base_of(plan.root, address))
        if landed is not None:  # guard: what is in the branch is applied, whoever could not say so
            self.engine.record_landed(landed, fence)
        if landed is None or landed.entry.id != entry.id:
            self.engine.journal.end(entry, done=False, fence=fence)
            self.engine.journal.close(entry)
        return landed is not None

    def _open(self, plan_id: str) -> list[Entry]:
        return [one for one in self.engine.journal.open_entries(remote=True) if one.plan_id == plan_id]

    def _plan(self, plan_id: str) -> tuple[Plan, RemoteAddress]:
        plan = self.plan(plan_id)
        address = remote_of(plan.resource)
        if address is None:
            raise ApplyRefused(plan_id, f"{plan.resource} is no remote")
        return plan, address

    @contextmanager
    def _held(
        self, address: RemoteAddress, waiting: Callable[[str], None] | None, timeout_seconds: float
    ) -> Iterator[None]:
        place = self.engine.mirrors.applying(address)

        def told(_: str) -> None:
            if waiting is not None:
                waiting(f"another plan is being applied to {address.shown}")

        with resource_lock(place, waiting=told, timeout_seconds=timeout_seconds):
            yield

    @contextmanager
    def _prepared(
        self, sandbox: Sandbox, target: Target, wish: Wish, message: str, fence: Fence | None
    ) -> Iterator[Preparation]:
        if not isinstance(sandbox, EngineSandbox):
            raise TypeError(f"{type(sandbox).__name__} has no store of trees to apply from")
        repository = sandbox.repository
        plan = self.plan(wish.plan_id)
        landed = self.engine.landed(
            plan.id, target.address, target.ref, self.base_of(plan.root, target.address)
        )
        ours = repository.text("rev-parse", f"{target.tip}^{{tree}}")
        merge = Merge(wish.base, ours, wish.theirs, ours, {})
        if landed is None:
            merge = merge_trees(repository, wish.base, ours, wish.theirs)
            merge = replace(merge, conflicts=tuple(_caused(one, target) for one in merge.conflicts))
        preparation = PushPreparation(
            self.engine, repository, target, wish, merge, landed=landed, message=message, fence=fence
        )
        try:
            yield preparation
        finally:
            preparation.close()


class AnyApplier:
    """`Applier` for every plan: one for those on directories, one for those on remotes."""

    def __init__(
        self, directories: Applier, remotes: RemoteApplier, resource_of: Callable[[str], str]
    ) -> None:
        self._directories = directories
        self._remotes = remotes
        self._resource_of = resource_of

    @contextmanager
    def prepare(
        self,
        plan_id: str,
        sandbox: Sandbox,
        tree: str,
        *,
        waiting: Callable[[str], None] | None = None,
        timeout_seconds: float = 600.0,
        fence: Fence | None = None,
    ) -> Iterator[Preparation]:
        chosen = self._for(self._resource_of(plan_id))
        with chosen.prepare(
            plan_id, sandbox, tree, waiting=waiting, timeout_seconds=timeout_seconds, fence=fence
        ) as preparation:
            yield preparation

    @contextmanager
    def prepare_undo(
        self,
        plan_id: str,
        sandbox: Sandbox,
        *,
        waiting: Callable[[str], None] | None = None,
        timeout_seconds: float = 600.0,
        fence: Fence | None = None,
    ) -> Iterator[Preparation]:
        chosen = self._for(self._resource_of(plan_id))
        with chosen.prepare_undo(
            plan_id, sandbox, waiting=waiting, timeout_seconds=timeout_seconds, fence=fence
        ) as preparation:
            yield preparation

    def is_busy(self, resource: str) -> bool:
        return self._for(resource).is_busy(resource)

    def is_busy_here(self, resource: str) -> bool:
        return self._for(resource).is_busy_here(resource)

    def recover(self) -> Sequence[Recovered]:
        return [*self._directories.recover(), *self._remotes.recover()]

    def undecided(self) -> Collection[str]:
        return {*self._directories.undecided(), *self._remotes.undecided()}

    def give_up(self, plan_id: str) -> Sequence[str]:
        return [*self._directories.give_up(plan_id), *self._remotes.give_up(plan_id)]

    def decide(self, plan_id: str, fence: Fence | None) -> None:
        self._remotes.decide(plan_id, fence)

    def _for(self, resource: str) -> Applier:
        return self._directories if remote_of(resource) is None else self._remotes


def _target_ref(plan: Plan, address: RemoteAddress) -> str:
    """The branch that it is applied to, or one of its own, if that is what was asked for."""
    own = plan.request.get("apply_to") == "branch"
    return f"refs/heads/cleveragents/{plan.id}" if own else address.ref


def _subject(plan: Plan) -> str:
    first = redact_text(plan.goal).strip().partition("\n")[0]
    return first[:_SUBJECT] or f"Apply plan {plan.id}"


def _caused(conflict: FileConflict, target: Target) -> FileConflict:
    return replace(conflict, cause=conflict.cause or f"another commit of {target.address.branch}")
