"""Two people send the comments of a plan to its executor, or one does while the executor finishes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from cleveragents.core.errors import PlanError, SandboxMissing, StalePlan
from cleveragents.plans.comments import PlanComments, ensure_open
from cleveragents.plans.corrections.correct import PlanCorrection
from cleveragents.plans.lifecycle import PlanLifecycle
from cleveragents.plans.model.comment import (
    Comment,
    CommentAnswer,
    CommentState,
    NewAnswer,
    NewComment,
)
from cleveragents.plans.model.correction import Correction, NewCorrection
from cleveragents.plans.model.plan import Phase, PhaseState, Plan, PlanState
from cleveragents.plans.model.strategy import RoleAssignment, Strategy
from cleveragents.plans.pause import PlanPause
from cleveragents.testing.clock import FakeClock
from tests.races.explorers import Scenario, assert_caught, assert_holds
from tests.races.naive_revision import PausesAnyVersion
from tests.races.plans_in_memory import JobsInMemory, PlansInMemory

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STRATEGY = Strategy((), casting=RoleAssignment(None, "builtin/solo", None, "m"))
COMPLETE, WAITING = (Phase.EXECUTE, PlanState.COMPLETE), (Phase.EXECUTE, PlanState.WAITING)
RUN = (Phase.EXECUTE, PlanState.QUEUED), (Phase.EXECUTE, PlanState.PROCESSING)
SENT_ONCE: frozenset[Hashable] = frozenset({(("ada",),), (("bob",),)})
SENT_OR_DONE: frozenset[Hashable] = frozenset({((), "resolved"), (("ada",), "open")})


def _no_sandbox(plan_id: str) -> Any:
    raise SandboxMissing(plan_id, "nowhere")


class CommentsInMemory:
    """One comment of a plan, and the corrections that send it.

    Thread safety:
        Owner: the scenario that made it.
        Lock: `_lock` is held for one step.
        Guarantee: the comment is marked as sent if and only if the plan was moved.
    Cancel safety: no call waits.
    """

    def __init__(self, plans: PlansInMemory) -> None:
        self._lock = threading.Lock()
        self._plans = plans
        self._comment = Comment("p", 1, NewComment("a digit", "ada"), NOW)

    def of_plan(self, plan_id: str) -> Sequence[Comment]:
        return [self._comment]

    def resolve(self) -> None:
        answer = CommentAnswer(1, 1, NewAnswer(CommentState.RESOLVED, "builtin/solo", by_actor=True), NOW)
        with self._lock:
            ensure_open(self._comment)
            self._comment = replace(self._comment, answers=(answer,))

    def add(
        self, plan: Plan, made: NewCorrection, way: Sequence[PhaseState], facts: Any, **more: Any
    ) -> tuple[Correction, Plan]:
        with self._lock:
            moved = self._plans.move(plan, way[-1], facts, now=NOW)
            self._comment = replace(self._comment, batch=1)
        return Correction(plan.id, 1, made, NOW), moved


@dataclass
class Review:
    """A plan with an open comment, and two people who have read both."""

    pausing_class: type[PlanPause]
    standing: PhaseState
    sent: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        facts: Any = {"strategy": STRATEGY.to_json()}
        self.plan = Plan("p", "g", "a/b", "/r", *self.standing, 6, NOW, NOW, **facts)
        self.plans: Any = PlansInMemory([self.plan])
        self.comments: Any = CommentsInMemory(self.plans)
        jobs: Any = JobsInMemory()
        sandboxes: Any = SimpleNamespace(open=_no_sandbox)
        edits: Any = SimpleNamespace(
            ensure_taken_in=lambda plan: None,
            end_calls=lambda *about: None,
            sandboxes=sandboxes,
            history=SimpleNamespace(calls=lambda plan_id: ()),
        )
        nothing: Any = None
        clock = FakeClock()
        lifecycle = PlanLifecycle(self.plans, nothing, jobs, nothing, edits, clock)
        pausing = self.pausing_class(self.plans, jobs, nothing, lifecycle, clock)
        correction = PlanCorrection(nothing, self.comments, edits, pausing, clock)
        self.revising = PlanComments(self.comments, correction, nothing, sandboxes, clock)

    def revise(self, who: str) -> None:
        """Send the open comments. Of the plan that was read, not of a later one."""
        try:
            self.revising.revise(self.plan)
        except (PlanError, StalePlan):
            return
        self.sent.append(who)

    def run(self) -> None:
        """Approve the pending call; the executor then resolves the comment and finishes."""
        plan = self.plan
        with suppress(StalePlan):
            for phase_state in RUN:
                plan = self.plans.move(plan, phase_state, now=NOW)
            self.comments.resolve()
            self.plans.move(plan, COMPLETE, now=NOW)

    def outcome(self) -> Hashable:
        """Return who sent the comment, and for a run the state of the comment."""
        (comment,) = self.comments.of_plan(self.plan.id)
        sent = tuple(self.sent)
        return (sent,) if self.standing == COMPLETE else (sent, comment.state.value)


def scenario(pausing: type[PlanPause], *, of_two: bool) -> Scenario[Review]:
    standing, wanted = (COMPLETE, SENT_ONCE) if of_two else (WAITING, SENT_OR_DONE)
    other: Callable[[Review], None] = (lambda review: review.revise("bob")) if of_two else Review.run
    return Scenario(
        name="two revisions" if of_two else "a revision while the executor finishes",
        setup=lambda: Review(pausing, standing),
        workers=[lambda review: review.revise("ada"), other],
        outcome=Review.outcome,
        allowed=lambda outcome: outcome in wanted,
        reachable=wanted,
        operations=20_000,
    )


def test_one_of_two_concurrent_revisions_sends_a_comment() -> None:
    assert_holds(scenario(PlanPause, of_two=True), effort=20)


def test_a_comment_that_the_executor_settles_meanwhile_is_not_sent() -> None:
    assert_holds(scenario(PlanPause, of_two=False), effort=20)


def test_a_revision_of_any_version_sends_a_comment_twice() -> None:
    assert_caught(scenario(PausesAnyVersion, of_two=True), effort=60)


def test_a_revision_of_any_version_sends_a_settled_comment() -> None:
    assert_caught(scenario(PausesAnyVersion, of_two=False), effort=60)
