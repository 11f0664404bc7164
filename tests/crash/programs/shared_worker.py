"""`python -m tests.crash.programs.shared_worker`: a worker of a shared queue, which dies on request.

Each line of its input is JSON: `home`, and `point` and `nth` where the process is killed. It forks for each,
and answers with the child's exit status. Without a `point` it writes the names of all reached fault points to
the home.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cleveragents.core.faults import FaultPoints
from cleveragents.core.json_value import FrozenObject, freeze
from cleveragents.jobs.model.job import JobState
from cleveragents.jobs.ports import JobHandler
from cleveragents.jobs.worker.async_worker import AsyncWorker
from cleveragents.jobs.worker.attempt import WorkerOptions
from cleveragents.plans.jobs.shared_jobs import ApplyJob, PlanJob, PlanObserver, UndoJob
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.model.strategy import Strategy
from cleveragents.plans.ports.plans import PlanDraft
from cleveragents.testing.clock import CrashAt, RecordFaultPoints
from tests.crash.programs.forking import serve
from tests.plan_bench import PlanBench, plan_bench, write

STEPS = (write("made.txt", "made\n"), write("b.txt", "changed\n"))


def shared_plan(bench: PlanBench, **request: object) -> Plan:
    """Create a plan that any worker of the queue may run."""
    kept = freeze({"queue": "plans", **request})
    assert isinstance(kept, FrozenObject)
    return bench.parts.lifecycle.create(PlanDraft("a goal", "tests/steps", str(bench.repository), kept))


def shared_worker(bench: PlanBench) -> AsyncWorker:
    """Return a worker that runs one job at a time, on the thread that claims it."""
    for plan in bench.parts.plans.list():
        bench.strategies.setdefault(plan.id, Strategy(STEPS, profile="full-auto"))
    watched = PlanObserver()
    handlers = {
        "plan": JobHandler(PlanJob(bench.handler(), bench.parts, watched)),
        "apply": JobHandler(ApplyJob(bench.parts, watched)),
        "undo": JobHandler(UndoJob(bench.parts, watched)),
    }
    return AsyncWorker(
        bench.container.jobs,
        handlers,
        bench.container.clock,
        bench.container.processes,
        WorkerOptions(name="shared", lease_seconds=600, queues=("plans",), concurrency=1, retry_seconds=0.0),
        faults=bench.container.faults,
        spawn=lambda name, work: work(),
    )


def worked_off(home: Path, faults: FaultPoints | None = None) -> None:
    """Recover the jobs of a dead worker, and run queued ones until none is left."""
    with plan_bench(home, isolation="off", faults=faults) as bench:
        bench.parts.apply.settle()
        worker = shared_worker(bench)
        worker._recovery.sweep()
        while bench.container.jobs.list(states=[JobState.QUEUED, JobState.RUNNING]):
            worker._claim_ready()


def _child(order: Mapping[str, Any]) -> None:
    home = Path(order["home"])
    recorded = RecordFaultPoints()
    worked_off(home, CrashAt(order["point"], order["nth"]) if "point" in order else recorded)
    (home / "points.json").write_text(json.dumps(recorded.reached))


if __name__ == "__main__":
    serve(_child)
