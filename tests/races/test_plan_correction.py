"""A plan is stopped to be corrected while it completes, fails, or is decided about by somebody else."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from cleveragents.core.errors import StaleFence, StalePlan
from cleveragents.core.identifiers import WorkerIdentity
from cleveragents.jobs.model.job import AttemptOutcome, JobState, NewJob
from cleveragents.plans.jobs.names import kind_of_plan
from cleveragents.plans.lifecycle import PlanLifecycle
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.pause import PlanPause
from cleveragents.testing.clock import CountingIdentifiers, FakeClock
from cleveragents.testing.job_store import InMemoryJobStore
from tests.races.explorers import Scenario, assert_caught, assert_holds
from tests.races.naive_pausing import TellsFirst, TellsInAnyCase
from tests.races.plans_in_memory import PlansInMemory

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OWNER = WorkerIdentity("w", "here", 1, 1)


class Enough(Exception):
    """Whoever waits for the run to end has seen enough of it."""


class Alive:
    """Every process lives, and ends when it is told to."""

    def is_alive(self, worker: WorkerIdentity) -> bool:
        return True

    def end(self, marker: str, *, grace_seconds: float) -> tuple[int, ...]:
        return ()


@dataclass
class Shared:
    """A plan that is being executed, its job, and what each of the two was answered."""

    pausing_class: type[PlanPause]
    end: PlanState
    answers: dict[str, Hashable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.jobs: Any = InMemoryJobStore(CountingIdentifiers("job"))
        self.jobs.submit(NewJob(kind_of_plan("plan"), {"plan_id": "plan"}), now=NOW)
        self.job = self.jobs.claim(OWNER, [kind_of_plan("plan")], now=NOW)
        standing = Phase.EXECUTE, PlanState.PROCESSING
        self.plan = Plan("plan", "g", "a/b", "/r", *standing, 6, NOW, NOW, job_id=self.job.id)
        self.plans: Any = PlansInMemory([self.plan])

    def run(self) -> None:
        """As a run does at its end: it moves the plan, then looks whether it was to be cancelled."""
        try:
            plan = self.plans.move(self.plan, (Phase.EXECUTE, self.end), now=NOW)
            if self.jobs.get(self.job.id).cancel_reason is not None:
                plan = self.plans.move(plan, (Phase.EXECUTE, PlanState.CANCELLED), now=NOW)
            self.answers["run"] = plan.state.value
        except StalePlan:
            self.answers["run"] = "refused"
        with suppress(StaleFence):
            self.jobs.finish(self.job.id, self.job.fence, AttemptOutcome(JobState.SUCCEEDED), now=NOW)

    def pause(self) -> None:
        processes: Any = Alive()
        nobody: Any = None
        clock = FakeClock()
        lifecycle = PlanLifecycle(self.plans, nobody, self.jobs, processes, nobody, clock)
        pausing = self.pausing_class(self.plans, self.jobs, processes, lifecycle, clock, sleep=_enough)
        with suppress(Enough):
            pausing.pause(self.plan)

    def outcome(self) -> Hashable:
        """What the run was answered, where the plan stands, and whether the job was told to stop."""
        told = self.jobs.get(self.job.id).cancel_reason is not None
        return self.answers["run"], self.plans.get("plan").state.value, told


def _enough(seconds: float) -> None:
    raise Enough


def scenario(pausing_class: type[PlanPause], end: PlanState) -> Scenario[Shared]:
    rested, stopped = (end.value, end.value, False), ("refused", "waiting", True)
    return Scenario(
        name=f"a stop and {end.value}",
        setup=lambda: Shared(pausing_class, end),
        workers=[Shared.run, Shared.pause],
        outcome=Shared.outcome,
        # Refused, and its job over before it could be told.
        allowed=lambda outcome: outcome in {rested, stopped, ("refused", "waiting", False)},
        reachable=frozenset({rested, stopped}),
    )


@pytest.mark.parametrize("end", [PlanState.COMPLETE, PlanState.ERRORED])
def test_a_plan_that_is_stopped_as_it_ends_has_ended_or_waits_and_is_never_cancelled(
    end: PlanState,
) -> None:
    assert_holds(scenario(PlanPause, end), effort=60)


@pytest.mark.parametrize("naive", [TellsFirst, TellsInAnyCase])
def test_telling_the_job_before_the_plan_is_moved_is_caught(naive: type[PlanPause]) -> None:
    assert_caught(scenario(naive, PlanState.COMPLETE), effort=120)
