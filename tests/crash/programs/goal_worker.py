"""`python -m tests.crash.programs.goal_worker`: a separate worker for one actor plan.

Its input is JSON: `home`, `plan`, `models`, `worker`, which are settings.
"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import replace
from pathlib import Path

import structlog

from cleveragents.jobs.ports import JobHandler
from cleveragents.plans.model.strategy import RoleAssignment, Strategy
from cleveragents.plans.run import kind_of_plan
from tests.actor_plan_bench import actor_plan_bench


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    order = json.load(sys.stdin)
    with actor_plan_bench(Path(order["home"]), models=order["models"], worker=order["worker"]) as bench:
        casting = RoleAssignment(None, "builtin/executor", None, "openai/scripted")
        strategy = Strategy((), profile="full-auto", casting=casting)
        run = replace(bench.parts.run(), make_strategy=lambda plan: strategy)
        worker = bench.container.worker({kind_of_plan(order["plan"]): JobHandler(run)}, name="stopped")
        worker.start()
        worker.run_until_idle(240.0)


if __name__ == "__main__":
    main()
