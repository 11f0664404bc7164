"""Orphans of sandboxes: incomplete sandboxes, sandboxes without their plan, and refs in the user's
repositories.

A repository may also hold refs of another state directory. A ref is removed only if the audit log shows that
its plan was created in this state directory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.cli.doctor.orphans import NotRemoved, Orphan
from cleveragents.cli.doctor.plan_orphans import all_plans
from cleveragents.core.errors import SandboxBusy, SandboxMissing, UnknownPlan
from cleveragents.core.event import EventType
from cleveragents.plans.model.plan import Plan, PlanState

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.sandboxes.orphans import SandboxOrphan
    from cleveragents.sandboxes.registry import SandboxRegistry
    from cleveragents.sandboxes.rows import SandboxRow

__all__ = ["lost_refs", "lost_sandboxes"]

# Applied plans are not in this list: undo needs their sandbox.
_GIVEN_UP = (PlanState.REJECTED, PlanState.CANCELLED, PlanState.UNDONE)
_MADE_HERE = (EventType.PLAN_CREATED.value, EventType.SANDBOX_CREATED.value)


def lost_sandboxes(container: Container) -> Sequence[Orphan]:
    """Return sandboxes that are incomplete, unknown, or without their plan."""
    registry = container.plan_parts.sandboxes
    rows = {row.plan_id: row for row in registry.rows()}
    fixes = _SandboxFixes(container, registry)
    found: list[Orphan] = []
    damaged = registry.leftovers()
    for left in damaged:
        what = f"the sandbox of plan {left.plan_id}: {left.reason}"
        precious = _is_precious(container, rows.get(left.plan_id))
        if left.removable and not precious:
            found.append(Orphan(what, partial(fixes.fix, left)))
        else:
            found.append(Orphan(what, advice=precious or f"{left.location}: {left.advice}"))
    told = {left.plan_id for left in damaged}
    for plan_id, row in rows.items():
        if plan_id not in told and _plan(container, plan_id) is None:
            what = f"the sandbox of plan {plan_id}: its plan is gone"
            advice = f"look at {row.directory / 'tree'}, then delete {row.directory}"
            found.append(Orphan(what, partial(_remove_clean, registry, row), advice))
    return found


class _SandboxFixes:
    """A wrapper of the sandbox registry for repairs. It refuses to remove sandboxes that contain work.

    The first call of `fix` repairs all sandboxes; each call returns a text about the repair of one sandbox.

    Not thread-safe: use it in the command that made it.
    """

    def __init__(self, container: Container, registry: SandboxRegistry) -> None:
        self._container = container
        self._registry = registry
        self._done: set[tuple[str, str]] | None = None

    @property
    def directory(self) -> Path:
        return self._registry.directory

    def rows(self) -> Sequence[SandboxRow]:
        return self._registry.rows()

    def taken_over(self) -> frozenset[str]:
        return self._registry.taken_over()

    def remove(self, plan_id: str) -> None:
        """Remove a sandbox. Raises `SandboxBusy` if it must stay."""
        if _is_precious(self._container, self._registry.row(plan_id)):  # guard: work stays
            raise SandboxBusy(plan_id)
        self._registry.remove(plan_id)

    def fix(self, left: SandboxOrphan) -> str:
        from cleveragents.sandboxes.orphans import remove_orphans

        if self._done is None:
            removed = remove_orphans(self, self._container.clock.now())
            self._done = {(one.kind, one.location) for one in removed}
        if (left.kind, left.location) not in self._done:
            return ""
        return f"removed the sandbox of plan {left.plan_id}: {left.reason}"


def _is_precious(container: Container, row: SandboxRow | None) -> str | None:
    """Return advice if a damaged sandbox must stay, because its missing part may come back; else None."""
    from cleveragents.sandboxes.facts import SandboxLayout
    from cleveragents.sandboxes.rows import READY

    if row is None or row.state != READY:
        return None  # incomplete: it holds no work, or its removal had begun
    if SandboxLayout(row.directory).tree.exists():
        return f"the files exist: look at {row.directory / 'tree'}, then delete {row.directory}"
    plan = _plan(container, row.plan_id)
    if plan is None or plan.state in _GIVEN_UP:
        return None
    return f"restore {row.directory}, or give the plan up with `agents plan delete {row.plan_id}`"


def _remove_clean(registry: SandboxRegistry, row: SandboxRow) -> str:
    try:
        changed = sorted(registry.open(row.plan_id).scan())
        if changed:  # guard: these changes exist nowhere else
            raise NotRemoved(f"the sandbox holds changes that exist nowhere else ({', '.join(changed[:3])})")
        registry.remove(row.plan_id)
    except SandboxBusy:
        raise NotRemoved("the sandbox is in use") from None
    except SandboxMissing:
        return ""
    return f"removed the sandbox of plan {row.plan_id}: its plan is gone, and it held no changes"


def lost_refs(container: Container) -> Sequence[Orphan]:
    """Return refs that keep the base of a missing sandbox, in the repositories of all plans."""
    registry = container.plan_parts.sandboxes
    resources = {Path(plan.resource) for plan in all_plans(container)}
    resources |= {row.resource for row in registry.rows()}
    pins = {
        (left.location, left.plan_id) for left in registry.leftovers(sorted(resources)) if left.kind == "pin"
    }
    return [left for location, plan_id in sorted(pins) for left in _lost_ref(container, location, plan_id)]


def _lost_ref(container: Container, location: str, plan_id: str) -> Iterator[Orphan]:
    from cleveragents.git.user_repository import unpin

    registry = container.plan_parts.sandboxes
    if registry.row(plan_id) is not None:
        return  # created since the survey
    if not _made_here(container, plan_id):
        what = f"refs/cleveragents/base/{plan_id} in {location} belongs to another state directory"
        yield Orphan(what, amiss=False)
        return

    def fix() -> str:
        plan = _plan(container, plan_id)
        at_work = plan is not None and plan.state.running
        if at_work or registry.row(plan_id) is not None:  # guard: the plan is about to create its sandbox
            raise NotRemoved("the plan runs again")
        unpin(Path(location), plan_id)
        return f"removed refs/cleveragents/base/{plan_id} from {location}"

    yield Orphan(f"refs/cleveragents/base/{plan_id} in {location}: its sandbox is gone", fix)


def _made_here(container: Container, plan_id: str) -> bool:
    """Return whether the plan was created in this state directory. The audit log also records plans that were
    deleted.
    """
    from sqlalchemy import select

    from cleveragents.storage.tables import events

    made = select(events.c.subject).where(events.c.subject == plan_id, events.c.event_type.in_(_MADE_HERE))
    with container.database.read() as connection:
        return connection.execute(made.limit(1)).first() is not None


def _plan(container: Container, plan_id: str) -> Plan | None:
    try:
        return container.plan_parts.plans.get(plan_id)
    except UnknownPlan:
        return None
