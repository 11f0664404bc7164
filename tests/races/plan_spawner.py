"""A separate process that grows a tree: `python -m tests.races.plan_spawner URL PLAN_ID JOB_ID`.

It prints `ready`, starts when it receives a line, and spawns from several threads, below that plan and below
its sub-plans. Then it prints how often it was refused.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from datetime import UTC, datetime

from cleveragents.core.errors import StalePlan, TreeTooLarge
from cleveragents.core.identifiers import Fence, UlidSource, WorkerIdentity
from cleveragents.jobs.model.job import NewJob
from cleveragents.jobs.store.sql_job_store import SqlJobStore
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.ports.plans import PlanDraft, PlanFacts, TreeLimits
from cleveragents.plans.store.sql_plan_store import SqlPlanStore
from cleveragents.storage.database import Database, open_database
from cleveragents.testing.clock import CountingIdentifiers

__all__ = ["FULL", "NOW", "grow", "parent_in", "sizes"]

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LIMITS = TreeLimits(depth=2, fan_out=5)
THREADS = 4
EACH = 6
FULL = (LIMITS.depth, LIMITS.fan_out, 1 + LIMITS.fan_out + LIMITS.fan_out**2)
"""The expected depth, fan-out and number of plans."""


def begun(plans: SqlPlanStore, plan: Plan, job_id: str) -> Plan:
    """Return the running plan. All concurrent callers get it."""
    while plan.state is not PlanState.PROCESSING:
        strategized = plan.phase is Phase.STRATEGIZE
        wanted = (Phase.STRATEGIZE, PlanState.PROCESSING if strategized else PlanState.QUEUED)
        try:
            plan = plans.move(plan, wanted, PlanFacts(job_id=job_id), now=NOW)
        except StalePlan:
            plan = plans.get(plan.id)
    return plan


def grow(plans: SqlPlanStore, parent: Plan, job_id: str, name: str, refused: list[str]) -> None:
    """Spawn more than fits, under its own keys and under shared ones."""
    for number in range(EACH):
        key = f"{name}-{number}" if number % 2 else f"shared-{number}"
        try:
            child = plans.spawn(
                parent, PlanDraft("part", "tests/any", "/repo"), key, LIMITS, now=NOW, fence=Fence(job_id, 1)
            )
        except TreeTooLarge:
            refused.append(key)
            continue
        grow(plans, begun(plans, child, job_id), job_id, name, refused)


def parent_in(database: Database) -> tuple[Plan, str]:
    """Return a running plan and its job."""
    names = CountingIdentifiers("old")
    plans, jobs = SqlPlanStore(database, names), SqlJobStore(database, names)
    jobs.submit(NewJob("tree"), now=NOW)
    job = jobs.claim(WorkerIdentity("ann", "here", 1, 1), ["tree"], now=NOW)
    assert job is not None
    root = plans.create(PlanDraft("goal", "tests/any", "/repo"), now=NOW)
    return begun(plans, root, job.id), job.id


def sizes(database: Database, root_id: str) -> tuple[int, int, int]:
    """Return the depth of the tree, the largest number of sub-plans of a plan, and the number of plans."""
    plans = SqlPlanStore(database, CountingIdentifiers("x"))
    tree = [plan for plan in plans.list(limit=10_000) if plan.root == root_id]
    parents = Counter(plan.parent_id for plan in tree if plan.parent_id is not None)
    assert len({(plan.parent_id, plan.key) for plan in tree}) == len(tree)
    return max(plan.depth for plan in tree), max(parents.values()), len(tree)


def main(url: str, plan_id: str, job_id: str) -> None:
    with open_database(url) as database:
        plans = SqlPlanStore(database, UlidSource())
        parent = plans.get(plan_id)
        refused: list[str] = []
        say("ready")
        sys.stdin.readline()
        threads = [
            threading.Thread(target=grow, args=(plans, parent, job_id, f"{os.getpid()}-{n}", refused))
            for n in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        say(str(len(refused)))


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
