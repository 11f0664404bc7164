"""Decisions and corrections in a database.

A correction is stored in one transaction with the decisions it supersedes and the moves of its plan.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from sqlalchemy import Connection, func, select, update

from cleveragents.core.decision import Alternative, Decision, DecisionState, NewDecision
from cleveragents.core.errors import UnknownPlan
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.core.json_value import JsonValue, freeze
from cleveragents.core.records import facts_of, record_of
from cleveragents.jobs.store.rows import ensure_owned
from cleveragents.plans.model.correction import Correction, NewCorrection, taken_back_of
from cleveragents.plans.store.plan_rows import encoded, plan_of
from cleveragents.plans.store.sql_plan_records import SqlCallStore
from cleveragents.plans.store.sql_plan_store import SqlPlanStore
from cleveragents.storage.actor_tables import comments, corrections, decisions
from cleveragents.storage.columns import kept_text, microseconds
from cleveragents.storage.outbox import append_to_outbox
from cleveragents.storage.rows import record_in, row_of
from cleveragents.storage.sql_idempotency_store import keep_made
from cleveragents.storage.tables import plans

if TYPE_CHECKING:
    from cleveragents.core.identifiers import Fence, IdentifierSource
    from cleveragents.plans.model.plan import PhaseState, Plan
    from cleveragents.plans.ports.plans import PlanFacts
    from cleveragents.storage.database import Database
    from cleveragents.storage.idempotency import IdempotencyClaim

__all__ = ["SqlCorrectionStore", "SqlDecisionStore", "hold_plan"]


class SqlDecisionStore:
    """`DecisionStore` on a `Database`. Has no other state, so any thread may share it."""

    def __init__(self, database: Database, identifiers: IdentifierSource) -> None:
        self._database = database
        self._identifiers = identifiers

    def add(
        self, plan_id: str, made: Sequence[NewDecision], *, key: str, now: datetime
    ) -> Sequence[Decision]:
        def unit(connection: Connection) -> Sequence[Decision]:
            hold_plan(connection, plan_id)
            earlier = _of_plan(connection, plan_id, decisions.c.key == key)
            if earlier:  # guard: a repeated run decides nothing twice
                return earlier
            last = select(func.coalesce(func.max(decisions.c.number), 0)).where(
                decisions.c.plan_id == plan_id
            )
            first = int(connection.execute(last).scalar_one()) + 1
            kept = [
                Decision(plan_id, number, decision, DecisionState.ACTIVE, now)
                for number, decision in enumerate(made, start=first)
            ]
            for decision in kept:
                connection.execute(decisions.insert(), _row(decision, key))
                append_to_outbox(connection, self._event(decision, now))
            return kept

        return self._database.write(unit)

    def of_plan(self, plan_id: str) -> Sequence[Decision]:
        with self._database.read() as connection:
            found = _of_plan(connection, plan_id)
        at_work = [
            int(one.made.checkpoint)
            for one in found
            if one.state is DecisionState.ACTIVE and one.made.checkpoint is not None
        ]
        if not at_work:
            return found
        rewrites = SqlCallStore(self._database, self._identifiers).of_step(plan_id, None)
        gone = taken_back_of(at_work, rewrites)
        # Computed instead of stored: it takes effect with the rollback, and ends if that is undone.
        return [
            replace(one, state=DecisionState.SUPERSEDED) if one.made.checkpoint in gone else one
            for one in found
        ]

    def _event(self, decision: Decision, now: datetime) -> DomainEvent:
        facts: dict[str, JsonValue] = {"number": decision.number, "made_by": decision.made.made_by}
        return DomainEvent(EventType.DECISION_MADE, decision.plan_id, self._identifiers.new(), now, facts)


def hold_plan(connection: Connection, plan_id: str) -> Plan:
    """Lock and return the plan, so that concurrent transactions number its records one after the other.
    Raises `UnknownPlan`.
    """
    held = select(plans).where(plans.c.id == plan_id).with_for_update()
    row = connection.execute(held).mappings().first()
    if row is None:  # guard: nothing is stored for a deleted plan
        raise UnknownPlan(plan_id)
    return plan_of(row)


def _of_plan(connection: Connection, plan_id: str, *conditions: Any) -> list[Decision]:
    wanted = select(decisions).where(decisions.c.plan_id == plan_id, *conditions).order_by(decisions.c.number)
    return [_decision(row) for row in connection.execute(wanted).mappings()]


def _row(decision: Decision, key: str) -> dict[str, Any]:
    made = decision.made
    return row_of(
        made,
        plan_id=decision.plan_id,
        number=decision.number,
        key=key,
        question=kept_text(made.question),
        choice=kept_text(made.choice),
        rationale=kept_text(made.rationale),
        alternatives=encoded([facts_of(each) for each in made.alternatives]),
        made_by=kept_text(made.made_by),
        context=None if made.context is None else encoded(made.context),
        state=decision.state.value,
        created_at=microseconds(decision.created_at),
    )


def _decision(row: Mapping[Any, Any]) -> Decision:
    made = record_in(
        NewDecision,
        row,
        alternatives=tuple(record_of(Alternative, each) for each in json.loads(row["alternatives"])),
        context=None if row["context"] is None else freeze(json.loads(row["context"])),
    )
    return record_in(Decision, row, made=made)


class SqlCorrectionStore:
    """Corrections of plans, numbered from 1 without a gap. Every method is atomic, with its events. Its only
    state is the database, so any thread may share it.
    """

    def __init__(
        self, database: Database, identifiers: IdentifierSource, plans: SqlPlanStore | None = None
    ) -> None:
        self._database = database
        self._identifiers = identifiers
        self._plans = plans or SqlPlanStore(database, identifiers)

    def add(
        self,
        plan: Plan,
        made: NewCorrection,
        way: Sequence[PhaseState],
        facts: PlanFacts | None = None,
        *,
        now: datetime,
        fence: Fence | None = None,
        claim: IdempotencyClaim | None = None,
        sent: Sequence[int] = (),
    ) -> tuple[Correction, Plan]:
        """Store the correction, mark the superseded decisions and the comments in `sent`, which it sends to
        the executor, and move the plan through the states in `way`, in one transaction. The last move stores
        `facts`. So a plan never continues with superseded decisions, and a comment is marked if and only if
        it was sent.

        Like `SqlPlanStore.move`, raises `UnknownPlan`, `StalePlan`, `IllegalPlanMove` and `StaleFence`. With
        a claim, the correction is stored as the result of that request; raises `RequestUnderWay` if another
        request took over the claim. If an error is raised, nothing has changed.
        """

        def unit(connection: Connection) -> tuple[Correction, Plan]:
            keep_made(connection, claim, plan.id)  # guard: a repeated request creates nothing twice
            ensure_owned(connection, fence)
            moved = plan
            for left, phase_state in zip(range(len(way), 0, -1), way, strict=True):
                # The first move locks the plan, so corrections are numbered one at a time.
                said = facts if left == 1 else None
                moved = self._plans.move_in(connection, moved, phase_state, said, now=now)
            kept = Correction(plan.id, _next_number(connection, plan.id), made, now)
            connection.execute(corrections.insert(), _correction_row(kept))
            _mark_sent(connection, kept, sent)
            self._tell(connection, EventType.PLAN_CORRECTED, kept, **_told(kept, sent))
            for number in self._superseded(connection, kept):
                self._tell(connection, EventType.DECISION_SUPERSEDED, kept, number=number)
            return _correction(_correction_row(kept)), moved

        return self._database.write(unit)

    def of_plan(self, plan_id: str) -> Sequence[Correction]:
        """Return all corrections, by number."""
        wanted = select(corrections).where(corrections.c.plan_id == plan_id).order_by(corrections.c.number)
        with self._database.read() as connection:
            return [_correction(row) for row in connection.execute(wanted).mappings()]

    def _superseded(self, connection: Connection, kept: Correction) -> Sequence[int]:
        """Mark the decisions as superseded; return the numbers of those that were still valid."""
        held = (
            decisions.c.plan_id == kept.plan_id,
            decisions.c.number.in_(kept.made.superseded),
            decisions.c.state == DecisionState.ACTIVE.value,
        )
        numbers = connection.execute(select(decisions.c.number).where(*held).order_by(decisions.c.number))
        found = [int(number) for number in numbers.scalars()]
        connection.execute(update(decisions).where(*held).values(state=DecisionState.SUPERSEDED.value))
        return found

    def _tell(self, connection: Connection, kind: EventType, kept: Correction, **facts: JsonValue) -> None:
        told: dict[str, JsonValue] = {"correction": kept.number, **facts}
        event = DomainEvent(kind, kept.plan_id, self._identifiers.new(), kept.created_at, told)
        append_to_outbox(connection, event)


def _next_number(connection: Connection, plan_id: str) -> int:
    last = select(func.coalesce(func.max(corrections.c.number), 0)).where(corrections.c.plan_id == plan_id)
    return int(connection.execute(last).scalar_one()) + 1


def _mark_sent(connection: Connection, kept: Correction, sent: Sequence[int]) -> None:
    theirs = comments.c.plan_id == kept.plan_id, comments.c.number.in_(sent)
    if sent:
        connection.execute(update(comments).where(*theirs).values(batch=kept.number))


def _told(kept: Correction, sent: Sequence[int]) -> dict[str, JsonValue]:
    made = kept.made
    told: dict[str, JsonValue] = {
        "decision": made.decision,
        "superseded": list(made.superseded),
        "checkpoint": made.checkpoint,
        "by_itself": made.by_itself,
    }
    return {**told, "comments": list(sent)} if sent else told


def _correction_row(kept: Correction) -> dict[str, Any]:
    return row_of(
        kept.made,
        plan_id=kept.plan_id,
        number=kept.number,
        guidance=kept_text(kept.made.guidance),
        superseded=encoded(kept.made.superseded),
        created_at=microseconds(kept.created_at),
    )


def _correction(row: Mapping[Any, Any]) -> Correction:
    superseded = tuple(json.loads(row["superseded"]))
    made = record_in(NewCorrection, row, superseded=superseded, by_itself=bool(row["by_itself"]))
    return record_in(Correction, row, made=made)
