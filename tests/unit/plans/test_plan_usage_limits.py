"""A plan that reaches a provider's usage limit waits for its reset and continues by itself, exactly once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed

from cleveragents.api.plans import status_text
from cleveragents.api.plans.available_actions import is_at_rest, is_resumable, needs_of, possible_actions
from cleveragents.api.plans.details import fields_of
from cleveragents.api.plans.next_steps import steps_from
from cleveragents.api.plans.responses import allow_more
from cleveragents.api.plans.status_text import plan_status, short_status_of, status_text_of
from cleveragents.core.errors import PlanError, StalePlan, UsageLimited
from cleveragents.core.identifiers import WorkerIdentity
from cleveragents.jobs.model.job import HandedOn, Job, JobState
from cleveragents.jobs.worker.async_worker import AsyncJob, CancellationToken
from cleveragents.models.model.budget import BudgetLimits, Spend
from cleveragents.plans.jobs.names import kind_of_plan, should_run
from cleveragents.plans.jobs.shared_jobs import PlanJob, PlanObserver
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.status import PlanStatus
from cleveragents.plans.model.sub_plan import PAUSED
from cleveragents.plans.model.sub_plan import is_at_rest as rests
from cleveragents.plans.model.usage_wait import (
    UsageWaits,
    is_parked,
    parked_until,
    wait_seconds,
    waiting_process,
)
from cleveragents.testing.clock import FakeClock, RaiseAt
from tests.actor_plan_bench import (
    ActorPlanBench,
    accept,
    answer,
    call,
    executes,
    reviews,
    says,
    steps,
    strategizes,
)

HOUR = 3600.0
LIMIT = {"status": 429, "message": "usage limit reached", "retry_after_seconds": 2 * HOUR}
UNKNOWN = {"status": 429, "message": "You have reached your weekly usage limit"}
POINTS = ["plan.park.before", "plan.park.after", "plan.wake.before", "plan.wake.after"]
EDIT = answer(call("write", path="made.txt", content="made\n"))


class Bench(ActorPlanBench):
    """A bench with a clock of its own."""

    def __init__(self, home: Path, **facts: Any) -> None:
        super().__init__(home, **facts)
        self.clock = self.container.clock = FakeClock()

    def limited(self, *, fault: dict[str, Any] = LIMIT, times: int = 1, skip: int = 1, **facts: Any) -> Plan:
        """Return a plan whose executor reaches the usage limit after its first call, `times` in a row."""
        model = self.script(
            strategizes(steps({"title": "write it", "instructions": "so"})),
            {"when": {"system": "You change files"}, "reply": {"fault": fault}, "skip": skip, "times": times},
            executes(EDIT, says("done")),
            reviews(accept()),
        )
        return self.goal(model, **facts)

    def job(self, plan: Plan) -> Job:
        job = self.parts.lifecycle.queueing.job_of(self.now(plan))
        assert job is not None
        return job

    def claimed(self, plan: Plan, owner: str = "another") -> AsyncJob | None:
        """Return the job as another worker claims it; None if none is due."""
        worker = WorkerIdentity(owner, "nowhere", 1, 1)
        job = self.container.jobs.claim(worker, [kind_of_plan(plan.id)], now=self.clock.now())
        if job is None:
            return None
        return AsyncJob(job.id, job.kind, job.payload, job.attempt, job.fence, CancellationToken(), {})

    def made(self, plan: Plan) -> list[str]:
        return [one.tool for one in self.calls(plan)]


@contextmanager
def usage_bench(home: Path, **facts: Any) -> Iterator[Bench]:
    bench = Bench(home, **facts)
    with bench.container:
        yield bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with usage_bench(tmp_path) as made:
        yield made


def test_waits_for_the_reset_and_continues_by_itself(bench: Bench) -> None:
    plan = bench.work(bench.limited())
    assert plan.phase_state == (Phase.EXECUTE, PlanState.WAITING)
    assert parked_until(plan) == bench.clock.now() + timedelta(seconds=2 * HOUR + 1)
    assert bench.spent(plan).reserved == Spend(), "money reserved for the refused call is settled"
    assert bench.work(plan).version == plan.version, "not due yet"
    before, thoughts = bench.made(plan), len(bench.thoughts(plan))
    bench.clock.advance(2 * HOUR + 2)
    done = bench.work(plan)
    assert done.phase_state == (Phase.EXECUTE, PlanState.COMPLETE)
    assert bench.made(done)[: len(before)] == before == ["write"], "recorded calls are kept"
    assert len(bench.thoughts(done)) == thoughts + 2, "the refused call, then the review"
    assert bench.job(done).state is JobState.SUCCEEDED
    assert bench.job(done).attempt == 1, "waiting costs no attempt"
    bench.ensure_consistent(done)


def test_a_waiting_plan_is_shown_as_waiting_and_needs_no_person(bench: Bench) -> None:
    plan = bench.work(bench.limited())
    parts = bench.parts
    assert plan_status(parts, plan) is PlanStatus.WAITING
    assert status_text_of(parts, plan).startswith("waiting: usage limit until ")
    assert needs_of(parts, plan) is None
    assert not is_at_rest(plan)
    assert not rests(plan)
    assert should_run(plan)
    assert is_resumable(parts, plan)
    assert {"resume", "cancel", "pause"} <= set(possible_actions(parts, plan))
    assert "delete" not in possible_actions(parts, plan)
    assert [step.action for step in steps_from(parts, plan)] == ["plan.resume", "plan.cancel"]
    assert json.loads(json.dumps(dict(bench.waited(plan)), default=str))["for"] == "usage limit"
    assert parts.lifecycle.reconciled(plan) == plan, "nothing ends the job of a waiting plan"
    assert parts.lifecycle.all_reconciled([plan]) == [plan]
    assert bench.job(plan).state is JobState.QUEUED


def test_a_plan_that_no_process_continues_after_the_reset_says_so(bench: Bench) -> None:
    """Its foreground process was killed, and no worker claims its job."""
    plan = bench.work(bench.limited())
    bench.clock.advance(2 * HOUR)
    assert "resume it" not in status_text_of(bench.parts, plan)
    bench.clock.advance(120)
    said = status_text_of(bench.parts, plan)
    assert "but no process continues it; resume it" in said


def test_a_plan_whose_waiting_process_is_dead_says_so_before_the_reset(bench: Bench) -> None:
    plan = bench.work(bench.limited())
    waiting = bench.waited(plan)
    assert waiting_process(plan) == bench.container.processes.identity(str(waiting["process"]["id"]))
    assert "process" not in str(fields_of(plan)["waiting_for"])
    for said in (status_text_of, short_status_of):
        assert "resume it" not in said(bench.parts, plan)
    dead = changed(plan, waiting_for={**waiting, "process": {**waiting["process"], "started_ticks": 1}})
    for said in (status_text_of, short_status_of):
        assert "but no process continues it; resume it" in said(bench.parts, dead)
    elsewhere = changed(plan, waiting_for={**waiting, "process": {**waiting["process"], "host": "another"}})
    assert "resume it" not in status_text_of(bench.parts, elsewhere)


def test_a_resume_continues_at_once_and_ends_the_timer(bench: Bench) -> None:
    plan = bench.work(bench.limited())
    timer = bench.job(plan)
    done = bench.resume(plan)
    assert done.phase_state == (Phase.EXECUTE, PlanState.COMPLETE)
    assert bench.container.jobs.get(timer.id).state is JobState.CANCELLED
    bench.clock.advance(3 * HOUR)
    assert bench.claimed(plan) is None
    assert bench.now(plan) == done


@pytest.mark.parametrize("phase", ["strategize", "execute"])
def test_waits_in_either_phase(bench: Bench, phase: str) -> None:
    model = bench.script(
        {"reply": {"fault": LIMIT}, "times": 1, "skip": 0 if phase == "strategize" else 1},
        strategizes(steps({"title": "write it", "instructions": "so"})),
        executes(EDIT, says("done")),
        reviews(accept()),
    )
    plan = bench.work(bench.goal(model))
    assert plan.phase_state == (Phase(phase), PlanState.WAITING)
    bench.clock.advance(3 * HOUR)
    assert bench.work(plan).phase_state == (Phase.EXECUTE, PlanState.COMPLETE)


def test_waits_longer_each_time_without_a_reset_time_and_then_fails(bench: Bench) -> None:
    plan = bench.limited(fault=UNKNOWN, times=100)
    waits = []
    while (plan := bench.work(plan)).state is PlanState.WAITING:
        until = parked_until(plan)
        assert until is not None
        waits.append((until - bench.clock.now()).total_seconds() / 60)
        bench.clock.advance((until - bench.clock.now()).total_seconds())
    assert waits[:6] == [15, 30, 60, 120, 240, 480]
    assert sum(waits) == 24 * 60
    assert plan.state is PlanState.ERRORED
    assert "weekly usage limit" in str(plan.error)
    assert "24 hours (models.usage_limit_hours)" in str(plan.error)


@pytest.mark.parametrize(
    ("reset", "earlier", "most", "wait"),
    [
        (100.0, UsageWaits(), HOUR, 101.0),
        (HOUR, UsageWaits(), HOUR, None),
        (100.0, UsageWaits(), 0.0, None),
        (100.0, UsageWaits(50, HOUR - 100), HOUR, None),
        (None, UsageWaits(), 0.0, None),
        (None, UsageWaits(), 600.0, 600.0),
        (None, UsageWaits(1, 600.0), 600.0, None),
        (None, UsageWaits(10**6, 60.0), 720 * HOUR, 720 * HOUR - 60),
    ],
)
def test_a_wait_is_bounded(reset: float | None, earlier: UsageWaits, most: float, wait: float | None) -> None:
    assert wait_seconds(reset, earlier, most) == wait


def test_known_resets_do_not_keep_a_plan_waiting_for_ever(tmp_path: Path) -> None:
    """A server may send the same short `Retry-After` with every refusal."""
    with usage_bench(tmp_path, models={"usage_limit_hours": 0.1}) as bench:
        plan = bench.limited(fault={**LIMIT, "retry_after_seconds": 61.0}, times=100)
        waits = 0
        while (plan := bench.work(plan)).state is PlanState.WAITING and waits < 10:
            waits += 1
            bench.clock.advance(62)
        assert (waits, plan.state) == (5, PlanState.ERRORED)


def test_claims_that_follow_no_wait_do_not_make_the_next_wait_longer(bench: Bench) -> None:
    plan = bench.limited(fault=UNKNOWN)
    job = bench.owned_job(plan)
    bench.container.jobs.reclaim(job.id, job.fence, 0, error="it died", now=bench.clock.now())
    until = parked_until(bench.work(plan))
    assert until == bench.clock.now() + timedelta(minutes=15)


def test_a_reset_that_is_too_far_away_fails_the_plan(bench: Bench) -> None:
    plan = bench.work(bench.limited(fault={**LIMIT, "retry_after_seconds": 24 * HOUR}))
    assert plan.state is PlanState.ERRORED
    assert "it resets in 24 hours" in str(plan.error)


def test_the_setting_turns_the_wait_off(tmp_path: Path) -> None:
    with usage_bench(tmp_path, models={"usage_limit_hours": 0}) as bench:
        plan = bench.work(bench.limited())
        assert plan.state is PlanState.ERRORED
        assert "the usage limit is reached" in str(plan.error)
        assert "models.usage_limit_hours" not in str(plan.error)
        assert bench.resume(plan).state is PlanState.COMPLETE


def test_the_fallback_is_tried_first_and_the_first_limit_decides(tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(json.dumps({"rules": [{"reply": {"fault": {"status": 503}}}]}))
    with usage_bench(tmp_path / "home", models={"fallback": f"scripted/{other}"}) as bench:
        plan = bench.work(bench.limited())
        assert is_parked(plan)
        assert "usage limit reached" in str(bench.waited(plan)["what"])


def test_a_pause_and_a_cancel_end_the_wait(bench: Bench) -> None:
    paused = bench.work(bench.limited())
    timer = bench.job(paused)
    paused = bench.parts.lifecycle.stop(paused, PAUSED)
    assert plan_status(bench.parts, paused) is PlanStatus.PAUSED
    assert bench.container.jobs.get(timer.id).state is JobState.CANCELLED
    bench.clock.advance(3 * HOUR)
    assert bench.work(paused).state is PlanState.ERRORED, "the timer is gone"
    assert bench.resume(paused).state is PlanState.COMPLETE

    plan = bench.work(bench.limited())
    assert bench.cancel(plan).state is PlanState.CANCELLED
    bench.clock.advance(3 * HOUR)
    assert bench.work(plan).state is PlanState.CANCELLED


def test_a_correction_takes_the_plan_from_its_timer(bench: Bench) -> None:
    plan = bench.work(bench.limited())
    stopped = bench.parts.correction.pausing.pause(plan)
    assert stopped.state is PlanState.WAITING
    assert not is_parked(stopped)
    bench.clock.advance(3 * HOUR)
    assert bench.work(plan) == stopped


def test_a_raised_budget_does_not_end_the_wait(bench: Bench) -> None:
    plan = bench.work(bench.limited(limits=BudgetLimits(tokens=100_000)))
    assert is_parked(allow_more(bench.parts, plan.id, BudgetLimits(tokens=200_000)))


def test_a_waiting_plan_is_not_deleted(bench: Bench) -> None:
    plan = bench.work(bench.limited())
    with pytest.raises(PlanError, match="waiting for a usage limit; cancel the plan first"):
        bench.parts.cleanup.delete(plan)


def test_edits_in_the_sandbox_are_not_overwritten(bench: Bench) -> None:
    plan = bench.work(bench.limited())
    (bench.sandbox(plan).root / "b.txt").write_text("mine\n")
    bench.clock.advance(3 * HOUR)
    stopped = bench.work(plan)
    assert stopped.state is PlanState.ERRORED
    assert "unrecorded edits" in str(stopped.error)
    assert (bench.sandbox(plan).root / "b.txt").read_text() == "mine\n"


def test_a_resume_while_the_timer_fires_continues_the_plan_once(bench: Bench) -> None:
    """The worker has claimed the job, and has not moved the plan yet."""
    plan = bench.work(bench.limited())
    bench.clock.advance(3 * HOUR)
    job = bench.claimed(plan)
    assert job is not None
    with pytest.raises(PlanError, match="the worker of the plan has not stopped yet"):
        bench.parts.lifecycle.resume(plan)
    bench.handler()(job)
    assert bench.now(plan).state is PlanState.COMPLETE


def test_a_resume_that_loses_against_the_timer_returns_the_running_plan(bench: Bench) -> None:
    """The timer moves the plan after the resume has read it."""
    plan = bench.work(bench.limited())
    lifecycle, timer = bench.parts.lifecycle, bench.job(plan)
    moved = bench.parts.plans.move(plan, (plan.phase, PlanState.QUEUED), now=bench.clock.now())
    assert lifecycle._queued_anew(plan, None, timer) == moved
    assert bench.job(plan).state is JobState.QUEUED, "the timer's job continues the plan"
    with pytest.raises(StalePlan):
        lifecycle._queued_anew(plan, None, None)


def test_the_timer_leaves_a_plan_that_was_resumed(bench: Bench) -> None:
    """The resume moves the plan after the worker has claimed the job and read the plan."""
    plan = bench.work(bench.limited())
    bench.clock.advance(3 * HOUR)
    job = bench.claimed(plan)
    assert job is not None
    thoughts = len(bench.thoughts(plan))

    def resume() -> StalePlan:
        bench.parts.lifecycle.queue(bench.now(plan))
        return StalePlan("", 0)  # not raised: the worker goes on

    handler = bench.handler()
    with suppress(StalePlan):
        replace(handler, faults=Deed("plan.wake.before", resume))(job)
    assert bench.now(plan).phase_state == (Phase.EXECUTE, PlanState.QUEUED)
    assert bench.now(plan).job_id != job.id
    assert len(bench.thoughts(plan)) == thoughts, "no model call by the worker that lost"
    assert bench.work(plan).state is PlanState.COMPLETE


class Deed:
    """Does something once when a point is reached."""

    def __init__(self, name: str, act: Any) -> None:
        self._name, self._act = name, act

    def reach(self, name: str) -> None:
        if name == self._name and self._act is not None:
            act, self._act = self._act, None
            act()


@pytest.mark.parametrize(
    "point", ["plan.park.before", "plan.park.after", "plan.wake.before", "plan.wake.after"]
)
def test_a_worker_that_dies_anywhere_loses_nothing(bench: Bench, point: str) -> None:
    plan = bench.limited()
    handler = bench.handler()
    broken = replace(handler, faults=RaiseAt(point, lambda: KeyboardInterrupt()))
    job = bench.owned_job(plan)
    with suppress(KeyboardInterrupt):
        answer = broken(job)
        assert isinstance(answer, HandedOn)
        bench.container.jobs.finish(job.id, job.fence, handed(answer), now=bench.clock.now())
        bench.clock.advance(3 * HOUR)
        job = bench.owned_job(plan)
        broken(job)
    bench.container.jobs.reclaim(job.id, job.fence, 0, error="it died", now=bench.clock.now())
    thoughts = len(bench.thoughts(plan))
    now = bench.work(plan)
    if point == "plan.park.after":
        assert is_parked(now)
        assert len(bench.thoughts(plan)) == thoughts, "not due: no call is made"
        assert bench.job(plan).not_before == parked_until(now)
        bench.clock.advance(3 * HOUR)
        now = bench.work(plan)
    assert now.state is PlanState.COMPLETE
    assert bench.made(plan) == ["write"]
    assert bench.spent(plan).reserved == Spend()
    bench.ensure_consistent(now)


def handed(answer: HandedOn) -> Any:
    from cleveragents.jobs.model.job import AttemptOutcome

    return AttemptOutcome(JobState.QUEUED, handed_on=True, retry_at=answer.until)


@pytest.mark.parametrize("phases_apart", [False, True])
def test_a_job_of_a_shared_queue_is_handed_on_until_the_reset(bench: Bench, phases_apart: bool) -> None:
    plan = bench.limited(skip=1)
    handler = bench.parts.run(one_phase=phases_apart)
    handler = replace(handler, make_strategy=lambda one: bench.strategies[one.id])
    run = PlanJob(handler, bench.parts, PlanObserver(), phases_apart=phases_apart)
    answer: object = HandedOn()
    for _ in range(3):
        job = bench.owned_job(plan)
        answer = run(job)
        assert isinstance(answer, HandedOn)
        bench.container.jobs.finish(job.id, job.fence, handed(answer), now=bench.clock.now())
        if answer.until is not None:
            break
    assert bench.job(plan).not_before == parked_until(bench.now(plan)) == answer.until


def test_a_parent_waits_for_a_sub_plan_that_waits_for_a_limit() -> None:
    child = changed(_plan(), state=PlanState.WAITING, waiting_for={"for": "usage limit", "until": "soon"})
    assert is_parked(child), "an unreadable time counts as past"
    until = parked_until(child)
    assert until is not None
    assert until.astimezone(timezone(timedelta(hours=-12))) == until, "it can be shown in any time zone"
    assert not rests(child)


@pytest.mark.parametrize("state", [PlanState.QUEUED, PlanState.COMPLETE])
def test_a_parked_sub_plan_does_not_hide_others_that_no_worker_runs(
    monkeypatch: pytest.MonkeyPatch, state: PlanState
) -> None:
    parked = changed(_plan(), state=PlanState.WAITING, waiting_for={"for": "usage limit", "until": "soon"})
    plans = [parked, changed(_plan(), state=state)]
    stand_ins = {"below": plans, "plans_needing_action": [], "count_of_parts": "0/2"}
    for name, value in {**stand_ins, "has_active_sub_plans": False}.items():
        monkeypatch.setattr(status_text, name, lambda parts, plan, value=value: value)
    parts: Any = None
    said = status_text._of_sub_plans(parts, _plan())
    assert "usage limit until" in said
    assert ("no worker is running the others" in said) == (state is PlanState.QUEUED)


def _plan() -> Plan:
    now = FakeClock().now()
    return Plan("1", "g", "a/b", "/r", Phase.EXECUTE, PlanState.PROCESSING, 1, now, now)


def test_the_error_states_when_the_limit_resets() -> None:
    assert "it resets in 3 hours" in str(UsageLimited("m", "quota", 2.5 * HOUR))
    assert "it resets in 90 s" in str(UsageLimited("m", "quota", 90))
    assert "try again later" in str(UsageLimited("m", "quota"))


def ready_before_a_limit(bench: Bench) -> Plan:
    """Return a plan with a result, whose revision waits for the reset of a usage limit."""
    model = bench.script(
        strategizes(steps({"title": "write it", "instructions": "so"})),
        executes(answer(fault=LIMIT), when={"first_user": "make it better"}),
        executes(EDIT, says("done")),
        reviews(accept()),
    )
    ready = bench.work(bench.goal(model))
    assert ready.phase_state == (Phase.EXECUTE, PlanState.COMPLETE), ready.error
    plan = bench.work(bench.parts.comments.revise(ready, "make it better")[1])
    assert is_parked(plan), plan.error
    return plan


def test_the_job_of_a_withdrawn_revision_does_not_apply_the_result(bench: Bench) -> None:
    plan = ready_before_a_limit(bench)
    parked = bench.job(plan)
    restored = bench.parts.correction.withdraw(plan)
    assert bench.container.jobs.get(parked.id).state is JobState.CANCELLED
    assert bench.job(restored).state is JobState.SUCCEEDED, "the job that made the result"
    bench.clock.advance(2 * HOUR + 2)
    assert bench.claimed(plan) is None
    assert (bench.now(plan), bench.parts.lifecycle.reconciled(restored)) == (restored, restored)
    assert not (bench.repository / "made.txt").exists()


def test_a_claimed_job_of_a_withdrawn_revision_does_not_apply_the_result(bench: Bench) -> None:
    plan = ready_before_a_limit(bench)
    bench.clock.advance(2 * HOUR + 2)
    job = bench.owned_job(plan)
    restored = bench.parts.correction.withdraw(plan)
    PlanJob(bench.handler(), bench.parts, PlanObserver())(job)
    assert bench.now(plan) == restored
    assert not (bench.repository / "made.txt").exists()
