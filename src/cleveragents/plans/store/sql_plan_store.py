"""Plans in a database: every move is one transaction, with its event in the outbox.

A move names the version that its caller read. PostgreSQL locks the row while the move is decided; on SQLite
the transaction is the only writer. So of two callers with the same version, one succeeds, and the other finds
a newer version.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace
from sqlalchemy import Connection, bindparam, delete, func, or_, select, update

from cleveragents.access.store.sql_project_store import hold_project
from cleveragents.core.errors import AmbiguousPlan, PlanError, Remedy, StalePlan, TreeTooLarge, UnknownPlan
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.core.json_value import FrozenObject, JsonValue
from cleveragents.core.policy import weaker
from cleveragents.jobs.store.rows import ensure_owned
from cleveragents.plans.model.plan import (
    Phase,
    PhaseState,
    Plan,
    PlanState,
    ensure_plan_move,
    phase_state_text,
)
from cleveragents.plans.model.usage_wait import is_parked
from cleveragents.plans.ports.plans import PlanDraft, PlanFacts, TreeLimits
from cleveragents.plans.store.plan_rows import encoded, plan_of, plan_row
from cleveragents.storage.actor_tables import (
    budgets,
    comment_answers,
    comments,
    corrections,
    decisions,
    graph_checkpoints,
    graph_values,
    graph_writes,
    model_calls,
)
from cleveragents.storage.columns import ensure_storable, is_storable
from cleveragents.storage.outbox import append_to_outbox
from cleveragents.storage.service_tables import (
    contents,
    deleted_plans,
    plan_output,
    remote_bases,
)
from cleveragents.storage.sql_idempotency_store import keep_made
from cleveragents.storage.tables import (
    applies,
    approval_rules,
    change_entries,
    changesets,
    check_runs,
    events,
    outbox,
    plans,
    reviews,
    tool_calls,
)

if TYPE_CHECKING:
    from cleveragents.access.model.user import ProjectScope
    from cleveragents.core.identifiers import Fence, IdentifierSource
    from cleveragents.storage.database import Database
    from cleveragents.storage.idempotency import IdempotencyClaim

__all__ = ["InTransaction", "SqlPlanStore"]

InTransaction = Callable[[Connection], None]
"""Writes of another store in the transaction of a move."""

_BY_ID = select(plans).where(plans.c.id == bindparam("plan_id"))
_LISTED = select(*(column for column in plans.columns if column.name != "answer"))
_HELD_BY_ID = _BY_ID.with_for_update()
_CHILDREN = select(plans).where(plans.c.parent_id == bindparam("plan_id")).order_by(plans.c.number)
_CHANGED = (
    *("phase", "state", "version", "strategy", "waiting_for", "error", "job_id", "updated_at"),
    *("isolation", "answer"),
)
_MOVE = (
    update(plans)
    .where(plans.c.id == bindparam("plan_id"))
    .values({name: bindparam(name) for name in _CHANGED})
)
_UNFINISHED = select(applies.c.id).where(
    applies.c.plan_id == bindparam("plan_id"), applies.c.ended_at.is_(None)
)
_ID_LENGTH = 26  # of a ULID
_LONGEST_ID = 64


class SqlPlanStore:
    """Plans. Every method is atomic across threads and processes, and stores its event, too. Its only state
    is the database, so any thread may share it.
    """

    def __init__(self, database: Database, identifiers: IdentifierSource) -> None:
        self._database = database
        self._identifiers = identifiers

    def create(self, new: PlanDraft, *, now: datetime, claim: IdempotencyClaim | None = None) -> Plan:
        """Create a plan at `action/queued`; with a claim, as the result of that request. Raises
        `UnknownProject`; `RequestUnderWay` and creates nothing if another request took the claim over.
        """
        plan_id = self._identifiers.new()
        wanted = _begun(plan_id, new, now)

        def unit(connection: Connection) -> Plan:
            keep_made(connection, claim, plan_id)  # guard: a repeated request creates nothing twice
            hold_project(connection, wanted.project)  # guard: no plan is left without its project
            return self._inserted(connection, wanted, now)

        return self._database.write(unit)

    def spawn(
        self, parent: Plan, new: PlanDraft, key: str, limits: TreeLimits, *, now: datetime, fence: Fence
    ) -> Plan:
        """Create a sub-plan at `action/queued`, or return the existing sub-plan with this key.

        The limits are checked in the same transaction: raises `TreeTooLarge`. The parent must be running
        under the fence of its job: raises `StalePlan`, `StaleFence`.
        """
        child_id = self._identifiers.new()

        def unit(connection: Connection) -> Plan:
            ensure_owned(connection, fence)
            held = _held(connection, parent)
            rows = connection.execute(_CHILDREN, {"plan_id": held.id}).mappings().all()
            known = next((plan_of(row) for row in rows if row["key"] == key), None)
            if known is not None:  # guard: a repeated run spawns nothing twice
                return known
            if not held.state.running:  # guard: a stopped plan spawns no more
                raise StalePlan(held.id, held.version)
            _ensure_room(held, len(rows), limits)
            child = replace(
                _begun(child_id, new, now),
                parent_id=held.id,
                root_id=held.root,
                depth=held.depth + 1,
                key=key,
                project=held.project,
            )
            spawned = self._inserted(connection, child, now)
            event = self._event(EventType.PLAN_SPAWNED, held, now, child=spawned.id, key=key)
            append_to_outbox(connection, event)
            return spawned

        return self._database.write(unit)

    def children(self, plan_id: str) -> Sequence[Plan]:
        """Return the sub-plans of the plan, in order of creation."""

        def load(connection: Connection) -> Sequence[Plan]:
            return [plan_of(row) for row in connection.execute(_CHILDREN, {"plan_id": plan_id}).mappings()]

        return self._database.read_shared(("children", plan_id), load)

    def children_of(self, plan_ids: Collection[str]) -> Mapping[str, Sequence[Plan]]:
        """Return the sub-plans of each of these plans that has any, in one query."""
        query = select(plans).where(plans.c.parent_id.in_(plan_ids)).order_by(plans.c.number)
        found: dict[str, list[Plan]] = {}
        with self._database.read() as connection:
            for row in connection.execute(query).mappings():
                found.setdefault(row["parent_id"], []).append(plan_of(row))
        return found

    def _inserted(self, connection: Connection, wanted: Plan, now: datetime) -> Plan:
        row = plan_row(wanted)
        # Return what any other process will read.
        plan = plan_of(row)
        connection.execute(plans.insert(), row)
        facts: dict[str, JsonValue] = {"action": plan.action}
        if plan.parent_id is not None:
            facts["parent"] = plan.parent_id
        append_to_outbox(connection, self._event(EventType.PLAN_CREATED, plan, now, **facts))
        return plan

    def get(self, plan_id: str) -> Plan:
        """Return the plan. Raises `UnknownPlan`."""
        if not is_storable(plan_id):
            raise UnknownPlan(plan_id)
        with self._database.read() as connection:
            return self.get_in(connection, plan_id)

    def get_in(self, connection: Connection, plan_id: str) -> Plan:
        """Return the plan as part of the current transaction."""
        row = connection.execute(_BY_ID, {"plan_id": plan_id}).mappings().first()
        if row is None:
            raise UnknownPlan(plan_id)
        return plan_of(row)

    def find(self, beginning: str, *, scope: ProjectScope = None) -> Plan:
        """Return the only plan in the projects of `scope` whose id begins or ends with `beginning`. Raises
        `UnknownPlan`, `AmbiguousPlan`.
        """
        if not beginning.isalnum() or not beginning.isascii() or len(beginning) > _LONGEST_ID:
            raise UnknownPlan(beginning)
        wanted = beginning.upper()
        abbreviated = or_(plans.c.id.like(f"{wanted}%"), plans.c.id.like(f"%{wanted}"))
        # Only an abbreviation needs a search through all plans.
        matching = abbreviated if len(wanted) < _ID_LENGTH else plans.c.id == wanted
        query = select(plans).where(matching).order_by(plans.c.id).limit(6)
        if scope is not None:  # guard: plans of other projects are not named, even as ambiguous
            query = query.where(plans.c.project.in_(scope))
        with self._database.read() as connection:
            found = [plan_of(row) for row in connection.execute(query).mappings()]
        if not found:
            raise UnknownPlan(beginning)
        if len(found) > 1:
            raise AmbiguousPlan(beginning, tuple(plan.id for plan in found))
        return found[0]

    def list(
        self,
        *,
        states: Collection[PlanState] = (),
        resource: str | None = None,
        limit: int = 100,
        after: str | None = None,
        newest_first: bool = False,
        scope: ProjectScope = None,
    ) -> Sequence[Plan]:
        """Return up to `limit` plans in the projects of `scope`, ordered by id, that come after the id
        `after`, in any of `states` (empty: all). The plans are returned without their answers, which may be
        long.
        """
        ensure_storable("a list of plans", {"after": after})
        query = _LISTED.order_by(plans.c.id.desc() if newest_first else plans.c.id).limit(limit)
        if states:
            query = query.where(plans.c.state.in_([state.value for state in states]))
        if resource is not None:
            query = query.where(plans.c.resource == encoded(resource))
        if scope is not None:
            query = query.where(plans.c.project.in_(scope))
        if after is not None:
            query = query.where(plans.c.id < after if newest_first else plans.c.id > after)
        with self._database.read() as connection:
            return [plan_of(row) for row in connection.execute(query).mappings()]

    def counts(self, *, scope: ProjectScope = None) -> Mapping[PhaseState, int]:
        """Return the number of plans in each phase and state, in the projects of `scope`,
        without sub-plans.
        """
        query = select(plans.c.phase, plans.c.state, func.count()).where(plans.c.parent_id.is_(None))
        if scope is not None:
            query = query.where(plans.c.project.in_(scope))
        with self._database.read() as connection:
            rows = connection.execute(query.group_by(plans.c.phase, plans.c.state)).all()
        return {(Phase(phase), PlanState(state)): number for phase, state, number in rows}

    def has_waited(self, plan_id: str) -> bool:
        """Return whether the plan has ever waited and then continued."""
        waited = f"/{PlanState.WAITING.value}"
        return any(
            str(facts.get("was")).endswith(waited) for facts in self._facts(plan_id, EventType.PLAN_MOVED)
        )

    def published(self, plan_id: str) -> Sequence[Mapping[str, JsonValue]]:
        """Return the `branch`, the `remote` and the `commit` of each publish of the plan, oldest first."""
        return self._facts(plan_id, EventType.PLAN_PUBLISHED)

    def _facts(self, plan_id: str, kind: EventType) -> Sequence[Mapping[str, JsonValue]]:
        """Return the facts of the plan's events of this kind, oldest first; some may be listed twice."""
        with self._database.read() as connection:
            queued, logged = (
                [
                    json.loads(payload)
                    for payload in connection.execute(
                        select(table.c.payload)
                        .where(table.c.subject == plan_id, table.c.event_type == kind.value)
                        .order_by(number)
                    ).scalars()
                ]
                # In this order: an event that is sequenced meanwhile is read twice, not never.
                for table, number in ((outbox, outbox.c.number), (events, events.c.position))
            )
        return [*logged, *queued]

    def move(
        self,
        plan: Plan,
        wanted: PhaseState,
        facts: PlanFacts | None = None,
        *,
        now: datetime,
        fence: Fence | None = None,
        also: InTransaction | None = None,
    ) -> Plan:
        """Move the plan to a new phase and state, if nothing moved it since `plan` was read.

        With a `fence`, the job must still belong to the caller. `also` is done in the same transaction.

        Raises `IllegalPlanMove`; `StalePlan` if the plan moved since it was read; `StaleFence` if the job has
        another owner. If an error is raised, nothing has changed.
        """

        def unit(connection: Connection) -> Plan:
            ensure_owned(connection, fence)
            moved = self.move_in(connection, plan, wanted, facts, now=now)
            if also is not None:
                also(connection)
            return moved

        return self._database.write(unit)

    def move_in(
        self,
        connection: Connection,
        plan: Plan,
        wanted: PhaseState,
        facts: PlanFacts | None = None,
        *,
        now: datetime,
    ) -> Plan:
        """Move the plan as part of the current transaction."""
        facts = facts or PlanFacts()
        held = _held(connection, plan)
        ensure_plan_move(held.id, held.phase_state, wanted)
        wanted_plan = replace(
            held,
            phase=wanted[0],
            state=wanted[1],
            version=held.version + 1,
            strategy=held.strategy if facts.strategy is None else facts.strategy,
            waiting_for=facts.waiting_for,
            error=facts.error,
            job_id=held.job_id if facts.job_id is None else facts.job_id or None,
            updated_at=now,
            isolation=weaker(held.isolation, facts.isolation),
            answer=held.answer if facts.answer is None else facts.answer or None,
        )
        row = plan_row(wanted_plan)
        moved = plan_of(row)
        connection.execute(_MOVE, {"plan_id": held.id} | {name: row[name] for name in _CHANGED})
        was = phase_state_text(held.phase_state)
        append_to_outbox(connection, self._event(EventType.PLAN_MOVED, moved, now, was=was))
        return moved

    def assign_queue(self, plan: Plan, queue: str | None, *, now: datetime) -> Plan:
        """Let the workers of this queue continue a root plan and its sub-plans from now on; without a queue,
        commands continue them. Raises `StalePlan` if the plan moved since it was read.
        """

        def unit(connection: Connection) -> Plan:
            held = _held(connection, plan)
            others = {name: value for name, value in held.request.items() if name != "queue"}
            request = FrozenObject(others if queue is None else {**others, "queue": queue})
            # A new version: a command that read the plan before cannot queue it elsewhere.
            shared = replace(held, request=request, version=held.version + 1, updated_at=now)
            row = plan_row(shared)
            changed = {name: row[name] for name in ("request", "version", "updated_at")}
            connection.execute(update(plans).where(plans.c.id == held.id).values(changed))
            facts = {"was": phase_state_text(held.phase_state)}
            append_to_outbox(connection, self._event(EventType.PLAN_MOVED, shared, now, **facts))
            return shared

        return self._database.write(unit)

    def delete(self, plan: Plan, *, now: datetime, claim: IdempotencyClaim | None = None) -> None:
        """Delete the plan, its sub-plans and all their records except the audit log. With a claim, also
        remove the plan as the stored result of that request.

        Raises `RequestUnderWay` if another request took the claim over; `StalePlan`; `PlanError` while one of
        the plans runs.
        """

        def unit(connection: Connection) -> None:
            keep_made(connection, claim, None)
            for held in (_held(connection, plan), *_held_below(connection, plan.id)):
                self._forget(connection, held, now)

        self._database.write(unit)

    def _forget(self, connection: Connection, held: Plan, now: datetime) -> None:
        if connection.execute(
            _UNFINISHED, {"plan_id": held.id}
        ).first():  # guard: only the plan can end its apply
            finish = Remedy("doctor", options={"fix": True}, text="Finish it")
            force = Remedy(
                "plan.delete", held.id, {"force": True}, "Delete the plan and keep the files as they are"
            )
            raise PlanError(held.id, "an apply or undo was interrupted", (finish, force))
        of_plan = select(changesets.c.id).where(changesets.c.plan_id == held.id)
        # Lock them first: a running record finishes, and then its entry is deleted too.
        connection.execute(of_plan.order_by(changesets.c.id).with_for_update()).all()
        connection.execute(delete(change_entries).where(change_entries.c.changeset_id.in_(of_plan)))
        # The row of a sandbox stays as long as its directory: it is needed to find and remove that.
        for table in (
            changesets,
            tool_calls,
            check_runs,
            reviews,
            applies,
            decisions,
            corrections,
            comments,
            comment_answers,
            model_calls,
            plan_output,
            remote_bases,
        ):
            connection.execute(delete(table).where(table.c.plan_id == held.id))
        for of_tree in (approval_rules, budgets, contents):
            connection.execute(delete(of_tree).where(of_tree.c.root_id == held.id))
        for table in (graph_checkpoints, graph_values, graph_writes):
            # The graphs of a plan have threads below its id; `0` is the character after `/`.
            ours = table.c.thread_id >= f"{held.id}/", table.c.thread_id < f"{held.id}0"
            connection.execute(delete(table).where(*ours))
        connection.execute(delete(plans).where(plans.c.id == held.id))
        connection.execute(deleted_plans.insert(), {"id": held.id, "project": held.project})
        append_to_outbox(connection, self._event(EventType.PLAN_DELETED, held, now))

    def _event(self, kind: EventType, plan: Plan, now: datetime, **facts: JsonValue) -> DomainEvent:
        told: dict[str, JsonValue] = {"phase": plan.phase.value, "state": plan.state.value, **facts}
        return DomainEvent(kind, plan.id, self._identifiers.new(), now, told)


def _begun(plan_id: str, new: PlanDraft, now: datetime) -> Plan:
    return Plan(
        id=plan_id,
        goal=new.goal,
        action=new.action,
        resource=new.resource,
        phase=Phase.ACTION,
        state=PlanState.QUEUED,
        version=1,
        created_at=now,
        updated_at=now,
        request=new.request,
        root_id=plan_id,
        project=new.project,
    )


def _ensure_room(parent: Plan, children: int, limits: TreeLimits) -> None:
    """Raise `TreeTooLarge` if another sub-plan would exceed the limits."""
    if parent.depth + 1 > limits.depth:
        raise TreeTooLarge(
            parent.id,
            f"a sub-plan would exceed the depth limit of {limits.depth} (plan.max_depth)",
        )
    if children >= limits.fan_out:  # guard: counted in the transaction that adds one
        raise TreeTooLarge(
            parent.id, f"the limit of {limits.fan_out} sub-plans is reached (plan.max_fan_out)"
        )


def _held_below(connection: Connection, plan_id: str) -> list[Plan]:
    """Lock and return all plans below this plan. Raises `PlanError` if one of them runs."""
    found: list[Plan] = []
    for row in connection.execute(_CHILDREN.with_for_update(), {"plan_id": plan_id}).mappings().all():
        child = plan_of(row)
        if child.state.running or is_parked(child):  # guard: no worker runs a deleted plan
            doing = "running" if child.state.running else "waiting for a usage limit"
            raise PlanError(plan_id, f"sub-plan {child.id} is {doing}; cancel it first")
        found += [child, *_held_below(connection, child.id)]
    return found


def _held(connection: Connection, plan: Plan) -> Plan:
    """Lock and return the plan until the end of the transaction."""
    row = connection.execute(_HELD_BY_ID, {"plan_id": plan.id}).mappings().first()
    if row is None:
        raise UnknownPlan(plan.id)
    held = plan_of(row)
    if held.version != plan.version:  # guard: the decision was about an earlier version
        raise StalePlan(plan.id, plan.version)
    return held
