"""`python -m tests.crash.programs.plan_runner`: a whole plan in a process that dies on request.

Each line of its input is JSON: `home`, and `point` and `nth` where the process is killed; with `rollback`, it
only rolls the plan back to that checkpoint. It forks for each, so that the imports happen once, and answers
with the child's exit status. Without a `point` it writes the names of all reached fault points to the home.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cleveragents.core.faults import FaultPoints
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.strategy import Strategy
from cleveragents.testing.clock import CrashAt, RecordFaultPoints
from tests.crash.programs.forking import serve
from tests.plan_bench import PlanBench, check, command, plan_bench, write

STEPS = (
    write("made.txt", "made\n"),
    command("echo ran >> runs.log; echo more >> b.txt; mv folder/c.txt moved.txt"),
)
CHECKS = (check("grep -q more b.txt"),)


def carried_through(home: Path, faults: FaultPoints | None = None) -> Plan:
    """Run a plan from its creation to the user's files, however often it was started and killed before."""
    with plan_bench(home, faults=faults) as bench:
        bench.parts.apply.settle()
        plans = bench.parts.plans.list()
        plan = taken_up(bench, plans[0]) if plans else bench.plan(*STEPS, checks=CHECKS)
        if plan.phase is not Phase.APPLY:
            plan = bench.work(plan)
        if not plan.state.ended:
            plan = bench.apply(plan)
        return plan


def taken_up(bench: PlanBench, plan: Plan) -> Plan:
    """Resume like `agents plan resume`."""
    bench.strategies[plan.id] = Strategy(STEPS, CHECKS, profile="full-auto")
    plan = bench.parts.lifecycle.reconciled(plan)
    if plan.phase is Phase.APPLY or plan.phase_state == (Phase.EXECUTE, PlanState.COMPLETE):
        return plan
    return bench.parts.lifecycle.resume(plan)


def rolled_back(home: Path, checkpoint: int, faults: FaultPoints) -> None:
    """Roll back like `agents plan rollback`."""
    with plan_bench(home, faults=faults) as bench:
        [plan] = bench.parts.plans.list()
        bench.parts.sandbox_edits.rollback(plan, checkpoint)


def _child(order: Mapping[str, Any]) -> None:
    home = Path(order["home"])
    recorded = RecordFaultPoints()
    faults = CrashAt(order["point"], order["nth"]) if "point" in order else recorded
    if "rollback" in order:
        rolled_back(home, order["rollback"], faults)
    else:
        carried_through(home, faults)
    (home / "points.json").write_text(json.dumps(recorded.reached))


if __name__ == "__main__":
    serve(_child)
