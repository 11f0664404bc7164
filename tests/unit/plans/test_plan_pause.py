"""A pause stops a plan without cancelling it, whatever the state of its worker."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

from cleveragents.core.clock import SystemClock
from cleveragents.core.errors import DeadlineExceeded, PlanError, StalePlan
from cleveragents.core.identifiers import Fence, WorkerIdentity
from cleveragents.jobs.model.job import AttemptOutcome, Job, JobState
from cleveragents.jobs.ports import JobHandler
from cleveragents.plans.jobs.names import kind_of_plan
from cleveragents.plans.model.plan import Phase, PhaseState, Plan, PlanState
from cleveragents.plans.pause import PlanPause
from cleveragents.plans.ports.plans import PlanDraft, PlanFacts, TreeLimits
from cleveragents.plans.store.sql_plan_store import SqlPlanStore
from tests.actor_plan_bench import ActorPlanBench, actor_plan_bench, answer, call, executes, says, strategizes
from tests.conditions import wait_until
from tests.plan_bench import new_repository

COMPLETE = (Phase.EXECUTE, PlanState.COMPLETE)
WAITING = (Phase.EXECUTE, PlanState.WAITING)
THOUGHT = {"question": "How?", "choice": "slowly", "rationale": "it fits"}
STEP = {"title": "it", "instructions": "do it"}
SLOW = "echo $$ > pid.log; sleep 600 & echo $! >> pid.log; setsid sleep 600 & echo half > half.txt; wait"
CAST = ("builtin/strategist", "builtin/executor", None)
DONE = says("done")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ActorPlanBench]:
    worker = {"heartbeat_seconds": 0.1, "cancel_grace_seconds": 1.0}
    with actor_plan_bench(tmp_path_factory.mktemp("pausing"), worker=worker) as made:
        yield made


@pytest.fixture
def bench(shared: ActorPlanBench, tmp_path: Path) -> ActorPlanBench:
    shared.repository = new_repository(tmp_path / "repository")
    return shared


def thinks(*more: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    said = says({"summary": "s", "decisions": [THOUGHT], "steps": [STEP]})
    return strategizes(said), *more


def pausing_of(bench: ActorPlanBench) -> PlanPause:
    return bench.parts.correction.pausing


def running(bench: ActorPlanBench) -> Plan:
    """Return a plan whose Execute phase is running."""
    plan = bench.reached(*thinks(executes(DONE)), cast=CAST)
    plan = bench.parts.lifecycle.queue(plan)
    return bench.parts.plans.move(plan, (Phase.EXECUTE, PlanState.PROCESSING), now=SystemClock().now())


def claimed(bench: ActorPlanBench, plan: Plan, *, alive: bool = False) -> Job:
    """Return its job, owned by a process that is gone, or by this one, which does not stop."""
    me = bench.container.processes.identity("me")
    owner = me if alive else WorkerIdentity("dead", me.host, 999_999_999, 1)
    job = bench.container.jobs.claim(owner, [kind_of_plan(plan.id)], now=SystemClock().now())
    assert job is not None
    return job


def test_pause_stops_all_processes_of_a_running_plan(
    bench: ActorPlanBench,
) -> None:
    quick = executes(
        answer(call("write", path="quick.txt", content="")), DONE, when={"first_user": "more quickly"}
    )
    slow = executes(answer(call("command", script=SLOW)), DONE)
    plan = bench.goal(bench.script(*thinks(quick, slow)), cast=CAST)
    handlers = {kind_of_plan(plan.id): JobHandler(bench.handler())}
    worker = bench.container.worker(handlers, name="other")
    worker.start()
    try:
        pids = _pids(bench, plan)
        kept, corrected = bench.parts.correction.correct(bench.now(plan), 1, "more quickly")
        assert not any(map(psutil.pid_exists, pids))
        assert kept.made.superseded == (1,)
        assert corrected.phase is Phase.STRATEGIZE
        # The previous owner of the plan may also have its new job.
        worker.run_until_idle(60)
    finally:
        worker.close()
    plan = bench.now(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert bench.diff(plan, "--name-only").split() == ["quick.txt"]
    jobs = [job for job in bench.container.jobs.list() if job.payload["plan_id"] == plan.id]
    assert [job.state for job in jobs] == [JobState.CANCELLED, JobState.SUCCEEDED]


def _pids(bench: ActorPlanBench, plan: Plan) -> list[int]:
    """Return the processes that its command started, once they exist."""
    pids: list[int] = []

    def are_there() -> bool:
        found = list((bench.home / "state" / "sandboxes").glob(f"{plan.id}/tree/pid.log"))
        pids[:] = [int(line) for path in found for line in path.read_text().split()]
        return len(pids) == 2 and (found[0].parent / "half.txt").exists()

    wait_until(are_there)
    return pids


def test_pauses_the_plan_of_a_dead_worker_at_once(bench: ActorPlanBench) -> None:
    plan = running(bench)
    job = claimed(bench, plan)
    paused = pausing_of(bench).pause(plan)
    assert paused.phase_state == WAITING
    assert bench.waited(plan)["for"] == "correction"
    assert bench.container.jobs.get(job.id).state is JobState.CANCELLED
    assert bench.resume(paused).phase_state == COMPLETE


def test_pauses_a_queued_plan_with_its_job(bench: ActorPlanBench) -> None:
    plan = bench.parts.lifecycle.queue(bench.reached(*thinks(executes(DONE)), cast=CAST))
    paused = pausing_of(bench).pause(plan)
    assert paused.phase_state == WAITING
    assert bench.container.jobs.get(str(plan.job_id)).state is JobState.CANCELLED
    # Other processes see a waiting plan, not a plan with a cancelled job.
    assert bench.parts.lifecycle.reconciled(paused) == paused


def test_a_plan_between_its_two_phases_waits_in_the_second(bench: ActorPlanBench) -> None:
    plan = bench.goal(bench.script(*thinks(executes(DONE))), cast=CAST)
    strategy = PlanFacts(strategy=bench.strategies[plan.id].to_json())
    for state in (PlanState.PROCESSING, PlanState.COMPLETE):
        plan = bench.parts.plans.move(plan, (Phase.STRATEGIZE, state), strategy, now=SystemClock().now())
    assert pausing_of(bench).pause(plan).phase_state == WAITING


def test_leaves_a_plan_at_rest_unchanged(bench: ActorPlanBench) -> None:
    plan = bench.reached(*thinks(executes(DONE)), cast=CAST)
    assert pausing_of(bench).pause(plan) == plan


class Hurrying(SqlPlanStore):
    """A store that runs an action just before the first move of the plan."""

    def __init__(self, bench: ActorPlanBench, *hurried: PhaseState) -> None:
        super().__init__(bench.container.database, bench.container.identifiers)
        self._hurried = [*hurried]

    def move(
        self,
        plan: Plan,
        wanted: PhaseState,
        facts: PlanFacts | None = None,
        *,
        now: datetime,
        fence: Fence | None = None,
    ) -> Plan:
        if self._hurried:
            super().move(self.get(plan.id), self._hurried.pop(0), now=now)
        return super().move(plan, wanted, facts, now=now, fence=fence)


def test_a_plan_that_completes_meanwhile_stays_complete(
    bench: ActorPlanBench,
) -> None:
    plan = running(bench)
    job = claimed(bench, plan, alive=True)

    def ended(seconds: float) -> None:
        outcome = AttemptOutcome(JobState.SUCCEEDED)
        bench.container.jobs.finish(job.id, job.fence, outcome, now=SystemClock().now())

    pausing = replace(pausing_of(bench), plans=Hurrying(bench, COMPLETE), sleep=ended)
    assert pausing.pause(plan).phase_state == COMPLETE
    over = bench.container.jobs.get(job.id)
    assert (over.state, over.cancel_reason) == (JobState.SUCCEEDED, None)


def test_gives_up_on_a_plan_that_others_keep_moving(bench: ActorPlanBench) -> None:
    plan = running(bench)
    on = [(Phase.EXECUTE, PlanState.PROCESSING)] * 20
    with pytest.raises(StalePlan):
        replace(pausing_of(bench), plans=Hurrying(bench, *on)).pause(plan)


class Hasty(SystemClock):
    """A clock that advances an hour at every reading."""

    def __init__(self) -> None:
        super().__init__()
        self._passed = 0.0

    def monotonic(self) -> float:
        self._passed += 3600.0
        return self._passed


def test_waiting_for_a_worker_has_a_deadline(bench: ActorPlanBench) -> None:
    plan = running(bench)
    job = claimed(bench, plan, alive=True)
    with pytest.raises(DeadlineExceeded, match="stopping plan"):
        replace(pausing_of(bench), clock=Hasty()).pause(plan)
    # The run is cancelled, and its moves of the plan are refused.
    assert bench.container.jobs.get(job.id).cancel_reason == "the plan is being corrected"
    with pytest.raises(StalePlan):
        bench.parts.plans.move(plan, COMPLETE, now=SystemClock().now(), fence=Fence(job.id, job.fence))


def test_refuses_to_pause_a_plan_with_a_pending_cancel(bench: ActorPlanBench) -> None:
    plan = running(bench)
    job = claimed(bench, plan)
    bench.container.jobs.request_cancel(job.id, "not wanted", now=SystemClock().now())
    with pytest.raises(PlanError, match="cancel is not finished"):
        pausing_of(bench).pause(plan)


def test_pause_cancels_unfinished_sub_plans_only(bench: ActorPlanBench) -> None:
    parent = running(bench)
    job = claimed(bench, parent)
    fence = Fence(job.id, job.fence)
    new = PlanDraft("a part", "tests/goal", str(bench.repository))
    made = {}
    for key, standing in {"1": COMPLETE, "2": WAITING, "3": (Phase.EXECUTE, PlanState.QUEUED)}.items():
        now = SystemClock().now()
        child = bench.parts.plans.spawn(parent, new, key, TreeLimits(), now=now, fence=fence)
        child = bench.parts.lifecycle.queue(child)
        for moved in (
            (Phase.STRATEGIZE, PlanState.PROCESSING),
            (Phase.STRATEGIZE, PlanState.COMPLETE),
            (Phase.EXECUTE, PlanState.QUEUED),
        ):
            child = bench.parts.plans.move(child, moved, now=now)
        if standing[1] is not PlanState.QUEUED:
            child = bench.parts.plans.move(child, (Phase.EXECUTE, PlanState.PROCESSING), now=now)
            child = bench.parts.plans.move(child, standing, now=now)
        made[key] = child
    kept = pausing_of(bench).pause(parent, sub_plans=False)
    assert [bench.now(child).state for child in made.values()] == [child.state for child in made.values()]
    waits = PlanFacts(waiting_for={"for": "sub-plans"})
    for standing in ((Phase.EXECUTE, PlanState.QUEUED), (Phase.EXECUTE, PlanState.PROCESSING), WAITING):
        kept = bench.parts.plans.move(kept, standing, waits, now=SystemClock().now())
    paused = pausing_of(bench).pause(kept)
    states = [bench.now(child).state.value for child in made.values()]
    assert states == ["complete", "cancelled", "cancelled"]
    # Otherwise the end of its sub-plan would wake it.
    assert bench.waited(paused)["for"] == "correction"
    assert bench.now(parent) == paused


def child_of(bench: ActorPlanBench, parent: Plan) -> tuple[Plan, Job]:
    """Return a sub-plan that this process owns and that does not stop by itself."""
    me = bench.container.processes.identity("me")
    owner = claimed(bench, parent)
    fence = Fence(owner.id, owner.fence)
    now = SystemClock().now()
    new = PlanDraft("a part", "tests/goal", str(bench.repository))
    child = bench.parts.plans.spawn(parent, new, "1", TreeLimits(), now=now, fence=fence)
    child = bench.parts.lifecycle.queue(child)
    job = bench.container.jobs.claim(me, [kind_of_plan(parent.id)], now=SystemClock().now())
    assert job is not None
    return bench.parts.plans.move(child, (Phase.STRATEGIZE, PlanState.PROCESSING), now=now), job


@pytest.mark.parametrize("heard", [True, False])
def test_waits_until_a_sub_plan_has_stopped(bench: ActorPlanBench, heard: bool) -> None:
    parent = running(bench)
    child, job = child_of(bench, parent)

    def stops(seconds: float) -> None:
        """Its run stops after the cancel, or it came to rest just before."""
        state = PlanState.CANCELLED if heard else PlanState.ERRORED
        now = SystemClock().now()
        if bench.now(child) == child:
            bench.parts.plans.move(child, (Phase.STRATEGIZE, state), now=now)
            bench.container.jobs.finish(job.id, job.fence, AttemptOutcome(JobState.SUCCEEDED), now=now)

    replace(pausing_of(bench), sleep=stops).pause(parent)
    assert bench.now(child).state is PlanState.CANCELLED


def test_waiting_for_a_sub_plan_has_a_deadline(bench: ActorPlanBench) -> None:
    parent = running(bench)
    child, _ = child_of(bench, parent)
    with pytest.raises(DeadlineExceeded, match=child.id):
        replace(pausing_of(bench), clock=Hasty()).pause(parent)


@pytest.mark.parametrize("job_id", [None, "gone"])
def test_pauses_a_plan_without_a_job(bench: ActorPlanBench, job_id: str | None) -> None:
    new = PlanDraft("a goal", "tests/goal", str(bench.repository))
    plan = bench.parts.plans.create(new, now=SystemClock().now())
    facts = PlanFacts(job_id=job_id)
    plan = bench.parts.plans.move(plan, (Phase.STRATEGIZE, PlanState.QUEUED), facts, now=SystemClock().now())
    assert pausing_of(bench).pause(plan).phase_state == (Phase.STRATEGIZE, PlanState.WAITING)


def test_refuses_to_pause_an_applying_plan(bench: ActorPlanBench) -> None:
    plan = bench.reached(*thinks(executes(DONE)), cast=CAST)
    for state in (PlanState.QUEUED, PlanState.PROCESSING):
        plan = bench.parts.plans.move(plan, (Phase.APPLY, state), now=SystemClock().now())
    with pytest.raises(PlanError, match="an apply is running"):
        pausing_of(bench).pause(plan)
