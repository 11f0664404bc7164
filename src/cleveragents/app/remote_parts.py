"""The components of plans on git remotes: mirrors, portable sandboxes, and applying by push.

For plans on directories, these components delegate to the components for directories.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from cleveragents.app.scope import Once

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

    from cleveragents.app.container import Container
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.apply.applier import TreeApplier
    from cleveragents.apply.journal import ApplyJournal, JournalEntry
    from cleveragents.core.identifiers import Fence
    from cleveragents.plans.model.plan import Plan
    from cleveragents.plans.remote.applier import AnyApplier
    from cleveragents.plans.remote.contents import ContentKeepingStore, SqlContents
    from cleveragents.plans.remote.sandboxes import RemoteSandboxes, RemoteSetup, ResourceDirectories
    from cleveragents.plans.store.sql_plan_records import SqlCallStore
    from cleveragents.sandboxes.git_sandbox import Sandbox
    from cleveragents.sandboxes.mirror import Mirrors

__all__ = ["RemoteParts"]

_PAGE = 500
_LOST = timedelta(days=30)
_SANDBOXES = "sandboxes"


class RemoteParts:
    """The remote components of one process. Safe in any thread; each component is built once."""

    def __init__(self, container: Container, parts: PlanParts) -> None:
        self._container = container
        self._parts = parts

    @Once
    def mirrors(self) -> Mirrors:
        from cleveragents.sandboxes.mirror import Mirrors
        from cleveragents.sandboxes.orphans import MIRRORS

        state = self._container.state_directory
        return Mirrors(state / MIRRORS, sandboxes=state / _SANDBOXES)

    @Once
    def directories(self) -> ResourceDirectories:
        """The directories of plan resources on this machine."""
        from cleveragents.plans.remote.sandboxes import ResourceDirectories

        return ResourceDirectories(self._container.database, self.mirrors)

    @Once
    def contents(self) -> SqlContents:
        from cleveragents.plans.remote.contents import SqlContents

        return SqlContents(self._container.database)

    @Once
    def sandboxes(self) -> RemoteSandboxes:
        from cleveragents.plans.remote.sandboxes import PlanTakeover, RemoteSandboxes

        container = self._container
        take_over = PlanTakeover(
            self._parts.plans.get,
            self.directories,
            self.contents,
            container.changesets,
            self._calls,
            self._parts.trust,
        )
        return RemoteSandboxes(
            container.database,
            container.state_directory / _SANDBOXES,
            take_over,
            quota_bytes=container.settings.sandbox.quota_bytes,
            clock=container.clock,
            identifiers=container.identifiers,
            faults=container.faults,
            durability=container.settings.database.durability,
            home=container.home,
        )

    @Once
    def remote_setup(self) -> RemoteSetup:
        from cleveragents.plans.remote.sandboxes import RemoteSetup
        from cleveragents.sandboxes.setup_cache import SetupCache

        cache = SetupCache(self._container.state_directory / "setups")
        return RemoteSetup(self.sandboxes, cache, self._parts.commands)

    def has_owner(self, plan: Plan) -> bool:
        """Return whether the plan has a job, whose worker, on any machine, owns the plan."""
        from cleveragents.jobs.model.job import JobState

        after: str | None = None
        while page := self._container.jobs.list(
            states=(JobState.QUEUED, JobState.RUNNING), limit=_PAGE, after=after
        ):
            if any(job.payload.get("plan_id") == plan.id for job in page):
                return True
            after = page[-1].id
        return False

    def branch_of(self, plan: Plan) -> str | None:
        """Return the branch that the result of a plan was or would be pushed to.

        None for a directory, and for a sub-plan, which is pushed with its parent.
        """
        from cleveragents.access.model.project import branch_of, remote_of
        from cleveragents.plans.model.plan import PlanState
        from cleveragents.plans.remote.applier import destination_of

        address = remote_of(plan.resource)
        if address is None or plan.parent_id is not None:
            return None
        if plan.state in (PlanState.APPLIED, PlanState.UNDONE):
            last = self._journal.last_of_plan(plan.id)
            if last is not None and last.journal.commit is not None:
                return branch_of(last.journal.commit.ref)
        return destination_of(plan) or address.branch

    def changesets(self, sandbox: Sandbox | None = None) -> ContentKeepingStore:
        """Return a changeset store that also keeps file contents of plans on remotes.

        The contents come from the given sandbox, or else from the plan's sandbox.
        """
        from cleveragents.access.model.project import remote_of
        from cleveragents.plans.remote.contents import ContentKeepingStore, ContentLocation

        plans = self._parts.plans
        known = None if sandbox is None else ContentLocation(sandbox, plans.get(sandbox.plan_id).root)

        def keeper_of(changeset_id: str) -> ContentLocation | None:
            if known is not None:
                return known
            plan = plans.get(self._container.changesets.get(changeset_id).plan_id)
            return (
                None
                if remote_of(plan.resource) is None
                else ContentLocation(self.sandboxes.open(plan.id), plan.root)
            )

        return ContentKeepingStore(self._container.changesets, self.contents, keeper_of)

    def forget_contents(self, older_than: timedelta, *, dry_run: bool = False) -> int:
        """Delete the stored file contents of old plans on remotes that have no sandbox any more; return the
        number of plans.

        Sandboxes of a state directory that was not seen for a month count as removed.
        """
        is_past, now = self._parts.cleanup.is_past, self._container.clock.now()
        long_ago = now - max(older_than, _LOST)
        lost = self._lost(long_ago)
        past = [root for root in self.contents.trees() if is_past(root, now - older_than)]
        return sum(
            self.contents.forget(root, lost=lost if is_past(root, long_ago) else (), dry_run=dry_run)
            for root in past
        )

    def _lost(self, long_ago: datetime) -> set[str]:
        """Return the state directories that have sandboxes but created none since `long_ago`, and have no
        recent worker.
        """
        known, active = self.contents.homes_since(long_ago)
        working = {worker.home for worker in self._container.worker_registry.list()}
        used = active | working | {self._container.home}
        return known - used  # guard: contents that another state directory may still use are not deleted

    def needed(self) -> set[str]:
        """Return the addresses of remotes that a plan or a resource uses."""
        from cleveragents.plans.remote.sandboxes import needed_remotes

        return needed_remotes(self._container.database)

    @Once
    def applier(self) -> AnyApplier:
        from cleveragents.apply.push import RemoteEngine
        from cleveragents.plans.remote.applier import AnyApplier, RemoteApplier

        container, plans = self._container, self._parts.plans
        engine = RemoteEngine(
            self._journal, self.mirrors, container.identifiers, container.faults, container.home
        )
        remotes = RemoteApplier(engine, plans.get, self.directories.base)
        return AnyApplier(self._tree_applier(), remotes, lambda plan_id: plans.get(plan_id).resource)

    @Once
    def _journal(self) -> ApplyJournal:
        from cleveragents.apply.journal import ApplyJournal

        container = self._container
        return ApplyJournal(container.database, container.identifiers, container.clock, self._conclude)

    def _tree_applier(self) -> TreeApplier:
        from cleveragents.apply.applier import TreeApplier

        return TreeApplier(
            self._container.database,
            self._container.identifiers,
            self._container.clock,
            faults=self._container.faults,
            durability=self._container.settings.database.durability,
            conclusion=self._conclude,
            home=self._container.home,
        )

    def _calls(self, fence: Fence | None) -> SqlCallStore:
        from cleveragents.plans.store.sql_plan_records import SqlCallStore

        return SqlCallStore(self._container.database, self._container.identifiers, fence=fence)

    def _conclude(self, connection: Connection, entry: JournalEntry, done: bool) -> None:
        """Update the plan's state in the transaction in which its apply or undo ends."""
        from cleveragents.core.errors import UnknownPlan
        from cleveragents.plans.model.plan import Phase, PlanState

        if not done:
            return  # the applying code reports the reason; after a crash, `PlanApply.settle` does
        state = PlanState.APPLIED if entry.kind == "apply" else PlanState.UNDONE
        plans = self._parts.plans
        with suppress(UnknownPlan):  # it was deleted while it was undone
            plan = plans.get_in(connection, entry.plan_id)
            plans.move_in(connection, plan, (Phase.APPLY, state), now=self._container.clock.now())
