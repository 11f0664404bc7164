"""A bench for plans with external agents: scripted ones, as real processes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from cleveragents.actors.model.actor import Actor, CommandNode, StateKey
from cleveragents.config.settings import Settings
from cleveragents.jobs.ports import JobHandler
from cleveragents.jobs.worker.async_worker import AsyncWorker
from cleveragents.jobs.worker.attempt import WorkerOptions
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.output_recorder import PlanWatch
from cleveragents.plans.run import kind_of_plan
from tests.actor_plan_bench import ActorPlanBench

__all__ = ["SCRIPTED", "AgentBench", "agent_bench", "agent_node", "external"]

SCRIPTED = Path(__file__).parent / "external_agents" / "scripted.py"
REPORT = (StateKey("report"),)


def agent_node(mode: str, *arguments: str, name: str = "work", **facts: Any) -> CommandNode:
    """Return a node that runs the scripted agent in this mode."""
    argv = (sys.executable, str(SCRIPTED), mode, *arguments)
    return CommandNode(
        **{"name": name, "argv": argv, "prompt": "Do it: ${goal}", "output": "report", **facts}
    )


def external(mode: str, *arguments: str, **facts: Any) -> Actor:
    """Return an actor with only that node."""
    node = agent_node(mode, *arguments, **facts)
    return Actor(name="tests/external", entry=node.name, nodes=(node,), state=REPORT)


class AgentBench(ActorPlanBench):
    """A bench with `isolation` as in the settings.

    `output` collects the output of agents; `heard` is set once they print `ready`.
    """

    def __init__(self, home: Path, *, isolation: str = "off", **facts: Any) -> None:
        super().__init__(home, **facts)
        known = {**msgspec.to_builtins(self.settings), "sandbox": {"isolation": isolation}}
        self.settings = self.container.settings = msgspec.convert(known, Settings)
        self.output = bytearray()
        self.heard = threading.Event()
        self.adapt = lambda run: replace(
            run, watch=lambda plan: PlanWatch(progress=self.said.append, on_output=self.hear)
        )

    def hear(self, chunk: bytes) -> None:
        self.output += chunk
        if b"ready" in self.output:
            self.heard.set()

    def task(self, actor: Actor, **facts: Any) -> Plan:
        """Return a plan with a queued job, for this actor, without a model."""
        self.actors[actor.name] = actor
        return self.goal("", cast=(None, actor.name, None), **facts)

    def given(self, mode: str, *arguments: str, policy: str = "full-auto", **facts: Any) -> Plan:
        """Return a plan that the scripted agent has worked on as far as it goes."""
        return self.work(self.task(external(mode, *arguments, **facts), profile=policy))

    @contextmanager
    def worker(self, *plans: Plan) -> Iterator[AsyncWorker]:
        """Return a worker that runs all these plans in parallel, in its own threads."""
        handlers = {kind_of_plan(plan.id): JobHandler(self.handler()) for plan in plans}
        options = WorkerOptions(name="bench", concurrency=len(plans), cancel_poll_seconds=0.1)
        worker = AsyncWorker(
            self.container.jobs, handlers, self.container.clock, self.container.processes, options
        )
        worker.start()
        try:
            yield worker
        finally:
            worker.close()

    def files(self, plan: Plan) -> dict[str, str]:
        """Return the files of its sandbox, except git's."""
        root = self.sandbox(plan).root
        found = (path for path in root.rglob("*") if path.is_file())
        named = {path.relative_to(root).as_posix(): path for path in found}
        return {name: path.read_text() for name, path in named.items() if not name.startswith(".git/")}


@contextmanager
def agent_bench(home: Path, **facts: Any) -> Iterator[AgentBench]:
    bench = AgentBench(home, **facts)
    with bench.container:
        yield bench
