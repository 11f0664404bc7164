"""Naive plan stores: a look, a decision, and a write that trusts it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from msgspec.structs import replace
from sqlalchemy import Connection, Insert, Update, func, insert, select, update

from cleveragents.core.actions.model import CheckRun
from cleveragents.core.errors import PlanError, StalePlan
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.core.json_value import JsonValue
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.model.plan import PhaseState, Plan, ensure_plan_move
from cleveragents.plans.ports.plans import PlanFacts
from cleveragents.plans.store.plan_rows import call_row, check_row, plan_row
from cleveragents.plans.store.sql_plan_records import SqlCallStore, SqlCheckStore
from cleveragents.plans.store.sql_plan_store import SqlPlanStore
from cleveragents.plans.store.sql_rule_store import NewRule
from cleveragents.storage.outbox import append_to_outbox
from cleveragents.storage.tables import check_runs, plans, tool_calls

__all__ = ["LookThenMovePlanStore", "LookThenWriteCallStore", "UnheldCheckStore", "UnversionedPlanStore"]


class UnversionedPlanStore(SqlPlanStore):
    """A move is one transaction without a check of the version."""

    def move(self, plan: Plan, wanted: PhaseState, facts: PlanFacts | None = None, *, now: datetime) -> Plan:
        return super().move(self.get(plan.id), wanted, facts, now=now)


class LookThenMovePlanStore(SqlPlanStore):
    """The version is checked in a separate transaction, and the move trusts the answer."""

    def move(self, plan: Plan, wanted: PhaseState, facts: PlanFacts | None = None, *, now: datetime) -> Plan:
        held = self.get(plan.id)
        if held.version != plan.version:
            raise StalePlan(plan.id, plan.version)
        ensure_plan_move(held.id, held.phase_state, wanted)
        moved = replace(held, phase=wanted[0], state=wanted[1], version=held.version + 1)

        def unit(connection: Connection) -> Plan:
            connection.execute(update(plans).where(plans.c.id == plan.id).values(plan_row(moved)))
            append_to_outbox(connection, self._event(EventType.PLAN_MOVED, moved, now))
            return moved

        return self._database.write(unit)


class LookThenWriteCallStore(SqlCallStore):
    """Numbers and answers by a look; moves from the copy that the caller has."""

    def add(
        self,
        plan_id: str,
        tool: str,
        arguments: Mapping[str, JsonValue],
        *,
        step: str | None,
        state: CallState,
        now: datetime,
    ) -> ToolCall:
        last = select(func.count()).select_from(tool_calls).where(tool_calls.c.plan_id == plan_id)
        with self._database.read() as connection:
            number = connection.execute(last).scalar_one() + 1
        call = ToolCall(plan_id, number, self._identifiers.new(), tool, arguments, state, now, step=step)
        return self._keep(insert(tool_calls), EventType.TOOL_CALL_STARTED, call)

    def move(
        self,
        call: ToolCall,
        state: CallState,
        *,
        now: datetime,
        changeset_id: str | None = None,
        result: JsonValue = None,
        error: str | None = None,
    ) -> ToolCall:
        if self.of_plan(call.plan_id)[call.number - 1].state is not call.state:
            raise StalePlan(call.plan_id, call.number)
        kind = EventType.TOOL_CALL_STARTED if state is CallState.STARTED else EventType.TOOL_CALL_ENDED
        return self._keep(_row_of(call), kind, replace(call, state=state))

    def answer(
        self,
        plan_id: str,
        number: int,
        approval: str,
        *,
        now: datetime,
        by: str | None = None,
        reason: str | None = None,
        rule: NewRule | None = None,
    ) -> ToolCall:
        call = self.of_plan(plan_id)[number - 1]
        if call.state is not CallState.ASKED or call.approval is not None:
            raise PlanError(plan_id, f"call {number} waits for no answer")
        return self._keep(_row_of(call), EventType.APPROVAL_GIVEN, replace(call, approval=approval))

    def _keep(self, statement: Insert | Update, kind: EventType, call: ToolCall) -> ToolCall:
        def unit(connection: Connection) -> ToolCall:
            connection.execute(statement.values(call_row(call)))
            append_to_outbox(connection, self._event(kind, call, call.started_at))
            return call

        return self._database.write(unit)


def _row_of(call: ToolCall) -> Update:
    return update(tool_calls).where(tool_calls.c.plan_id == call.plan_id, tool_calls.c.number == call.number)


class UnheldCheckStore(SqlCheckStore):
    """Records without a check that the plan still exists."""

    def record(self, run: CheckRun) -> None:
        facts: dict[str, JsonValue] = {"check": run.name}
        event = DomainEvent(EventType.CHECK_ENDED, run.plan_id, self._identifiers.new(), run.ended_at, facts)

        def unit(connection: Connection) -> None:
            connection.execute(check_runs.insert(), check_row(run))
            append_to_outbox(connection, event)

        self._database.write(unit)
