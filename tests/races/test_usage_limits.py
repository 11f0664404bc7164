"""A usage limit resets while a person resumes the plan, and one of them continues it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
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
from tests.races.naive_usage_wait import ForgetfulRun, RereadingRun
from tests.races.plans_in_memory import JobsInMemory, PlansInMemory

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OWNER = WorkerIdentity("w", "here", 1, 1)


def parked_plan() -> Plan:
    waiting = {"for": USAGE_LIMIT, "until": NOW.isoformat()}
    standing = Phase.EXECUTE, PlanState.WAITING
    return Plan("p", "g", "a/b", "/r", *standing, 6, NOW, NOW, waiting_for=waiting, job_id="timer")


@dataclass
class Sandbox:
    """A sandbox with the changes of a call that failed."""

    has_failure: bool = True

    def take_back_failure(self, plan: Plan) -> None:
        self.has_failure = False

    def ensure_taken_in(self, plan: Plan) -> None:
        raise AssertionError("only a plan that makes its strategy is asked for edits")


@dataclass
class World:
    """A parked plan, whose timer is due. `runs` states for each run whether it found the failure."""

    run_class: type[PlanRun]
    runs: list[bool] = field(default_factory=list)
    sandbox: Sandbox = field(default_factory=Sandbox)

    def __post_init__(self) -> None:
        self.plan = parked_plan()
        self.plans: Any = PlansInMemory([self.plan])
        self.jobs: Any = JobsInMemory()
        facts: dict[str, Any] = {"created_at": NOW, "updated_at": NOW, "not_before": NOW}
        payload = {"plan_id": "p"}
        self.jobs.kept["timer"] = Job("timer", "plan:p", payload, JobState.QUEUED, 0, 0, 3, 0, 0, **facts)
        nothing: Any = None
        edits: Any = self.sandbox
        self.lifecycle = PlanLifecycle(self.plans, nothing, self.jobs, nothing, edits, FakeClock())
        known = {"plans": self.plans, "sandbox_edits": edits, "clock": FakeClock(), "faults": NoFaults()}
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
        self.runs.append(self.sandbox.has_failure)

    def resume(self) -> None:
        plan = self.plans.get("p")
        if is_parked(plan):
            try:
                self.sandbox.take_back_failure(plan)
                self.lifecycle._queued_anew(plan, None, self.jobs.get("timer"))
            except CleverAgentsError:
                return

    def outcome(self) -> Hashable:
        """Return what each run of the plan found, once every job was claimed."""
        while any(job.state is JobState.QUEUED for job in self.jobs.kept.values()):
            self.work()
        return tuple(self.runs)


def scenario(run_class: type[PlanRun], *acts: Callable[[World], None]) -> Scenario[World]:
    return Scenario(
        name="the limit resets",
        setup=lambda: World(run_class),
        workers=list(acts),
        outcome=World.outcome,
        allowed=lambda outcome: outcome == (False,),
        reachable=frozenset({(False,)}),
    )


def test_a_resume_and_the_timer_continue_the_plan_once() -> None:
    assert_holds(scenario(PlanRun, World.work, World.resume), effort=40)


def test_two_servers_continue_the_plan_once() -> None:
    assert_holds(scenario(PlanRun, World.work, World.work, World.resume), effort=60)


def test_a_timer_that_reads_the_plan_again_is_caught() -> None:
    assert_caught(scenario(RereadingRun, World.work, World.resume), effort=120)


def test_a_timer_that_leaves_the_failure_in_the_sandbox_is_caught() -> None:
    assert_caught(scenario(ForgetfulRun, World.work, World.resume), effort=120)
