"""A parent and its sub-plans come to rest at the same moment, and no plan waits in vain."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from cleveragents.core.errors import CleverAgentsError
from cleveragents.core.identifiers import WorkerIdentity
from cleveragents.plans.jobs.names import kind_of_plan
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.sub_plan import SUB_PLANS, child_versions, has_news, waits_for_sub_plans
from cleveragents.plans.queue import PlanQueue
from cleveragents.testing.clock import FakeClock
from tests.races.explorers import Scenario, assert_caught, assert_holds
from tests.races.naive_wake_up import LookThenWaitQueue, MovedLaterQueue
from tests.races.plans_in_memory import JobsInMemory, PlansInMemory

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OWNER = WorkerIdentity("w", "here", 1, 1)
Act = Callable[["Family"], Hashable]


def plan_of(plan_id: str, parent_id: str | None = None) -> Plan:
    return Plan(
        plan_id,
        "g",
        "a/b",
        "/r",
        Phase.EXECUTE,
        PlanState.PROCESSING,
        version=6,
        created_at=NOW,
        updated_at=NOW,
        parent_id=parent_id,
        root_id="parent",
    )


@dataclass
class Family:
    """A running parent and two running sub-plans; the parent has looked at them."""

    queue_class: type[PlanQueue]
    answers: dict[int, Hashable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.parent = plan_of("parent")
        self.children = plan_of("1", "parent"), plan_of("2", "parent")
        self.plans: Any = PlansInMemory([self.parent, *self.children])
        self.jobs: Any = JobsInMemory()
        self.queue = self.queue_class(self.plans, self.jobs, FakeClock())

    def note(self, who: int, act: Act) -> None:
        try:
            self.answers[who] = act(self)
        except CleverAgentsError as error:
            self.answers[who] = type(error).__name__

    def waits_in_vain(self) -> Hashable:
        """Return whether the parent waits although there is news, its standing, and its jobs."""
        parent = self.plans.get("parent")
        in_vain = waits_for_sub_plans(parent) and has_news(parent, self.plans.children("parent"))
        return in_vain, parent.state.value, len(self.jobs.kept)


def parent_waits(family: Family) -> Hashable:
    waiting = {"for": SUB_PLANS, "seen": child_versions(family.children)}
    return family.queue.put_down(family.parent, waiting).state.value


def child_rests(number: int, state: PlanState = PlanState.COMPLETE) -> Act:
    def act(family: Family) -> Hashable:
        child = family.children[number]
        family.queue.wake(family.plans.move(child, (Phase.EXECUTE, state), now=NOW))
        return None

    return act


def scenario(name: str, queue_class: type[PlanQueue], *acts: Act) -> Scenario[Family]:
    return Scenario(
        name=name,
        setup=lambda: Family(queue_class),
        workers=[(lambda family, who=who, act=act: family.note(who, act)) for who, act in enumerate(acts)],
        outcome=Family.waits_in_vain,
        # Still processing: it saw the news before it began to wait, and continues.
        allowed=lambda outcome: outcome in {(False, "queued", 1), (False, "processing", 0)},
        reachable=frozenset({(False, "queued", 1)}),
    )


@pytest.mark.parametrize("state", [PlanState.COMPLETE, PlanState.ERRORED, PlanState.CANCELLED])
def test_a_parent_notices_a_sub_plan_that_rests_while_it_starts_to_wait(state: PlanState) -> None:
    assert_holds(scenario("one rests", PlanQueue, parent_waits, child_rests(0, state)), effort=40)


def test_two_sub_plans_that_rest_together_wake_their_parent_once() -> None:
    acts = parent_waits, child_rests(0), child_rests(1, PlanState.ERRORED)
    assert_holds(scenario("two rest", PlanQueue, *acts), effort=60)


def test_a_naive_parent_that_looks_before_it_waits_is_caught() -> None:
    assert_caught(scenario("one rests", LookThenWaitQueue, parent_waits, child_rests(0)), effort=120)


def begun(queue_class: type[PlanQueue]) -> Scenario[Family]:
    """A sub-plan is queued while a worker already claims jobs."""

    def queue(family: Family) -> Hashable:
        return family.queue.queue(family.plans.get(family.parent.id)).state.value

    def claim(family: Family) -> Hashable:
        job = family.jobs.claim(OWNER, [kind_of_plan(family.parent.id)], now=NOW)
        if job is None:
            return "nothing to do"
        plan = family.queue.taken_up_by(job.id, family.plans.get(family.parent.id))
        return "runs" if plan.job_id == job.id else "not its plan's"

    def outcome(family: Family) -> Hashable:
        plan = family.plans.get(family.parent.id)
        return family.answers[0], family.answers[1], plan.job_id is not None

    return Scenario(
        name="claimed at once",
        setup=lambda: Family(queue_class),
        workers=[lambda family: family.note(0, queue), lambda family: family.note(1, claim)],
        outcome=outcome,
        allowed=lambda outcome: (
            outcome in {("processing", "runs", True), ("processing", "nothing to do", True)}
        ),
        reachable=frozenset({("processing", "runs", True)}),
    )


def test_a_job_claimed_before_the_move_runs_its_plan() -> None:
    assert_holds(begun(PlanQueue), effort=60)


def test_a_job_that_ignores_an_unmoved_plan_is_caught() -> None:
    assert_caught(begun(MovedLaterQueue), effort=120)
