"""Jobs of a shared queue: plans finish without a terminal, applies and undos happen once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace as changed

from cleveragents.api.plans.apply_jobs import apply_later
from cleveragents.apply.lock import resource_lock
from cleveragents.apply.ports import Applier, ApplyOptions
from cleveragents.core.cancellation import resumable_stop
from cleveragents.core.errors import ApplyRefused, Cancelled, PlanError, RemoteMoved, StalePlan
from cleveragents.core.identifiers import Fence, WorkerIdentity
from cleveragents.jobs.model.job import HANDED_ON, AttemptOutcome, Job, JobState, NewJob
from cleveragents.jobs.worker.async_worker import AsyncJob, CancellationToken
from cleveragents.plans.apply_policy import apply_if_allowed, can_retry_apply, should_apply
from cleveragents.plans.jobs.names import phase_of
from cleveragents.plans.jobs.shared_jobs import ApplyJob, PlanJob, PlanObserver, UndoJob, cancel_plan_of
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.strategy import Strategy
from cleveragents.sandboxes.git_sandbox import Sandbox
from tests.apply_bench import git
from tests.crash.programs.shared_worker import shared_plan
from tests.plan_bench import PlanBench, check, command, edit, plan_bench, write

ANN = WorkerIdentity("ann", "another machine", 1, 1)
APPLIED = (Phase.APPLY, PlanState.APPLIED)


class Desk:
    """A bench that runs jobs by explicit calls, as a worker would."""

    def __init__(self, bench: PlanBench) -> None:
        self.bench = bench
        self.said: list[str] = []
        self.ended: list[str] = []
        watched = PlanObserver(lambda plan, line: self.said.append(line), self.ended.append)
        self.apply = ApplyJob(bench.parts, watched)
        self.undo = UndoJob(bench.parts, watched)
        self.run = PlanJob(bench.handler(), bench.parts, watched)

    def plan(self, *steps: object, profile: str = "full-auto", **request: object) -> Plan:
        facts = {name: request.pop(name) for name in ("checks",) if name in request}
        plan = shared_plan(self.bench, **request)
        self.bench.strategies[plan.id] = Strategy(
            steps or (write("made.txt", "made\n"),), **facts, profile=profile
        )
        return plan

    def now(self, plan: Plan) -> Plan:
        return self.bench.now(plan)

    def asked(self, kind: str, plan: Plan, **payload: object) -> AsyncJob:
        """Return a claimed job of a user."""
        new = NewJob(f"{kind}:{plan.id}", {"plan_id": plan.id, "by": "ada", **payload}, queue="plans")
        self.bench.container.jobs.submit(new, now=self.bench.container.clock.now())
        return self.claimed()

    def claimed(self, token: CancellationToken | None = None) -> AsyncJob:
        kinds = ["plan", "apply", "undo"]
        now = self.bench.container.clock.now()
        job = self.bench.container.jobs.claim(ANN, kinds, now=now, queues=["plans"])
        assert job is not None
        return view(job, token)

    def given_back(self, job: AsyncJob) -> AsyncJob:
        """Return the next attempt of the job."""
        now = self.bench.container.clock.now()
        self.bench.container.jobs.finish(job.id, job.fence, AttemptOutcome(JobState.QUEUED), now=now)
        return self.claimed()

    def done(self, *steps: object, **request: object) -> Plan:
        plan = self.plan(*steps, **{"apply": "review", **request})
        self.run(self.claimed())
        return self.now(plan)


def killed(desk: Desk, plan: Plan) -> Plan:
    """Return a plan whose apply was killed before its first change."""
    now = desk.bench.container.clock.now()
    for state in (PlanState.QUEUED, PlanState.PROCESSING):
        plan = desk.bench.parts.plans.move(plan, (Phase.APPLY, state), now=now)
    return plan


def view(job: Job, token: CancellationToken | None = None) -> AsyncJob:
    return AsyncJob(job.id, job.kind, job.payload, job.attempt, job.fence, token or CancellationToken(), {})


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with plan_bench(tmp_path, isolation="off") as bench:
        yield Desk(bench)


# ── plans ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("profile", "asked", "applied"),
    [
        ("full-auto", None, True),
        ("full-auto", "review", False),
        ("review", "auto", True),
        ("review", None, False),
    ],
)
def test_applies_automatically_if_policy_or_user_allow_it(
    desk: Desk, profile: str, asked: str | None, applied: bool
) -> None:
    plan = desk.plan(profile=profile, **({} if asked is None else {"apply": asked}))
    told = desk.run(desk.claimed())
    after = desk.now(plan)
    assert (after.phase_state == APPLIED) is applied
    assert told == {"plan": plan.id, "phase": after.phase.value, "state": after.state.value}
    assert (desk.bench.repository / "made.txt").exists() is applied
    assert desk.ended == [plan.id]


@pytest.mark.parametrize(
    ("profile", "request_", "applied"),
    [("full-auto", {}, True), ("full-auto", {"apply": "review"}, False), ("review", {}, False)],
)
def test_separate_phases_are_separate_claims_without_extra_attempts(
    desk: Desk, profile: str, request_: dict[str, str], applied: bool
) -> None:
    plans, jobs = desk.bench.parts.plans, desk.bench.container.jobs
    desk.run = replace(desk.run, run=replace(desk.bench.handler(), one_phase=True), phases_apart=True)
    plan = desk.plan(profile=profile, **request_)
    seen = []
    job = desk.claimed()
    while (told := desk.run(job)) is HANDED_ON:
        seen.append((phase_of(jobs.get(job.id), plans), job.attempt, job.fence))
        outcome = AttemptOutcome(JobState.QUEUED, handed_on=True)
        jobs.finish(job.id, job.fence, outcome, now=desk.bench.container.clock.now())
        job = desk.claimed()
    apart = [("execute", 1, 1), ("apply", 1, 2)]
    assert seen == apart[: 1 + applied]
    after = desk.now(plan)
    assert (after.phase_state == APPLIED) is applied
    assert told == {"plan": plan.id, "phase": after.phase.value, "state": after.state.value}


@pytest.mark.parametrize("reason", ["enough", resumable_stop("a sibling failed")])
@pytest.mark.parametrize("phases", [1, 2])
def test_cancelling_a_job_between_phases_cancels_its_plan(desk: Desk, phases: int, reason: str) -> None:
    """No worker runs it then. After the last look at its job, the first phase leaves a plan that waits for
    the next phase, and the second leaves a result that is not applied yet.
    """
    jobs, lifecycle = desk.bench.container.jobs, desk.bench.parts.lifecycle
    desk.run = replace(desk.run, run=replace(desk.bench.handler(), one_phase=True), phases_apart=True)
    plan = desk.plan()
    for done in range(phases):
        job = desk.claimed()
        assert desk.run(job) is HANDED_ON
        if done + 1 == phases:
            jobs.request_cancel(job.id, reason, now=desk.bench.container.clock.now())
        outcome = AttemptOutcome(JobState.QUEUED, handed_on=True)
        ended = jobs.finish(job.id, job.fence, outcome, now=desk.bench.container.clock.now())
    assert ended.state is JobState.CANCELLED
    cancel_plan_of(ended, lifecycle)
    cancel_plan_of(ended, lifecycle)
    stopped = PlanState.ERRORED if phases == 1 else PlanState.COMPLETE
    assert desk.now(plan).state is (PlanState.CANCELLED if reason == "enough" else stopped)


def test_a_cancelled_job_affects_only_its_own_plan(desk: Desk) -> None:
    jobs, lifecycle = desk.bench.container.jobs, desk.bench.parts.lifecycle
    plan = desk.done()
    for kind, payload in (("apply", {"plan_id": plan.id}), ("plan", {"plan_id": plan.id}), ("plan", {})):
        new = NewJob(f"{kind}:{plan.id}", payload, queue="plans")
        job = jobs.submit(new, now=desk.bench.container.clock.now())
        cancel_plan_of(jobs.request_cancel(job.id, "enough", now=job.created_at), lifecycle)
    own = jobs.get(str(plan.job_id))
    desk.bench.apply(plan)
    cancel_plan_of(changed(own, cancel_reason="enough"), lifecycle)
    assert desk.now(plan).phase_state == APPLIED, "and what has ended stays as it is"


def test_an_empty_result_needs_no_apply_phase(desk: Desk) -> None:
    """The answer of its executor is the result of the job."""
    desk.run = replace(desk.run, phases_apart=True)
    plan = desk.plan(command("true"), apply="auto")
    assert desk.run(desk.claimed()) is not HANDED_ON
    desk.bench.parts.sandboxes.remove(plan.id)
    assert should_apply(desk.bench.parts, desk.now(plan)) is False


def test_names_the_phase_of_a_job(desk: Desk) -> None:
    plans, jobs = desk.bench.parts.plans, desk.bench.container.jobs
    plan = desk.plan(apply="review")
    job = jobs.get(plan.job_id)
    assert phase_of(job, plans) == "strategize"
    assert phase_of(changed(job, kind=f"undo:{plan.id}"), plans) == "undo"
    assert phase_of(changed(job, id="new", payload={"plan_id": plan.id, "to": "execute/queued"}), plans) == (
        "execute"
    )
    assert phase_of(changed(job, payload={}), plans) == ""


def test_a_failed_check_ends_the_job_without_an_apply(desk: Desk) -> None:
    plan = desk.plan(checks=(check("false"),), apply="auto")
    desk.run(desk.claimed())
    assert desk.now(plan).phase is Phase.EXECUTE
    assert not (desk.bench.repository / "made.txt").exists()


def test_a_worker_that_lost_the_plan_does_not_apply_it(desk: Desk) -> None:
    plan = desk.plan(apply="auto")
    job = desk.claimed()
    lost = PlanJob(
        lambda job: (desk.bench.handler()(job), job.token.cancel("lease"))[0],
        desk.run.parts,
        desk.run.watched,
    )
    with pytest.raises(Cancelled):
        lost(job)
    assert desk.now(plan).phase_state == (Phase.EXECUTE, PlanState.COMPLETE)


def test_an_old_job_of_the_plan_applies_nothing(desk: Desk) -> None:
    plan = desk.plan(apply="auto")
    desk.bench.parts.lifecycle.resume(plan, model="openai/other")
    stale, current = desk.claimed(), desk.claimed()
    desk.bench.handler()(current)
    desk.run(stale)
    assert desk.now(plan).phase_state == (Phase.EXECUTE, PlanState.COMPLETE)
    desk.run(current)
    assert desk.now(plan).phase_state == APPLIED


def test_the_next_worker_applies_a_returned_job(desk: Desk) -> None:
    plan = desk.plan(apply="auto")
    token = CancellationToken()
    job = desk.claimed(token)
    answer = desk.bench.handler()(job)
    assert answer["state"] == "complete"
    token.cancel("the worker shuts down")
    with pytest.raises(Cancelled):
        desk.bench.parts.apply.apply(desk.now(plan), token)
    assert desk.now(plan).phase_state == (Phase.APPLY, PlanState.CONSTRAINED)
    desk.run(desk.given_back(job))
    assert desk.now(plan).phase_state == APPLIED


def test_a_blocked_apply_is_not_retried(desk: Desk) -> None:
    plan = desk.plan(edit("b.txt", "alpha", "beta"), apply="auto")
    job = desk.claimed()
    desk.bench.handler()(job)
    (desk.bench.repository / "b.txt").write_text("mine\n")
    with pytest.raises(PlanError):
        desk.apply.applied(job, desk.now(plan))
    constrained = desk.now(plan)
    assert constrained.state is PlanState.CONSTRAINED
    desk.run(desk.given_back(job))
    assert desk.now(plan) == constrained


def test_a_conflict_in_a_repeated_apply_is_stored_in_the_plan(desk: Desk) -> None:
    plan = desk.plan(edit("b.txt", "alpha", "beta"), apply="auto")
    job = desk.claimed()
    desk.bench.handler()(job)
    stopped = CancellationToken()
    stopped.cancel("the worker shuts down")
    with pytest.raises(Cancelled):
        desk.bench.parts.apply.apply(desk.now(plan), stopped)
    (desk.bench.repository / "b.txt").write_text("mine\n")
    assert desk.run(desk.given_back(job))["state"] == "constrained"
    assert "b.txt" in str(desk.now(plan).error)


def test_a_killed_apply_waits_for_another_and_is_repeated(desk: Desk) -> None:
    plan = desk.plan(apply="auto")
    job = desk.claimed()
    desk.bench.handler()(job)
    killed(desk, desk.now(plan))
    with ExitStack() as others:
        others.enter_context(resource_lock(desk.bench.repository, timeout_seconds=30))
        # Only a waiting apply reports that, and the other apply ends then.
        watched = PlanObserver(lambda plan, line: others.close())
        told = replace(desk.run, watched=watched)(desk.given_back(job))
    assert told["state"] == "applied"
    assert desk.bench.text("made.txt") == "made\n"


def test_the_next_worker_repeats_an_apply_stopped_while_waiting(
    desk: Desk,
) -> None:
    plan = desk.plan(apply="auto")
    token = CancellationToken()
    job = desk.claimed(token)
    # It waits for the lock of the files and is stopped as soon as it reports that.
    waits = replace(desk.run, watched=PlanObserver(lambda plan, line: token.cancel("the worker shuts down")))
    with resource_lock(desk.bench.repository, timeout_seconds=30), pytest.raises(Cancelled):
        waits(job)
    assert not desk.now(plan).state.running
    desk.run(desk.given_back(job))
    assert desk.now(plan).phase_state == APPLIED


@pytest.mark.parametrize("what", ["plan", "apply", "undo"])
def test_a_cancel_ends_a_waiting_takeover_at_once(desk: Desk, what: str) -> None:
    token = CancellationToken()
    if what == "plan":
        plan = desk.plan(apply="auto")
        job = desk.claimed()
        desk.bench.handler()(job)
        killed(desk, desk.now(plan))
        desk.given_back(job)
        again = view(desk.bench.container.jobs.get(job.id), token)
    else:
        plan = desk.done()
        if what == "undo":
            desk.apply(desk.asked("apply", plan))
        else:
            killed(desk, plan)
        again = replace(desk.asked(what, plan), token=token)
    before = desk.now(plan)
    # A waiting process reports that and is stopped then.
    watched = PlanObserver(lambda plan, line: token.cancel("not wanted"))
    handler = replace({"plan": desk.run, "apply": desk.apply, "undo": desk.undo}[what], watched=watched)
    with resource_lock(desk.bench.repository, timeout_seconds=30), pytest.raises(Cancelled):
        handler(again)
    assert desk.now(plan) == before, "nobody knows yet what was done"
    desk.bench.parts.apply.settle()
    assert desk.now(plan).state is (PlanState.APPLIED if what == "undo" else PlanState.ERRORED)


def test_a_cancelled_undo_changes_nothing(desk: Desk) -> None:
    plan = desk.done()
    desk.apply(desk.asked("apply", plan))
    token = CancellationToken()
    token.cancel("not wanted")
    with pytest.raises(Cancelled):
        desk.bench.parts.apply.undo(desk.now(plan), stop=token)
    assert desk.now(plan).phase_state == APPLIED
    assert desk.bench.text("made.txt") == "made\n"


@pytest.mark.parametrize("what", ["plan", "apply", "undo"])
def test_a_job_that_needs_a_person_ends_with_the_reason(desk: Desk, what: str) -> None:
    if what == "plan":
        plan = desk.plan(apply="auto")
        job = desk.claimed()
        desk.bench.handler()(job)
        killed(desk, desk.now(plan))
        again = desk.given_back(job)
    else:
        plan = killed(desk, desk.done())
        again = desk.asked(what, plan)
    away = changed(desk.bench.parts.apply, applier=OutOfReach(desk.bench.parts.apply.applier))
    handler = {"plan": desk.run, "apply": desk.apply, "undo": desk.undo}[what]
    parts = PartsWith(desk.bench.parts, away)
    with pytest.raises(PlanError, match=f"^plan {plan.id}: cannot end the interrupted apply .* out of reach"):
        replace(handler, parts=parts)(again)
    assert "out of reach" in desk.said[-1]
    assert desk.ended[-1] == plan.id


class OutOfReach:
    """An `Applier` that cannot end an interrupted apply, as with a missing disk."""

    def __init__(self, inner: Applier) -> None:
        self.undecided = inner.undecided

    @contextmanager
    def deciding(self, plan_id: str, resource: str, terms: ApplyOptions) -> Iterator[None]:
        raise ApplyRefused(plan_id, f"cannot end the interrupted apply of plan {plan_id}: out of reach")
        yield


class PartsWith:
    """The parts of a bench with another applier."""

    def __init__(self, parts: object, apply: object) -> None:
        self._parts = parts
        self.apply = apply

    def __getattr__(self, name: str) -> object:
        return getattr(self._parts, name)


class Moving:
    """An `Applier` whose branch moves in the first round; the second round is cancelled."""

    def __init__(self, inner: Applier, token: CancellationToken) -> None:
        self.undecided = inner.undecided
        self._inner = inner
        self._token = token
        self._rounds = 0

    @contextmanager
    def prepare(self, plan_id: str, sandbox: Sandbox, tree: str, terms: ApplyOptions) -> Iterator[object]:
        self._rounds += 1
        if self._rounds > 1:
            self._token.cancel("not wanted")
            self._token.raise_if_cancelled()
        with self._inner.prepare(plan_id, sandbox, tree, terms) as found:
            yield SimpleNamespace(merged=found.merged, conflicts=(), landed=True, apply=self._moved)

    def _moved(self, commit: object) -> None:
        raise RemoteMoved("there", "main")


def test_an_apply_cancelled_in_its_second_round_ends(desk: Desk) -> None:
    plan = desk.done()
    token = CancellationToken()
    moved = changed(desk.bench.parts.apply, applier=Moving(desk.bench.parts.apply.applier, token))
    with pytest.raises(Cancelled):
        moved.apply(plan, token)
    assert desk.now(plan).phase_state == (Phase.APPLY, PlanState.CONSTRAINED)


@pytest.mark.parametrize("moves", [1, 2], ids=["queued", "processing"])
def test_an_apply_that_stops_late_ends(desk: Desk, moves: int) -> None:
    """Its worker has ended the job meanwhile and continued without it: no other process looks at the plan."""
    plan = desk.done()
    job = desk.asked("apply", plan)
    container, plans = desk.bench.container, desk.bench.parts.plans
    made: list[object] = []

    class Slow:
        def __getattr__(self, name: str) -> object:
            return getattr(plans, name)

        def move(self, *given: object, **facts: object) -> object:
            made.append(plans.move(*given, **facts))
            if len(made) == moves:
                now = container.clock.now()
                container.jobs.request_cancel(job.id, "not wanted", now=now)
                container.jobs.finish(job.id, job.fence, AttemptOutcome(JobState.CANCELLED), now=now)
                job.token.cancel("not wanted")
            return made[-1]

    slow = changed(desk.bench.parts.apply, plans=Slow())
    with pytest.raises(Cancelled):
        slow.apply(plan, job.token, fence=Fence(job.id, job.fence))
    over = desk.now(plan)
    assert (over.phase_state, can_retry_apply(over)) == ((Phase.APPLY, PlanState.CONSTRAINED), True)
    assert not (desk.bench.repository / "made.txt").exists()
    assert desk.apply(desk.asked("apply", plan))["state"] == "applied"


# ── applies and undos ───────────────────────────────────────────────────────────────────────────


def test_a_result_is_applied_with_a_commit_and_undone_again(desk: Desk) -> None:
    plan = desk.done()
    assert desk.apply(desk.asked("apply", plan, commit="Make it"))["state"] == "applied"
    assert git(desk.bench.repository, "log", "-1", "--format=%s") == "Make it"
    assert desk.undo(desk.asked("undo", plan, commit=None))["state"] == "undone"
    assert not (desk.bench.repository / "made.txt").exists()


def test_a_repeated_apply_or_undo_succeeds_without_changes(desk: Desk) -> None:
    plan = desk.done()
    for _ in range(2):
        assert desk.apply(desk.asked("apply", plan))["state"] == "applied"
    (desk.bench.repository / "made.txt").write_text("mine now\n")
    assert desk.apply(desk.asked("apply", plan))["state"] == "applied"
    assert desk.bench.text("made.txt") == "mine now\n"
    (desk.bench.repository / "made.txt").write_text("made\n")
    for _ in range(2):
        assert desk.undo(desk.asked("undo", plan))["state"] == "undone"


def test_repeats_an_apply_killed_before_its_first_change(desk: Desk) -> None:
    plan = killed(desk, desk.done())
    assert desk.apply(desk.asked("apply", plan))["state"] == "applied"


@pytest.mark.parametrize("what", ["apply", "undo"])
def test_a_conflict_fails_the_job_without_a_retry(desk: Desk, what: str) -> None:
    plan = desk.done(edit("b.txt", "alpha", "beta"))
    if what == "undo":
        desk.apply(desk.asked("apply", plan))
    (desk.bench.repository / "b.txt").write_text("mine\n")
    job = desk.asked(what, plan)
    with pytest.raises(PlanError, match=r"b\.txt"):
        getattr(desk, what)(job)
    assert "b.txt" in desk.said[-1]
    assert desk.ended[-1] == plan.id
    assert desk.bench.text("b.txt") == "mine\n"


@pytest.mark.parametrize("what", ["apply", "undo"])
def test_a_cancelled_apply_or_undo_changes_nothing(desk: Desk, what: str) -> None:
    plan = desk.done()
    if what == "undo":
        desk.apply(desk.asked("apply", plan))
    before = desk.now(plan)
    job = desk.asked(what, plan)
    job.token.cancel("not wanted")
    with pytest.raises(Cancelled):
        getattr(desk, what)(job)
    assert desk.now(plan) == before


@pytest.mark.parametrize("what", ["apply", "undo"])
def test_a_plan_of_another_process_is_left_to_the_next_attempt(desk: Desk, what: str) -> None:
    plan = desk.done()
    if what == "undo":
        desk.apply(desk.asked("apply", plan))

    def moved(plan: Plan, *_: object, **__: object) -> object:
        raise StalePlan(plan.id, plan.version)

    busy = SimpleNamespace(taken_up=lambda plan, *_: plan, apply=moved, undo=moved)
    handler = (ApplyJob if what == "apply" else UndoJob)(
        SimpleNamespace(plans=desk.bench.parts.plans, apply=busy), PlanObserver()
    )
    with pytest.raises(StalePlan):
        handler(desk.asked(what, plan))


def test_a_result_that_was_not_requested_is_not_applied(desk: Desk) -> None:
    plan = desk.done()
    job = apply_later(desk.bench.container, plan.id, message=None, by="ada")
    claimed = desk.bench.container.jobs.claim(
        ANN, [job.kind], now=desk.bench.container.clock.now(), queues=["plans"]
    )
    assert claimed is not None
    now = desk.bench.container.clock.now()
    moved = desk.bench.parts.plans.move(plan, (Phase.EXECUTE, PlanState.COMPLETE), now=now)  # a withdrawal
    with pytest.raises(PlanError, match="has changed since"):  # not retried
        desk.apply(view(claimed))
    assert desk.now(plan) == moved
    assert not (desk.bench.repository / "made.txt").exists()


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_job_applies_only_the_result_of_the_moment_it_was_requested(desk: Desk, attempt: int) -> None:
    plan = desk.done()
    apply_later(desk.bench.container, plan.id, message=None, by="ada")
    job = desk.claimed()
    if attempt == 2:
        killed(desk, plan)
        job = desk.given_back(job)
        desk.bench.parts.apply.settle()
    edited(desk, plan, "bob's edit\n")
    with pytest.raises(PlanError, match="has changed since"):  # not retried
        desk.apply(job)
    assert desk.now(plan).phase_state != APPLIED
    assert not (desk.bench.repository / "made.txt").exists()


def edited(desk: Desk, plan: Plan, text: str) -> None:
    """Change the result as a person does: edit a file in the sandbox, and record it."""
    parts = desk.bench.parts
    (parts.sandboxes.open(plan.id).root / "made.txt").write_text(text, encoding="utf-8")
    parts.sandbox_edits.reread(desk.now(plan))


@pytest.mark.parametrize(
    ("profile", "request_", "applied"),
    [("full-auto", {"apply": "review"}, False), ("review", {}, False), ("full-auto", {}, True)],
)
def test_the_next_attempt_of_a_plan_repeats_only_an_automatic_apply(
    desk: Desk, profile: str, request_: dict[str, str], applied: bool
) -> None:
    plan = desk.plan(profile=profile, **request_)
    job = desk.claimed()
    desk.run.run(job)  # the worker dies when the plan is done, before its job ends
    killed(desk, desk.now(plan))  # the apply of a person, or the automatic one
    desk.bench.parts.apply.settle()
    desk.run(desk.given_back(job))
    assert (desk.now(plan).phase_state == APPLIED) is applied
    assert (desk.bench.repository / "made.txt").exists() is applied


def test_an_automatic_apply_takes_only_the_result_that_it_judged(desk: Desk) -> None:
    plan = desk.plan(apply="auto")
    desk.run.run(desk.claimed())
    parts = desk.bench.parts

    class Edited:
        """The parts, where a person changes the result while it is judged."""

        check_runs = SimpleNamespace(of_plan=lambda plan_id: edited(desk, plan, "unseen\n") or ())

        def __getattr__(self, name: str) -> object:
            return getattr(parts, name)

    told = list[str]()
    apply_if_allowed(Edited(), desk.now(plan), told.append)
    assert [line for line in told if "has changed since" in line] != []
    assert not (desk.bench.repository / "made.txt").exists()


def test_a_job_does_not_claim_the_apply_of_another_user(desk: Desk) -> None:
    plan = desk.done()
    late = desk.asked("apply", plan, version=plan.version)
    desk.apply(desk.asked("apply", plan, version=plan.version))
    with pytest.raises(PlanError, match="has changed since"):
        desk.apply(late)
    assert desk.now(plan).state is PlanState.APPLIED


def test_the_next_attempt_applies_the_requested_result(desk: Desk) -> None:
    plan = desk.done()
    job = desk.asked("apply", plan, version=plan.version)
    killed(desk, plan)
    desk.apply(desk.given_back(job))
    assert desk.now(plan).phase_state == APPLIED


def test_the_audit_log_names_the_user_of_an_apply_and_an_undo(desk: Desk) -> None:
    plan = desk.done()
    desk.apply(desk.asked("apply", plan, by="ada"))
    desk.undo(desk.asked("undo", plan, by="bob"))
    audit = desk.bench.container.audit
    audit.sequence_pending()
    told = [one.event for one in audit.read() if one.event.event_type.startswith("apply.")]
    assert [event.payload.get("by") for event in told] == ["ada", "ada", "bob", "bob"]


def test_a_refused_undo_states_its_reason_once(desk: Desk) -> None:
    plan = desk.done()
    desk.apply(desk.asked("apply", plan))
    (desk.bench.repository / "made.txt").write_text("somebody else's\n", encoding="utf-8")
    with pytest.raises(PlanError) as refused:
        desk.undo(desk.asked("undo", plan))
    said = str(refused.value)
    assert said.startswith(f"plan {plan.id}: still applied, the undo failed: it conflicts with")
    assert said.count(plan.id) == 1
    assert desk.now(plan).phase_state == APPLIED
