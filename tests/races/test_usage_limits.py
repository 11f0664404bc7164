"""A usage limit resets while a person resumes the plan, and one of them continues it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from cleveragents.core.errors import CleverAgentsError
from cleveragents.core.faults import NoFaults
from cleveragents.core.identifiers import Fence, WorkerIdentity
from cleveragents.jobs.model.job import Job, JobState
from cleveragents.plans.lifecycle import PlanLifecycle
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.usage_wait import USAGE_LIMIT, is_parked
from cleveragents.plans.run import OwnedPlan, PlanRun
from cleveragents.testing.clock import FakeClock
from tests.races.explorers import Scenario, assert_caught, assert_holds
from tests.races.naive_usage_wait import RereadingRun
from tests.races.plans_in_memory import JobsInMemory, PlansInMemory

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OWNER = WorkerIdentity("w", "here", 1, 1)
EDITS: Any = SimpleNamespace(take_back_failure=lambda plan: None, ensure_taken_in=lambda plan: None)


def parked_plan() -> Plan:
    waiting = {"for": USAGE_LIMIT, "until": NOW.isoformat()}
    standing = Phase.EXECUTE, PlanState.WAITING
    return Plan("p", "g", "a/b", "/r", *standing, 6, NOW, NOW, waiting_for=waiting, job_id="timer")


@dataclass
class World:
    """A parked plan, whose timer is due."""

    run_class: type[PlanRun]
    runs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plan = parked_plan()
        self.plans: Any = PlansInMemory([self.plan])
        self.jobs: Any = JobsInMemory()
        facts: dict[str, Any] = {"created_at": NOW, "updated_at": NOW, "not_before": NOW}
        payload = {"plan_id": "p"}
        self.jobs.kept["timer"] = Job("timer", "plan:p", payload, JobState.QUEUED, 0, 0, 3, 0, 0, **facts)
        nothing: Any = None
        self.lifecycle = PlanLifecycle(self.plans, nothing, self.jobs, nothing, EDITS, FakeClock())
        known = {"plans": self.plans, "sandbox_edits": EDITS, "clock": FakeClock(), "faults": NoFaults()}
        self.run = self.run_class(**{one.name: known.get(one.name) for one in fields(PlanRun)})

    def work(self) -> None:
        """Claim a job and run its plan, as a worker does."""
        job = self.jobs.claim(OWNER, ["plan:p"], now=NOW)
        if job is None:
            return
        plan = self.lifecycle.queueing.taken_up_by(job.id, self.plans.get("p"))
        if plan.job_id != job.id:
            return
        held = OwnedPlan(self.plans, FakeClock(), plan, Fence(job.id, job.fence))
        try:
            self.run._wake(held)
            held.move(Phase.EXECUTE, PlanState.PROCESSING)
        except CleverAgentsError:
            return
        self.runs.append(job.id)

    def resume(self) -> None:
        plan = self.plans.get("p")
        if is_parked(plan):
            try:
                self.lifecycle._queued_anew(plan, None, self.jobs.get("timer"))
            except CleverAgentsError:
                return

    def outcome(self) -> Hashable:
        """Return how many workers ran the plan, once every job was claimed."""
        while any(job.state is JobState.QUEUED for job in self.jobs.kept.values()):
            self.work()
        return len(self.runs)


def scenario(run_class: type[PlanRun], *acts: Callable[[World], None]) -> Scenario[World]:
    return Scenario(
        name="the limit resets",
        setup=lambda: World(run_class),
        workers=list(acts),
        outcome=World.outcome,
        allowed=lambda outcome: outcome == 1,
        reachable=frozenset({1}),
    )


def test_a_resume_and_the_timer_continue_the_plan_once() -> None:
    assert_holds(scenario(PlanRun, World.work, World.resume), effort=40)


def test_two_servers_continue_the_plan_once() -> None:
    assert_holds(scenario(PlanRun, World.work, World.work, World.resume), effort=60)


def test_a_timer_that_reads_the_plan_again_is_caught() -> None:
    assert_caught(scenario(RereadingRun, World.work, World.resume), effort=120)
