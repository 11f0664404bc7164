"""`python -m tests.crash.programs.rebase_runner`: a rebase in a process that dies on request.

Each line of its input is JSON: `home`, and `point` and `nth` where the process is killed. It forks for each,
so that the imports happen once, and answers with the child's exit status. Without a `point` it writes the
names of all reached fault points to the home.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cleveragents.changes.model.merge_conflict import Take
from cleveragents.core.errors import ApplyConflict
from cleveragents.core.faults import FaultPoints
from cleveragents.plans.model.plan import Plan, PlanState
from cleveragents.testing.clock import CrashAt, RecordFaultPoints
from tests.crash.programs.forking import serve
from tests.plan_bench import FILES, PlanBench, check, command, plan_bench, write

TEXT = FILES["a.txt"]
PLANNED = TEXT.replace("one\n", "planned\n").replace("seven\n", "seven planned\n")
CURRENT = TEXT.replace("one\n", "current\n")


def prepared(home: Path, *, blocked: bool) -> None:
    """Create a plan that conflicts with the repository in one line, and a second change of the repository. If
    `blocked`, an apply of the plan has failed.
    """
    with plan_bench(home, isolation="off") as bench:
        steps = write("a.txt", PLANNED), command("mv folder/c.txt moved.txt")
        plan = bench.done(*steps, checks=[check("test -f moved.txt")])
        (bench.repository / "a.txt").write_text(CURRENT)
        (bench.repository / "new.txt").write_text("new\n")
        if blocked:
            with suppress(ApplyConflict):
                bench.apply(plan)


def carried_through(home: Path, faults: FaultPoints | None = None) -> Plan:
    """Rebase the plan, resolve its conflict and finish it, however often that was started and killed
    before.
    """
    with plan_bench(home, isolation="off", faults=faults) as bench:
        [plan] = bench.parts.plans.list()
        if plan.state in (PlanState.COMPLETE, PlanState.CONSTRAINED):
            plan = bench.parts.rebase.rebase(plan)
        if plan.state.running:
            plan = bench.work(_taken_up(bench, plan))
        if plan.state is PlanState.WAITING:
            if bench.parts.sub_plan_merge.open_conflicts(plan.id):
                bench.parts.manual_resolution.resolve(plan, "a.txt", Take.OURS)
            plan = bench.resume(plan)
        return plan


def _taken_up(bench: PlanBench, plan: Plan) -> Plan:
    """Continue a plan whose worker died."""
    job = bench.parts.lifecycle.queueing.job_of(plan)
    died = job is not None and job.owner is not None
    return bench.parts.lifecycle.resume(plan) if died else plan


def _child(order: Mapping[str, Any]) -> None:
    home = Path(order["home"])
    recorded = RecordFaultPoints()
    faults = CrashAt(order["point"], order["nth"]) if "point" in order else recorded
    carried_through(home, faults)
    (home / "points.json").write_text(json.dumps(recorded.reached))


if __name__ == "__main__":
    serve(_child)
