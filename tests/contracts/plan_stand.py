"""All that is kept of plans, on one database, and a look at every row of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import select

from cleveragents.changes.model.review import Review, ReviewKind
from cleveragents.changes.store.sql_changeset_store import SqlChangesetStore
from cleveragents.core.actions.model import CheckRun, CheckVerdict
from cleveragents.core.change import ChangeEntry, ChangeKind
from cleveragents.core.identifiers import UlidSource
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.ports.plans import PlanDraft
from cleveragents.plans.store.sql_plan_records import (
    SqlCallStore,
    SqlCheckStore,
    SqlReviewStore,
)
from cleveragents.plans.store.sql_plan_store import SqlPlanStore
from cleveragents.storage.database import Database
from cleveragents.storage.tables import METADATA, applies, outbox, sandboxes

__all__ = ["LATER", "NOW", "Identifiers", "PlanStand", "check"]

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(seconds=10)


@dataclass
class Identifiers:
    """ULIDs, except that `given` come first."""

    given: list[str] = field(default_factory=list)
    ulids: UlidSource = field(default_factory=UlidSource)

    def new(self) -> str:
        return self.given.pop(0) if self.given else self.ulids.new()


class PlanStand:
    """The stores on a database, and what is in it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.identifiers = Identifiers()
        self.plans = SqlPlanStore(database, self.identifiers)
        self.calls = SqlCallStore(database, self.identifiers)
        self.checks = SqlCheckStore(database, self.identifiers)
        self.reviews = SqlReviewStore(database, self.identifiers)
        self.changesets = SqlChangesetStore(database, self.identifiers)

    def plan(self, **of: Any) -> Plan:
        """A new plan."""
        return self.plans.create(PlanDraft(**{"goal": "g", "action": "a/b", "resource": "/r", **of}), now=NOW)

    def processing(self) -> Plan:
        """A plan whose Execute is under way."""
        plan = self.plan()
        for phase_state in (
            (Phase.STRATEGIZE, PlanState.QUEUED),
            (Phase.STRATEGIZE, PlanState.PROCESSING),
            (Phase.STRATEGIZE, PlanState.COMPLETE),
            (Phase.EXECUTE, PlanState.QUEUED),
            (Phase.EXECUTE, PlanState.PROCESSING),
        ):
            plan = self.plans.move(plan, phase_state, now=NOW)
        return plan

    def call(self, plan: Plan, state: CallState = CallState.STARTED) -> ToolCall:
        return self.calls.add(plan.id, "write", {"path": "f"}, step="1", state=state, now=NOW)

    def fill(self, plan: Plan) -> None:
        """Something of everything that belongs to a plan."""
        call = self.call(plan)
        changeset = self.changesets.start(plan.id)
        self.changesets.record(changeset, ChangeEntry(ChangeKind.CREATE, "f", after_hash="h"))
        self.calls.move(call, CallState.ENDED, changeset_id=changeset, now=NOW)
        self.checks.record(check(plan))
        self.reviews.set(Review(plan.id, ReviewKind.PATH, "f", accepted=False), now=NOW)
        apply = {
            "id": f"apply of {plan.id}", "plan_id": plan.id, "resource": "/r", "kind": "apply",
            "state": "done", "journal": "{}", "started_at": 0, "ended_at": 1,
        }  # fmt: skip
        self.database.write(lambda connection: connection.execute(applies.insert(), apply))

    def keep_sandbox(self, plan: Plan) -> None:
        row = {
            "plan_id": plan.id, "strategy": "s", "directory": "d", "state": "ready", "details": "{}",
            "created_at": 0,
        }  # fmt: skip
        self.database.write(lambda connection: connection.execute(sandboxes.insert(), row))

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of every table but that of projects, which always has one."""
        with self.database.read() as connection:
            return {
                name: sorted((tuple(row) for row in connection.execute(select(table))), key=repr)
                for name, table in METADATA.tables.items()
                if name != "projects"
            }

    def events(self) -> list[tuple[str, str, str]]:
        """Type, subject and payload of what was told, in order."""
        columns = select(outbox.c.event_type, outbox.c.subject, outbox.c.payload).order_by(outbox.c.number)
        with self.database.read() as connection:
            return [tuple(row) for row in connection.execute(columns)]

    def told(self, act: Callable[[], object]) -> list[tuple[str, str, str]]:
        """What is told of what `act` does."""
        before = len(self.events())
        act()
        return self.events()[before:]


def check(plan: Plan, **of: Any) -> CheckRun:
    """A run of a check that passed."""
    facts = {
        "name": "tests", "command": "pytest -q", "required": True, "verdict": CheckVerdict.PASSED,
        "details": "12 passed", "tree": "t1", "ended_at": NOW,
    }  # fmt: skip
    return CheckRun(plan.id, **{**facts, **of})
