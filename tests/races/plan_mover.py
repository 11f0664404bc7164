"""A separate process that moves a plan: `python -m tests.races.plan_mover URL PLAN_ID NAME`.

It reads the plan, prints `ready`, starts when it receives a line, and prints the outcome.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime

from cleveragents.core.errors import CleverAgentsError
from cleveragents.core.identifiers import UlidSource
from cleveragents.core.tool import CallState
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.ports.plans import PlanFacts
from cleveragents.plans.store.sql_plan_records import SqlCallStore
from cleveragents.plans.store.sql_plan_store import SqlPlanStore
from cleveragents.storage.database import open_database

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CALLS = 5


def main(url: str, plan_id: str, name: str) -> None:
    with open_database(url) as database:
        plans, calls = SqlPlanStore(database, UlidSource()), SqlCallStore(database, UlidSource())
        plan = plans.get(plan_id)
        say("ready")
        sys.stdin.readline()
        for _ in range(CALLS):
            call = calls.add(plan_id, "write", {}, step=name, state=CallState.STARTED, now=NOW)
            say(f"call {call.number}")
        try:
            plans.move(plan, (Phase.STRATEGIZE, PlanState.QUEUED), PlanFacts(error=name), now=NOW)
            say(f"moved {name}")
        except CleverAgentsError as error:
            say(type(error).__name__)


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
