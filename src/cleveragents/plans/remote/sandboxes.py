"""Sandboxes of plans on remotes, rebuilt from the records if another machine has them.

A sandbox consists of the base, a commit of the remote, and the recorded changes, whose contents are in the
database. So if a machine dies with its sandboxes, the next worker of the plan builds its own sandbox and
continues. The changes of a call that was *ending* on the dead machine are lost, so the call counts as not
made, like a *started* call. The setup runs again, because its output is lost, too.

The base commit of a plan is determined once and is the same on every machine.

`RemoteSetup` sets up a copy of another machine's sandbox before checks run in it. The output of the setup is
ignored by git and therefore not recorded. The setup was approved when it first ran for the plan, so it runs
again without an approval and without a record.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Connection, insert, select

from cleveragents.access.model.project import SCHEME, RemoteAddress, ResourceKind, remote_of
from cleveragents.access.trust.repository_files import configured_paths
from cleveragents.changes.model.merge_conflict import REBASE, MergeOutcome
from cleveragents.core.change import GITLINK, differences_of
from cleveragents.core.errors import (
    CheckFailed,
    ConfigurationError,
    SandboxBusy,
    SandboxMissing,
    SandboxRefused,
)
from cleveragents.core.json_value import FrozenObject
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.git.git_directory import LooseObjects
from cleveragents.jobs.store.rows import ensure_owned
from cleveragents.plans.history import PlanHistory, named, restore_states
from cleveragents.plans.model.correction import RETRY
from cleveragents.plans.model.strategy import SETUP
from cleveragents.plans.remote.contents import SqlContents, ensure_kept
from cleveragents.processes.ports import Command, CommandRunner
from cleveragents.sandboxes.facts import SandboxLayout
from cleveragents.sandboxes.lock import locked
from cleveragents.sandboxes.ports import (
    Progress,
    SandboxRequest,
    SandboxStrategy,
    SetupInputs,
    StartTree,
)
from cleveragents.sandboxes.registry import SandboxRegistry
from cleveragents.sandboxes.rows import READY, SandboxRow
from cleveragents.storage.database import forget_reads
from cleveragents.storage.files.paths import remove_all
from cleveragents.storage.service_tables import remote_bases, resources
from cleveragents.storage.tables import plans

if TYPE_CHECKING:
    from cleveragents.access.trust.sql_trust_store import SqlTrustStore
    from cleveragents.changes.execution_context import ChangesetStore
    from cleveragents.core.actions.model import Setup
    from cleveragents.core.identifiers import Fence
    from cleveragents.plans.checks import CheckEnvironment
    from cleveragents.plans.model.plan import Plan
    from cleveragents.plans.store.sql_plan_records import SqlCallStore
    from cleveragents.sandboxes.git_sandbox import Sandbox
    from cleveragents.sandboxes.mirror import Mirrors
    from cleveragents.sandboxes.setup_cache import SetupCache
    from cleveragents.storage.database import Database

__all__ = ["PlanTakeover", "RemoteSandboxes", "RemoteSetup", "ResourceDirectories", "needed_remotes"]


_BUSY_SECONDS = 30.0
_AT_ONCE = 50
# A viewer waits for this; a remote that answers may need longer for its files.
_LOOK_SECONDS = 60.0

_BASE = select(remote_bases.c.base)
# Stored as JSON.
_OF_PLANS = select(plans.c.resource).distinct().where(plans.c.resource.startswith(f'"{SCHEME}'))
_OF_RESOURCES = select(resources.c.location).where(resources.c.kind == ResourceKind.REMOTE.value)


class _CallsOf(Protocol):
    def __call__(self, fence: Fence | None) -> SqlCallStore: ...


class ResourceDirectories(Struct, frozen=True):
    """Finds the directory of a plan's resource on this machine. Its state is the database and mirrors."""

    database: Database
    mirrors: Mirrors

    def of_plan(self, plan: Plan) -> Path:
        """Return the resource if it is a directory. For a remote, return a checkout of the commit that the
        plan started from; if none is recorded, of the branch as it is now. Raises `RemoteUnreachable`,
        `SandboxRefused`.
        """
        address = remote_of(plan.resource)
        if address is None:
            return Path(plan.resource)
        return self.mirrors.checkout(address, self.base(plan.root, address))

    def of_resource(self, resource: str) -> Path:
        """Return the directory of a resource without a plan; for a remote, a checkout of the branch now."""
        address = remote_of(resource)
        return (
            Path(resource)
            if address is None
            else self.mirrors.checkout(address, self.mirrors.fetched(address))
        )

    def base(self, root_id: str, address: RemoteAddress) -> str:
        """Return the commit that the plan and its sub-plans started from. Raises `UnknownPlan`."""
        known = self._known(root_id)
        if known is not None:
            return known
        tip = self.mirrors.fetched(address)

        def unit(connection: Connection) -> str:
            # A concurrent caller waits here and then finds the base.
            ensure_kept(connection, root_id)  # guard: otherwise nothing would ever delete it
            found: str | None = connection.execute(_BASE.where(remote_bases.c.plan_id == root_id)).scalar()
            if found is None:  # guard: one base for all machines
                connection.execute(insert(remote_bases), {"plan_id": root_id, "base": tip})
            return found or tip

        return self.database.write(unit)

    def _known(self, root_id: str) -> str | None:
        with self.database.read() as connection:
            found: str | None = connection.execute(_BASE.where(remote_bases.c.plan_id == root_id)).scalar()
        return found


class PlanTakeover(Struct, frozen=True):
    """The parts needed to continue a plan of another machine."""

    plan: Callable[[str], Plan]
    directories: ResourceDirectories
    contents: SqlContents
    changesets: ChangesetStore
    calls: _CallsOf
    trust: SqlTrustStore

    @property
    def history(self) -> PlanHistory:
        return PlanHistory(self.changesets, self.calls(None))


class RemoteSandboxes(SandboxRegistry):
    """`Sandboxes` of plans on directories and on remotes. Stateless, like the registry."""

    answer_seconds: ClassVar[float] = 5.0
    """How long a viewer waits for an answer of a remote."""

    def __init__(self, database: Database, directory: Path, take_over: PlanTakeover, **options: Any) -> None:
        super().__init__(database, directory, **options)
        self._take_over = take_over

    def open(self, plan_id: str, *, fence: Fence | None = None) -> Sandbox:
        row = self.row(plan_id)
        if row is None or row.remote is None or row.state != READY or self._is_ours(row):
            return super().open(plan_id)
        return self._looked_at(row) if fence is None else self._taken_over(row, fence)

    def look(self, plan_id: str) -> Sandbox:
        """Open the sandbox for a viewer. Waits for the remote for a shorter time than a plan does, then
        raises `RemoteUnreachable`.
        """
        row = self.row(plan_id)
        if row is not None and row.remote is not None and row.state == READY and not self._is_ours(row):
            self._ensure_answering(row)
        return self.open(plan_id)

    def create(self, request: SandboxRequest, *, progress: Progress | None = None) -> Sandbox:
        sandbox = super().create(request, progress=progress)
        if request.remote is not None and request.start is None and progress is not None:
            self._tell_ignored(request, progress)
        if request.fence is not None and self._take_over.history.has_changes(request.plan_id):
            # Its sandbox was removed, or lost with a machine that was about to create it again.
            with sandbox.writing(timeout_seconds=_BUSY_SECONDS):
                self._brought_up_to_date(sandbox, self._place(request.plan_id))
                self._take_calls_back(request.plan_id, request.fence)
        return sandbox

    def _tell_ignored(self, request: SandboxRequest, progress: Progress) -> None:
        """Report untrusted config, once per tree of plans."""
        ignored = [path for path in configured_paths(request.resource) if not self._counts(request, path)]
        if ignored:
            name = self._take_over.plan(request.plan_id).request.get("resource_name")
            of = f" for the resource {name}" if name else ""
            progress(
                f"untrusted repository config is ignored: {named(ignored)}; review it, then trust it{of}"
            )

    def _counts(self, request: SandboxRequest, path: str) -> bool:
        with suppress(ConfigurationError):  # a path that leads out of the repository never counts
            found = self._take_over.trust.look(request.resource, path)
            return found is not None and found.trusted
        return False

    def is_copy(self, plan_id: str) -> bool:
        """Return whether the plan's sandbox is on another machine. A local sandbox of the plan is then only a
        copy.
        """
        row = self.row(plan_id)
        return row is not None and not self._is_ours(row)

    def discard_copies(self, *, dry_run: bool = False) -> int:
        """Remove copies of other machines' sandboxes and unused checkouts, and return their number."""
        copies = [Path(left.location) for left in self.leftovers() if left.kind == "copy"]
        kept = [SandboxLayout(path) for path in self.directory.glob("*") if path not in copies]
        used = {row.resource for row in self.rows()}
        for place in kept:
            with suppress(SandboxMissing):
                used.add(Path(place.read_facts(place.directory.name).resource))
        mirrors = self._take_over.directories.mirrors
        checkouts = mirrors.unused(used)
        if not dry_run:
            for path in copies:
                with suppress(SandboxBusy, SandboxMissing):  # in use, or already removed
                    self.remove_copy(path)
            for path in checkouts:
                mirrors.discard(path)
        return len(copies) + len(checkouts)

    def remove_copy(self, path: Path) -> None:
        """Remove a copy. Raises `SandboxBusy` while it is in use."""
        with locked(SandboxLayout(path).lock, path.name):
            row = self.row(path.name)
            if row is None or not self._is_ours(row):  # guard: it may have become the plan's own
                remove_all(path)

    def _ensure_answering(self, row: SandboxRow) -> None:
        """Fetch the base for a view of the sandbox. Raises `RemoteUnreachable` after a short wait."""
        if self._complete(row, self._place(row.plan_id)) is not None:
            return
        directories, plan = self._take_over.directories, self._take_over.plan(row.plan_id)
        address = remote_of(plan.resource)
        if address is None:
            return
        mirrors = directories.mirrors
        if mirrors.value_of(address, directories.base(plan.root, address)) is None:
            replace(mirrors, seconds=self.answer_seconds).branches(address)
        replace(directories, mirrors=replace(mirrors, seconds=_LOOK_SECONDS)).of_plan(plan)

    def _origin(self, start: StartTree) -> tuple[SandboxStrategy, Sandbox]:
        row = self.row(start.plan_id)
        if row is None or self._is_ours(row):
            return super()._origin(start)
        sandbox = self.open(start.plan_id)
        self._remake(sandbox, start)
        return self._strategies[row.strategy], sandbox

    def _looked_at(self, row: SandboxRow) -> Sandbox:
        """Return a copy of the recorded state. The sandbox of the plan stays on its machine."""
        place = self._place(row.plan_id)
        sandbox = self._complete(row, place)
        if sandbox is None:
            with self._claimed(place, row.plan_id):
                sandbox = self._complete(row, place) or self._made(row, place, None)
        with sandbox.writing(timeout_seconds=_BUSY_SECONDS):
            now = self.row(row.plan_id)
            taken_over = now is not None and self._is_ours(now)
            if not taken_over:  # guard: a worker of this machine may use these files by now
                self._brought_up_to_date(sandbox, place)
        return super().open(row.plan_id) if taken_over else sandbox

    def _taken_over(self, row: SandboxRow, fence: Fence) -> Sandbox:
        place = self._place(row.plan_id)
        with self._claimed(place, row.plan_id):
            # Built from scratch: a process of an earlier attempt may still use the present one.
            sandbox = self._made(row, place, fence)
            self._brought_up_to_date(sandbox, place)
            self._take_calls_back(row.plan_id, fence)
            facts = place.read_facts(row.plan_id)
            ours = replace(row, directory=place.directory, resource=Path(facts.resource), home=self._home)
            self._ready(ours, facts.size_bytes, sandbox.base, fence)  # guard: last, when it is complete
        return sandbox

    def _complete(self, row: SandboxRow, place: SandboxLayout) -> Sandbox | None:
        with suppress(SandboxMissing):
            return self._strategies[row.strategy].open(row.plan_id, row.resource, place.directory)
        return None

    def _made(self, row: SandboxRow, place: SandboxLayout, fence: Fence | None) -> Sandbox:
        """Build the sandbox as it was when the plan started. The caller has locked `place`."""
        from cleveragents.plans.run import start_of  # imported late: viewers rarely need it

        plan = self._take_over.plan(row.plan_id)
        resource = self._take_over.directories.of_plan(plan)
        request = SandboxRequest(
            row.plan_id, resource, from_head=True, start=start_of(plan), remote=row.remote, fence=fence
        )
        strategy, origin = self._strategy_for(request)
        strategy.remove(row.plan_id, resource, place.directory)
        return strategy.create(request, place.directory, origin)

    def _brought_up_to_date(self, sandbox: Sandbox, place: SandboxLayout) -> None:
        """Bring the sandbox to the recorded state, with the contents of all recorded changes. The caller
        has locked `place`.
        """
        forget_reads()  # guard: files are never restored to what an earlier read of a view returned
        history = self._take_over.history
        changes = [change.entry for change in history.changes(sandbox.plan_id)]
        facts = place.read_facts(sandbox.plan_id)
        objects = LooseObjects(place.engine / "objects", facts.object_format, facts.durable)
        named = {one.after_hash for one in changes if one.after_hash is not None and one.mode != GITLINK}
        wanted = sorted(name for name in named if not objects.has(name))
        root_id = self._take_over.plan(sandbox.plan_id).root if wanted else ""
        for start in range(0, len(wanted), _AT_ONCE):
            portion = wanted[start : start + _AT_ONCE]
            found = self._take_over.contents.read(root_id, portion)
            for name in portion:
                if name not in found or objects.keep(found[name]) != name:
                    raise SandboxRefused(str(place.directory), f"content {name} is not in the database")
        self._remake_bases(sandbox)
        # guard: only the changes read above: a worker may have recorded more since
        restore_states(sandbox, {path: step.after for path, step in differences_of(changes).items()})

    def _remake_bases(self, sandbox: Sandbox) -> None:
        """Fetch or rebuild the trees of all rebases. A plan that was rebased starts from them. Raises
        `RemoteUnreachable`; `SandboxRefused` if the remote no longer has the commit.
        """
        plan_id, history = sandbox.plan_id, self._take_over.history
        done = (call for call in history.calls(plan_id) if call.tool == REBASE and call.result is not None)
        for call in done:
            outcome = MergeOutcome.of_call(call)
            address = remote_of(self._take_over.plan(plan_id).resource)
            if address is not None and not sandbox.keeps(outcome.theirs):
                self._take_over.directories.mirrors.fetch(address)
            if not sandbox.keeps(outcome.tree):
                changes = history.changes(plan_id)
                own = (n for n, one in enumerate(changes, start=1) if one.changeset_id == call.changeset_id)
                then = differences_of(one.entry for one in changes[: max(own, default=0)])
                sandbox.tree({path: step.after for path, step in then.items()})
            if call.state is CallState.ENDED and not sandbox.keeps(outcome.theirs):
                gone = "the remote no longer has the files that the plan was rebased onto"
                raise SandboxRefused(str(sandbox.root), gone)

    def _take_calls_back(self, plan_id: str, fence: Fence) -> None:
        """Mark the calls whose effects were lost with the other machine, so that they are made again."""
        for call in self._take_over.history.calls(plan_id):
            unrecorded = call.state is CallState.ENDING and not self._is_recorded(call, fence)
            remote_setup = call.step == SETUP and call.state in (CallState.ENDING, CallState.ENDED)
            if unrecorded or remote_setup:
                self._to_be_made_again(call, fence)

    def _is_recorded(self, call: ToolCall, fence: Fence) -> bool:
        """Return whether the changes of the call are recorded; if so, end the call."""
        if call.changeset_id is not None:
            self._database.write(lambda connection: ensure_owned(connection, fence))
            # Close it first: its own machine can record nothing more.
            if not self._take_over.changesets.close(call.changeset_id).length:
                return False
        state = CallState.ENDED if call.error is None else CallState.FAILED
        self._take_over.calls(fence).move(call, state, now=self._clock.now())
        return True

    def _to_be_made_again(self, call: ToolCall, fence: Fence) -> None:
        self._take_over.calls(fence).add(
            call.plan_id,
            RETRY,
            FrozenObject({"checkpoint": call.number}),
            step=None,
            state=CallState.ENDED,
            now=self._clock.now(),
        )

    def _remake(self, sandbox: Sandbox, start: StartTree) -> None:
        """Rebuild, from the records of its parent, the tree that a sub-plan started from."""
        if sandbox.keeps(start.tree):
            return
        entries = [change.entry for change in self._take_over.history.changes(start.plan_id)]
        for length in range(len(entries), -1, -1):
            then = differences_of(entries[:length])
            if sandbox.tree({path: step.after for path, step in then.items()}) == start.tree:
                return


def needed_remotes(database: Database) -> set[str]:
    """Return the addresses of all remotes that a plan in any state or a resource refers to."""
    with database.read() as connection:
        named = (remote_of(json.loads(text)) for text in connection.execute(_OF_PLANS).scalars())
        of_plans = {address.url for address in named if address is not None}
        return of_plans | set(connection.execute(_OF_RESOURCES).scalars())


class RemoteSetup(Struct, frozen=True):
    """Sets up copies of sandboxes. Stateless: any thread may share it."""

    sandboxes: RemoteSandboxes
    cache: SetupCache
    commands: Callable[[Path], CommandRunner]

    def __call__(self, setup: Setup, ground: CheckEnvironment, project: str) -> None:
        """Set up the sandbox if it is a copy; a plan's own sandbox is already set up. Raises `CheckFailed`,
        `Cancelled`.
        """
        if not self.sandboxes.is_copy(ground.plan_id):
            return
        sandbox = ground.sandbox
        furnished = sandbox.place.directory / "furnished"
        if furnished.exists():
            return
        with sandbox.writing(timeout_seconds=_BUSY_SECONDS):
            restore_states(sandbox, {})  # as it was when the setup ran for the plan
            runner, command = self.commands(ground.resource), _command(setup, ground)
            inputs = SetupInputs(project, setup.paths, runner.inputs_of(command))
            key = self.cache.key(inputs, sandbox.root)
            if key is None or not self.cache.take(key, sandbox.root, setup.paths):
                self._run(runner, command, ground)
            sandbox.count_as_set_up()  # guard: no check would see it
            restore_states(sandbox, ground.recorded)
            furnished.touch()

    def _run(self, runner: CommandRunner, command: Command, ground: CheckEnvironment) -> None:
        result = runner.run(command, ground.stop)
        ground.stop.raise_if_cancelled()
        if result.exit_code != 0:
            last = result.output.strip().rpartition("\n")[2]
            raise CheckFailed(ground.plan_id, "setup", f"failed on this machine: {last}")


def _command(setup: Setup, ground: CheckEnvironment) -> Command:
    return Command(
        argv=("/bin/sh", "-c", setup.command),
        root=ground.sandbox.root,
        directory=ground.sandbox.root,
        network=ground.network,
        readable=ground.sandbox.readable,
        markers=ground.markers or {},
        network_denied=ground.network_denied,
    )
