"""`python -m tests.crash.programs.limited_worker`: a worker of a plan that reaches a usage limit.

Each line of its input is JSON: `home`, and `point` and `nth` where the process is killed. It forks for each,
and answers with the child's exit status. Without a `point` it writes the names of all reached fault points to
the home.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from cleveragents.core.faults import FaultPoints
from cleveragents.jobs.model.job import JobState
from cleveragents.jobs.ports import JobHandler
from cleveragents.jobs.worker.async_worker import AsyncWorker
from cleveragents.jobs.worker.attempt import WorkerOptions
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.run import kind_of_plan
from cleveragents.testing.clock import CrashAt, FakeClock, RecordFaultPoints
from tests.actor_plan_bench import (
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
from tests.crash.programs.goal_runner import HEAVY, strategy_in

LIMIT = {"status": 429, "message": "usage limit reached", "retry_after_seconds": 7200.0}
RULES = (
    strategizes(steps({"title": "do it", "instructions": "all of it"})),
    {"when": {"system": "You change files"}, "reply": {"fault": LIMIT}, "skip": 1, "times": 1},
    executes(answer(call("write", path="made.txt", content="made\n")), says("done")),
    reviews(accept()),
)


def carried_on(home: Path, faults: FaultPoints | None = None) -> Plan:
    """Run the plan of this home until it rests, and let time pass while it waits for the reset."""
    with actor_plan_bench(home, faults=faults) as bench:
        clock = bench.container.clock = FakeClock(datetime.now(UTC))
        plan = bench.parts.plans.list()[0]
        bench.strategies[plan.id] = replace(strategy_in(home), checks=())
        worker = _worker(bench, plan)
        worker._recovery.sweep()
        while bench.container.jobs.list(states=[JobState.QUEUED, JobState.RUNNING]):
            worker._claim_ready()
            clock.advance(600)
        return bench.now(plan)


def _worker(bench: ActorPlanBench, plan: Plan) -> AsyncWorker:
    return AsyncWorker(
        bench.container.jobs,
        {kind_of_plan(plan.id): JobHandler(bench.handler())},
        bench.container.clock,
        bench.container.processes,
        WorkerOptions(name="limited", lease_seconds=600, concurrency=1, retry_seconds=0.0),
        faults=bench.container.faults,
        spawn=lambda name, work: work(),
    )


def _child(order: Mapping[str, Any]) -> None:
    home = Path(order["home"])
    recorded = RecordFaultPoints()
    carried_on(home, CrashAt(order["point"], order["nth"]) if "point" in order else recorded)
    (home / "points.json").write_text(json.dumps(recorded.reached))


if __name__ == "__main__":
    serve(_child, heavy=HEAVY)
