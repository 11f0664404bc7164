"""Which question a message to a task answers.

Over HTTP an answer names its question. A message of the Agent2Agent protocol has no place for that, and
agents that know nothing of ours send words alone; so a question goes out with its name in the metadata, an
answer may repeat it there, and one without is taken only where it can be to nothing else: to the first that
the plan has ever waited for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from a2a.utils.errors import InvalidParamsError

from cleveragents.api.plans import deciding
from cleveragents.core.errors import PlanError
from cleveragents.core.event import EventType
from cleveragents.plans.model.plan import Plan, PlanState

if TYPE_CHECKING:
    from a2a.types import SendMessageRequest

    from cleveragents.app.container import Container

__all__ = ["QUESTION", "answered", "question_asked"]

QUESTION = "question"
"""Under which metadata names it: of the status that asks, and of the message that answers."""


def question_asked(plan: Plan) -> str | None:
    """The name of what an actor of the plan asks now."""
    waited = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    asks = plan.state is PlanState.WAITING and waited.get("for") == "question"
    return str(waited[QUESTION]) if asks and waited.get(QUESTION) is not None else None


def answered(container: Container, plan: Plan, params: SendMessageRequest, text: str) -> Plan:
    """The plan, queued with the answer. `InvalidParamsError`, `PlanError`, `NeedsHuman`, `StalePlan`."""
    meant = _named(params)
    if meant is None:
        meant = question_asked(plan)
        if meant is None:  # guard: what asks only now was seen by nobody
            raise PlanError(plan.id, "no actor of it asks a question")
        if _has_waited_before(container, plan.id):  # guard: an answer is to what was seen
            remedy = f"say which one is answered: metadata.{QUESTION} of the message, as the status has it"
            raise PlanError(plan.id, f"it has waited for something else before; {remedy}")
    return deciding.replied(container.plan_parts, plan.id, text, meant)


def _named(params: SendMessageRequest) -> str | None:
    for metadata in (params.message.metadata, params.metadata):
        if QUESTION in metadata.fields:
            name = metadata.fields[QUESTION].string_value  # empty if it is something else
            if not name:
                raise InvalidParamsError(message=f"metadata.{QUESTION}: Input should be a valid string")
            return name
    return None


def _has_waited_before(container: Container, plan_id: str) -> bool:
    """Whether it went on from where it waited, ever; also where that has no place in the log yet."""
    from sqlalchemy import select

    from cleveragents.storage.tables import events, outbox

    moved = EventType.PLAN_MOVED.value
    with container.database.read() as connection:
        found = [
            payload
            for table in (outbox, events)  # in this order: what is moved meanwhile is seen twice, not never
            for payload in connection.execute(
                select(table.c.payload).where(table.c.subject == plan_id, table.c.event_type == moved)
            ).scalars()
        ]
    return any(str(json.loads(one).get("was")).endswith(f"/{PlanState.WAITING.value}") for one in found)
