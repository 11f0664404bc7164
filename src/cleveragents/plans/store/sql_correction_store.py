"""Corrections on a database: each one transaction with what it supersedes and where its plan goes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, select, update

from cleveragents.core.decision import DecisionState
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.core.fence import Fence
from cleveragents.core.identifiers import IdentifierSource
from cleveragents.core.json_value import JsonValue
from cleveragents.jobs.store.fence import ensure_owned
from cleveragents.plans.model.correction import Correction, NewCorrection
from cleveragents.plans.model.plan import Plan, Standing
from cleveragents.plans.ports.plans import PlanFacts
from cleveragents.plans.store.plan_rows import encoded
from cleveragents.plans.store.sql_plan_store import SqlPlanStore
from cleveragents.storage.actor_tables import corrections, decisions
from cleveragents.storage.answers import Claim
from cleveragents.storage.claim_fence import keep_made
from cleveragents.storage.columns import kept_text, microseconds, moment
from cleveragents.storage.database import Database
from cleveragents.storage.outbox import append_to_outbox

__all__ = ["SqlCorrectionStore"]


class SqlCorrectionStore:
    """`CorrectionStore` on a `Database`. Stateless but for the database, so any thread may share it."""

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
        way: Sequence[Standing],
        facts: PlanFacts | None = None,
        *,
        now: datetime,
        fence: Fence | None = None,
        claim: Claim | None = None,
    ) -> tuple[Correction, Plan]:
        def unit(connection: Connection) -> tuple[Correction, Plan]:
            keep_made(connection, claim, plan.id)  # guard: a request that is repeated makes nothing twice
            ensure_owned(connection, fence)
            moved = plan
            for left, standing in zip(range(len(way), 0, -1), way, strict=True):
                # The first move holds the plan, so whoever numbers a correction is alone.
                said = facts if left == 1 else None
                moved = self._plans.move_in(connection, moved, standing, said, now=now)
            kept = Correction(plan.id, _next_number(connection, plan.id), made, now)
            connection.execute(corrections.insert(), _correction_row(kept))
            self._tell(connection, EventType.PLAN_CORRECTED, kept, **_told(kept))
            for number in self._superseded(connection, kept):
                self._tell(connection, EventType.DECISION_SUPERSEDED, kept, number=number)
            return _correction(_correction_row(kept)), moved

        return self._database.write(unit)

    def of_plan(self, plan_id: str) -> Sequence[Correction]:
        wanted = select(corrections).where(corrections.c.plan_id == plan_id).order_by(corrections.c.number)
        with self._database.read() as connection:
            return [_correction(row) for row in connection.execute(wanted).mappings()]

    def _superseded(self, connection: Connection, kept: Correction) -> Sequence[int]:
        """The decisions that hold until now, and from now on no longer."""
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


def _told(kept: Correction) -> dict[str, JsonValue]:
    made = kept.made
    return {
        "decision": made.decision,
        "superseded": list(made.superseded),
        "checkpoint": made.checkpoint,
        "by_itself": made.by_itself,
    }


def _correction_row(kept: Correction) -> dict[str, Any]:
    made = kept.made
    return {
        "plan_id": kept.plan_id,
        "number": kept.number,
        "decision": made.decision,
        "guidance": kept_text(made.guidance),
        "superseded": encoded(list(made.superseded)),
        "checkpoint": made.checkpoint,
        "outcome": made.outcome,
        "by_itself": made.by_itself,
        "created_at": microseconds(kept.created_at),
    }


def _correction(row: Mapping[Any, Any]) -> Correction:
    made = NewCorrection(
        guidance=row["guidance"],
        decision=row["decision"],
        superseded=tuple(json.loads(row["superseded"])),
        checkpoint=row["checkpoint"],
        outcome=row["outcome"],
        by_itself=bool(row["by_itself"]),
    )
    return Correction(row["plan_id"], row["number"], made, moment(row["created_at"]))
