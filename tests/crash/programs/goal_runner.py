"""`python -m tests.crash.programs.goal_runner`: a whole actor plan in a process that dies on request.

Each line of its input is JSON: `home`, and `point` and `nth` where the process is killed. It forks for each,
so that the imports happen once, and answers with the child's exit status. Without a `point` it writes the
names of all reached fault points to the home.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cleveragents.core.faults import FaultPoints
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.strategy import RoleAssignment, Strategy
from cleveragents.testing.clock import CrashAt, RecordFaultPoints
from tests.actor_plan_bench import (
    USUAL,
    ActorPlanBench,
    accept,
    actor_plan_bench,
    answer,
    call,
    executes,
    reviews,
    says,
    steps,
    strategizes,
)
from tests.crash.programs.forking import serve
from tests.plan_bench import check

# Imported lazily elsewhere; imported here so that each child has them.
HEAVY = (
    "cleveragents.actors.runner",
    "cleveragents.models.scripted_model",
    "cleveragents.actors.library",
    "cleveragents.actors.store.sql_checkpoint_store",
    "jsonschema",
)
RULES = (
    strategizes(answer(call("read", path="b.txt")), steps({"title": "do it", "instructions": "all of it"})),
    executes(
        answer(call("write", path="made.txt", content="made\n"), call("read", path="made.txt")),
        answer(call("command", script="echo ran >> runs.log; echo more >> b.txt; mv folder/c.txt moved.txt")),
        says("done"),
    ),
    reviews(accept()),
)
THOUGHTS = 6
CHECKS = (check("grep -q more b.txt"),)
SCRIPT = "script-0.yaml"


def strategy_in(home: Path) -> Strategy:
    casting = RoleAssignment(*USUAL, f"scripted/{home / SCRIPT}")
    return Strategy((), CHECKS, profile="full-auto", casting=casting)


def carried_through(home: Path, faults: FaultPoints | None = None) -> Plan:
    """Run a goal from its plan's creation to the user's files, however often it was started and killed
    before.
    """
    with actor_plan_bench(home, faults=faults) as bench:
        bench.parts.apply.settle()
        plans = bench.parts.plans.list()
        plan = taken_up(bench, plans[0]) if plans else bench.goal(f"scripted/{home / SCRIPT}", checks=CHECKS)
        if plan.phase is not Phase.APPLY:
            plan = bench.work(plan)
        # An interrupted and undone apply reports that, and must be repeated.
        assert plan.state is not PlanState.ERRORED or plan.phase is Phase.APPLY, plan.error
        if not plan.state.ended:
            plan = bench.apply(plan)
        return plan


def taken_up(bench: ActorPlanBench, plan: Plan) -> Plan:
    """Resume like `agents plan resume`."""
    bench.strategies[plan.id] = strategy_in(bench.home)
    plan = bench.parts.lifecycle.reconciled(plan)
    if plan.phase is Phase.APPLY or plan.phase_state == (Phase.EXECUTE, PlanState.COMPLETE):
        return plan
    return bench.parts.lifecycle.resume(plan)


def _child(order: Mapping[str, Any]) -> None:
    home = Path(order["home"])
    recorded = RecordFaultPoints()
    carried_through(home, CrashAt(order["point"], order["nth"]) if "point" in order else recorded)
    (home / "points.json").write_text(json.dumps(recorded.reached))


if __name__ == "__main__":
    serve(_child, heavy=HEAVY)
