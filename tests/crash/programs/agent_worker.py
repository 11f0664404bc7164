"""`python -m tests.crash.programs.agent_worker`: a separate worker for a plan with an external agent.

Its input is JSON: `home`, `plan`, `mode` and `arguments` of the scripted agent, `isolation`, and optionally
`die_at`, a fault point at which it kills itself. It prints the agent's output.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from cleveragents.plans.model.strategy import RoleAssignment, Strategy
from cleveragents.plans.output_recorder import PlanWatch
from tests.agent_bench import agent_bench, external


class DieAt:
    """Fault points, one of which kills the process."""

    def __init__(self, point: str) -> None:
        self._point = point

    def reach(self, point: str) -> None:
        if point == self._point:
            os.kill(os.getpid(), signal.SIGKILL)


def say(output: bytes) -> None:
    sys.stdout.buffer.write(output)
    sys.stdout.buffer.flush()


def main(told: dict[str, Any]) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with agent_bench(
        Path(told["home"]), isolation=told["isolation"], faults=DieAt(told.get("die_at", ""))
    ) as bench:
        actor = external(told["mode"], *told["arguments"])
        bench.actors[actor.name] = actor
        casting = RoleAssignment(None, actor.name, None, "")
        bench.strategies[told["plan"]] = Strategy((), casting=casting, profile="full-auto")
        bench.adapt = lambda run: replace(run, watch=lambda plan: PlanWatch(on_output=say))
        with bench.worker(bench.parts.plans.get(told["plan"])) as worker:
            worker.run_until_idle(600)


if __name__ == "__main__":
    main(json.load(sys.stdin))
