"""A plan is paused for a correction while it completes, fails, or is moved by another process."""

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
from tests.races.naive_pause import TellsFirst, TellsInAnyCase
from tests.races.plans_in_memory import PlansInMemory

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OWNER = WorkerIdentity("w", "here", 1, 1)


class Enough(Exception):
    """Ends the wait for the run."""


class Alive:
    """Every process is alive, and ends on request."""

    def is_alive(self, worker: WorkerIdentity) -> bool:
        return True

    def end(self, marker: str, *, grace_seconds: float) -> tuple[int, ...]:
        return ()


@dataclass
class Shared:
    """A running plan, its job, and the answers of both sides."""

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
        """The end of a run: it moves the plan, then looks for a cancel."""
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
        """Return the answer of the run, the standing of the plan, and whether the job was cancelled."""
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
        # Refused, and its job ended before it could be cancelled.
        allowed=lambda outcome: outcome in {rested, stopped, ("refused", "waiting", False)},
        reachable=frozenset({rested, stopped}),
    )


@pytest.mark.parametrize("end", [PlanState.COMPLETE, PlanState.ERRORED])
def test_a_plan_paused_at_its_end_is_never_cancelled(
    end: PlanState,
) -> None:
    assert_holds(scenario(PlanPause, end), effort=60)


@pytest.mark.parametrize("naive", [TellsFirst, TellsInAnyCase])
def test_cancelling_the_job_before_the_move_is_caught(naive: type[PlanPause]) -> None:
    assert_caught(scenario(naive, PlanState.COMPLETE), effort=120)
