"""Machines that share a database and a remote: each with its own state directory and the real parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from cleveragents.app.container import Container
from cleveragents.config.settings import Settings
from cleveragents.core.faults import FaultPoints
from cleveragents.core.identifiers import Fence, WorkerIdentity
from cleveragents.core.json_value import FrozenObject
from cleveragents.demo.story import demo_settings
from cleveragents.jobs.model.job import AttemptOutcome, JobState, NewJob
from cleveragents.jobs.worker.async_worker import AsyncJob, CancellationToken
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.model.strategy import Strategy, StrategyStep
from cleveragents.plans.ports.plans import PlanDraft
from cleveragents.plans.run import PlanRun, kind_of_plan
from tests.plan_bench import BenchParts
from tests.ready_database import ready_database
from tests.remotes import Remote
from tests.tree_bench import name_of

__all__ = ["At", "Died", "Machine", "machine", "machine_settings", "machines_at"]


class Died(BaseException):
    """The process is dead."""


class At:
    """Runs a callback the `nth` time a fault point is reached."""

    def __init__(self, name: str, action: Callable[[], object], *, nth: int = 1) -> None:
        self._name = name
        self._action = action
        self._left = nth

    def reach(self, name: str) -> None:
        if name == self._name:
            self._left -= 1
            if self._left == 0:
                self._action()


def machine_settings(directory: Path, url: str) -> Settings:
    """Return settings with a separate state directory and the shared database."""
    facts = msgspec.to_builtins(demo_settings(directory))
    return msgspec.convert({**facts, "database": {"url": url}}, Settings)


class Machine:
    """One of several machines; its jobs run when a test says so."""

    def __init__(self, directory: Path, url: str, *, faults: FaultPoints | None = None) -> None:
        self.container = Container(machine_settings(directory, url), faults=faults)
        self.parts = BenchParts(self.container)
        self.strategies: dict[str, Strategy] = {}
        self.claimed_jobs: list[AsyncJob] = []

    def plan(
        self,
        place: Remote | Path,
        *steps: StrategyStep,
        request: Mapping[str, Any] | None = None,
        **facts: Any,
    ) -> Plan:
        """Return a plan on the remote, or on a directory of this machine, with a queued job."""
        resource = str(place) if isinstance(place, Path) else place.resource
        new = PlanDraft("a goal", "tests/steps", resource, FrozenObject(request or {}))
        plan = self.parts.lifecycle.create(new)
        self.strategies[plan.id] = Strategy(steps, **{"profile": "full-auto", **facts})
        return plan

    def knows(self, other: Machine) -> None:
        """Share the steps of another machine's plans."""
        self.strategies.update(other.strategies)

    def handler(self) -> PlanRun:
        known = self.strategies
        return replace(
            self.parts.run(), make_strategy=lambda plan: known.get(plan.id) or known[name_of(plan)]
        )

    def claimed(self, plan: Plan, kind: str | None = None) -> AsyncJob:
        """Return the plan's job, claimed by a worker here that took it from its owner."""
        jobs, now = self.container.jobs, self.container.clock.now()
        owner = WorkerIdentity(self.container.home, "nowhere", 1, 1)
        job = jobs.claim(owner, [kind or kind_of_plan(plan.root)], now=now)
        assert job is not None
        claimed = AsyncJob(job.id, job.kind, job.payload, job.attempt, job.fence, CancellationToken(), {})
        self.claimed_jobs.append(claimed)
        return claimed

    def apply_job(self, plan: Plan) -> AsyncJob:
        kind = f"apply:{plan.id}"
        now = self.container.clock.now()
        self.container.jobs.submit(NewJob(kind, {"plan_id": plan.id}, max_attempts=10), now=now)
        return self.claimed(plan, kind)

    def lose(self, job: AsyncJob) -> None:
        """Declare its worker dead: another machine may take the job."""
        outcome = AttemptOutcome(JobState.QUEUED)
        self.container.jobs.finish(job.id, job.fence, outcome, now=self.container.clock.now())

    def take_turn(self, plan: Plan) -> bool:
        """Run a queued job of the plan's tree, if there is one, to its end."""
        jobs, now = self.container.jobs, self.container.clock.now()
        owner = WorkerIdentity(self.container.home, "nowhere", 1, 1)
        job = jobs.claim(owner, [kind_of_plan(plan.root)], now=now)
        if job is None:
            return False
        self.handler()(
            AsyncJob(job.id, job.kind, job.payload, job.attempt, job.fence, CancellationToken(), {})
        )
        jobs.finish(job.id, job.fence, AttemptOutcome(JobState.SUCCEEDED), now=self.container.clock.now())
        return True

    def run(self, job: AsyncJob) -> Plan:
        self.handler()(job)
        return self.now(str(job.payload["plan_id"]))

    def now(self, plan_id: str) -> Plan:
        return self.parts.plans.get(plan_id)

    def apply(self, plan: Plan, job: AsyncJob | None = None) -> Plan:
        fence = None if job is None else Fence(job.id, job.fence)
        return self.parts.apply.apply(self.now(plan.id), CancellationToken(), fence=fence)[0]

    def diff(self, plan: Plan) -> str:
        return self.parts.result.diff(self.now(plan.id), self.parts.sandboxes.open(plan.id)).decode()


@contextmanager
def machines_at(directory: Path) -> Iterator[Callable[..., Machine]]:
    """Return a factory of machines by name, all on one database."""
    url = ready_database(directory / "shared.db")
    with ExitStack() as closing:

        def made(name: str, **facts: Any) -> Machine:
            return closing.enter_context(machine(directory / name, url, **facts))

        yield made


@contextmanager
def machine(directory: Path, url: str, **facts: Any) -> Iterator[Machine]:
    with ExitStack() as closing:
        made = Machine(directory, url, **facts)
        closing.enter_context(made.container)
        yield made
