"""A process that ends while its actors work returns their plans to the queue: nothing failed."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

from cleveragents.actors.model.actor import ProgressKind
from cleveragents.jobs.model.job import JobState
from cleveragents.jobs.ports import JobHandler
from cleveragents.plans.model.plan import PlanState
from cleveragents.plans.run import kind_of_plan
from tests.actor_plan_bench import ActorPlanBench, executes


def test_a_closed_container_returns_the_plans_of_its_actors(tmp_path: Path) -> None:
    bench = ActorPlanBench(tmp_path)
    hanging = {"text": "at last", "delay_seconds": 3600}
    with bench.container:
        plan = bench.goal(bench.script(executes(hanging)), cast=(None, "builtin/executor", None))
        thinks = threading.Event()
        run = bench.parts.run(told=lambda seen: thinks.set() if seen.kind is ProgressKind.THINKING else None)
        handler = JobHandler(replace(run, make_strategy=lambda plan: bench.strategies[plan.id]))
        worker = bench.container.worker({kind_of_plan(plan.id): handler}, name="bench")
        worker.start()
        assert thinks.wait(60)
    with ActorPlanBench(tmp_path).container as container:
        parts = container.plan_parts
        assert (parts.plans.get(plan.id).state, parts.plans.get(plan.id).error) == (
            PlanState.PROCESSING,
            None,
        )
        assert container.jobs.get(str(plan.job_id)).state is JobState.QUEUED
