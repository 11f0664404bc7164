"""The demo's graphs go on where they stopped, and its judges believe only what they see."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from cleveragents.application.container import Container
from cleveragents.application.services.async_worker import AsyncJob, CancellationToken
from cleveragents.application.services.job_handlers import JobHandler
from cleveragents.application.services.plan_execution_context import PlanExecutionContext
from cleveragents.domain.change import ChangeEntry, ChangeKind
from cleveragents.domain.event import EventType
from cleveragents.domain.job import Job, JobState, NewJob, Outcome
from cleveragents.domain.plan import PlanState
from cleveragents.errors import Cancelled, JobAlreadyEnded
from cleveragents.infrastructure.jobs.process_supervisor import PsutilProcessSupervisor
from cleveragents.interfaces.cli.demo import Performance, conclude
from cleveragents.interfaces.cli.output import Output
from cleveragents.interfaces.demo.graphs import MIGRATED
from cleveragents.interfaces.demo.handlers import MIGRATE, REVIEW, STUBBORN, demo_handlers
from cleveragents.interfaces.demo.plan_promises import PlanEvidence, gather_plans, judge_plans
from cleveragents.interfaces.demo.plan_story import COUNTED, PlanStory, PlanTroupe
from cleveragents.interfaces.demo.promise import Promise
from cleveragents.interfaces.demo.promises import Evidence, gather, judge
from cleveragents.interfaces.demo.story import Story, demo_settings
from cleveragents.interfaces.demo.stubborn import refuse_to_stop
from cleveragents.interfaces.demo.worker_process import WorkerProcess


class Stage:
    """A container with the demo's handlers, on which a test plays the parts of the workers itself."""

    def __init__(self, container: Container) -> None:
        self.container = container
        self.handlers: dict[str, JobHandler] = demo_handlers(container)
        self.story = Story(exit_codes={"worker-1": 0, "worker-2": -9})

    def submit(self, kind: str) -> str:
        job = self.container.jobs.submit(NewJob(kind), now=self.container.clock.now())
        self.story.labels[job.id] = f"{kind}-1"
        return job.id

    def claim(self, kind: str, worker: str) -> Job:
        identity = self.container.processes.identity(worker)
        job = self.container.jobs.claim(identity, [kind], now=self.container.clock.now())
        assert job is not None
        return job

    def run(self, job: Job, token: CancellationToken) -> object:
        run = self.handlers[job.kind].run
        assert run is not None
        return run(AsyncJob(job.id, job.kind, job.payload, job.attempt, job.fence, token, {}))

    def finish(self, job: Job, outcome: Outcome) -> None:
        self.container.jobs.finish(job.id, job.fence, outcome, now=self.container.clock.now())

    def succeed(self, kind: str, worker: str) -> None:
        job = self.claim(kind, worker)
        self.finish(job, Outcome(JobState.SUCCEEDED, self.run(job, CancellationToken())))

    def play_cancel(self) -> None:
        self.story.stubborn = self.submit(STUBBORN)
        job = self.claim(STUBBORN, "worker-1")
        self.story.stubborn_fence = job.fence
        self.story.stubborn_pids = (1, 2)
        self.container.jobs.request_cancel(job.id, "enough", now=self.container.clock.now())
        self.finish(job, Outcome(JobState.CANCELLED))
        with pytest.raises(JobAlreadyEnded) as already:
            self.container.jobs.request_cancel(job.id, "again", now=self.container.clock.now())
        self.story.second_cancel = already.value.state

    def play_recovery(self, done: int) -> None:
        self.story.migration = self.submit(MIGRATE)
        self.story.killed_worker = "worker-2"
        self.story.changes_before_kill = done
        job = self.claim(MIGRATE, "worker-2")
        plan = PlanExecutionContext(job.id, self.container.changesets)
        changeset = plan.start_changeset()
        for path in MIGRATED[:done]:
            plan.record_change(ChangeEntry(ChangeKind.MODIFY, path), changeset, key=path)
        now = self.container.clock.now()
        self.container.jobs.reclaim(job.id, job.fence, job.beat, error="its worker died", now=now)
        self.succeed(MIGRATE, "worker-1")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Container(demo_settings(tmp_path)) as container:
        yield Stage(container)


def broken(stage: Stage, story: Story, evidence: Evidence) -> list[str]:
    return [promise.what for promise in judge(stage.container, story, evidence) if not promise.kept]


def with_job(evidence: Evidence, kind: str, **changes: object) -> Evidence:
    jobs = {
        job_id: replace(job, **changes) if job.kind == kind else job for job_id, job in evidence.jobs.items()
    }
    return replace(evidence, jobs=jobs)


def without(evidence: Evidence, event_type: EventType) -> Evidence:
    kept = [record for record in evidence.records if record.event.event_type is not event_type]
    return replace(evidence, records=kept)


def misfiled(evidence: Evidence) -> Evidence:
    [review] = [job for job in evidence.jobs.values() if job.kind == REVIEW]
    result = dict(review.result)
    (one, first), (two, second), *rest = result["changesets"]
    return with_job(evidence, REVIEW, result={**result, "changesets": [(one, second), (two, first), *rest]})


Doctored = Callable[[Story, Evidence], tuple[Story, Evidence]]

CASES: dict[str, Doctored] = {
    "every review succeeded": lambda s, e: (s, with_job(e, REVIEW, state=JobState.FAILED)),
    "each change is in the changeset of its branch, once": lambda s, e: (s, misfiled(e)),
    "a failing context strategy is cut off, the others serve": lambda s, e: (
        s,
        without(e, EventType.BREAKER_OPENED),
    ),
    "cancel means cancelled": lambda s, e: (s, with_job(e, STUBBORN, state=JobState.SUCCEEDED)),
    "no process of a cancelled job survives": lambda s, e: (replace(s, stubborn_pids=()), e),
    "a second cancel says so and does nothing": lambda s, e: (replace(s, second_cancel=""), e),
    "a peer recovers the job of a killed worker": lambda s, e: (s, without(e, EventType.JOB_RECLAIMED)),
    "nothing is lost or done twice by it": lambda s, e: (replace(s, changes_before_kill=0), e),
    "every job began and ended once in the log": lambda s, e: (s, without(e, EventType.JOB_SUBMITTED)),
    "the audit log is whole": lambda s, e: (s, replace(e, problems=["row 3: it was removed"])),
    "nothing is left behind": lambda s, e: (replace(s, exit_codes={"worker-1": 1}), e),
}


def test_what_went_well_is_kept_and_each_promise_can_be_broken(stage: Stage) -> None:
    stage.submit(REVIEW)
    stage.succeed(REVIEW, "worker-1")
    stage.play_cancel()
    stage.play_recovery(done=12)
    evidence = gather(stage.container)
    assert broken(stage, stage.story, evidence) == []
    shown = [promise.shown_by for promise in judge(stage.container, stage.story, evidence)]
    assert "0 processes, 1 worker ended cleanly" in shown
    assert [promise.what for promise in judge(stage.container, stage.story, evidence)] == list(CASES)
    for promise, doctor in CASES.items():
        assert promise in broken(stage, *doctor(stage.story, evidence))


def test_a_cancelled_graph_job_stops_at_its_next_step(stage: Stage) -> None:
    stage.submit(MIGRATE)
    job = stage.claim(MIGRATE, "worker-1")
    token = CancellationToken()
    token.cancel("enough")
    with pytest.raises(Cancelled):
        stage.run(job, token)
    assert [changeset.length for changeset in stage.container.changesets.of_plan(job.id)] in ([], [0])


def test_a_broken_promise_fails_the_demo_and_keeps_what_happened(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "worker-1.log").write_text("it all began…")
    promises = [Promise("cancel means cancelled", False, "stubborn-1 is running")]
    performance = Performance(Story(), Evidence({}, [], ["row 3: it was removed"]), None, promises)
    assert conclude(Output("plain"), performance, tmp_path, 1.0) == 1
    said = capfd.readouterr()
    assert "0 events, NOT verified; NOT every promise was kept; 1.0 s" in said.out
    assert said.err.endswith(f"a promise was not kept; what happened is in {tmp_path}\n")
    assert (tmp_path / "worker-1.log").exists()


def test_the_end_of_the_log_is_shown_and_all_of_it_on_demand(
    stage: Stage, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(13):
        stage.submit(REVIEW)
    evidence = gather(stage.container)

    def shown(count: int, **options: bool) -> list[int]:
        (tmp_path / "stage").mkdir()
        told = Performance(stage.story, replace(evidence, records=evidence.records[:count]), None, [])
        assert conclude(Output("plain"), told, tmp_path / "stage", 1.0, **options) == 0
        said = capfd.readouterr().out
        hint = "The audit log: the last 12 of 13 events (`agents demo --verbose` shows all)"
        assert (hint in said) == (count == 13 and not options)
        assert f"{count} events, verified; 0 promises kept; 1.0 s" in said
        log = said.split("The plans")[0]
        return [int(line.split()[0]) for line in log.splitlines() if line[:1].isdigit()]

    assert shown(12) == list(range(1, 13))
    assert shown(13) == list(range(2, 14))
    assert shown(13, verbose=True) == list(range(1, 14))


def test_the_stubborn_job_leaves_processes_that_only_force_ends() -> None:
    supervisor = PsutilProcessSupervisor()
    marked = {**os.environ, **supervisor.environment("stubborn-test:1")}
    program = f"from {refuse_to_stop.__module__} import refuse_to_stop as run; run(None, seconds=0.3)"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env=marked,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    shells = supervisor.alive("stubborn-test:1")
    assert (ended.returncode, len(shells) >= 2) == (1, True)
    for pid in shells:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    assert len(supervisor.alive("stubborn-test:1")) >= 2
    supervisor.end("stubborn-test:1", grace_seconds=0)
    assert supervisor.alive("stubborn-test:1") == []


# ── Plans ─────────────────────────────────────────────────────────────────────────────────────────

PlansDoctored = Callable[[PlanStory, PlanEvidence, Evidence], tuple[PlanStory, PlanEvidence, Evidence]]


def with_plan(found: PlanEvidence, label: str, state: PlanState) -> PlanEvidence:
    return replace(found, plans={**found.plans, label: replace(found.plans[label], state=state)})


def with_file(found: PlanEvidence, path: str, text: str) -> PlanEvidence:
    return replace(found, files={**found.files, path: text})


README, VERSION, PAINT = "README.md", "src/version.py", "src/paint.py"

PLAN_CASES: dict[str, list[PlansDoctored]] = {
    "nothing is written before you apply it": [
        lambda s, f, e: (replace(s, when_ready="another"), f, e),
        lambda s, f, e: (replace(s, diffs={**s.diffs, "spelling": ""}), f, e),
    ],
    "two plans that edit the same files both apply": [
        lambda s, f, e: (s, with_file(f, PAINT, f.files[PAINT].replace("color", "colour")), e),
        lambda s, f, e: (s, with_file(f, PAINT, f.files[PAINT].partition("\n")[2]), e),
    ],
    "what conflicts with your edit is refused, all of it": [
        lambda s, f, e: (s, with_file(f, README, f.files[README].replace("1.0", "2.0")), e),
        lambda s, f, e: (s, with_file(f, VERSION, f.files[VERSION].replace("1.1", "2.0")), e),
        lambda s, f, e: (replace(s, refusal="no"), f, e),
        lambda s, f, e: (s, f, without(e, EventType.PLAN_MOVED)),
    ],
    "undo takes out one plan, and no other": [
        lambda s, f, e: (s, with_file(f, "CHANGELOG.md", "* one"), e),
        lambda s, f, e: (s, with_plan(f, "changelog", PlanState.APPLIED), e),
    ],
    "no process of a cancelled plan survives": [
        lambda s, f, e: (replace(s, endless_pids=()), f, e),
        lambda s, f, e: (s, with_plan(f, "endless", PlanState.COMPLETE), e),
    ],
    "a plan is cancelled once": [lambda s, f, e: (replace(s, second_cancel=""), f, e)],
    "a killed plan goes on, and does nothing twice": [
        lambda s, f, e: (s, with_file(f, COUNTED, "1\n2\n3\n4\n" + f.files[COUNTED]), e),
        lambda s, f, e: (replace(s, steps_before_kill=0), f, e),
        lambda s, f, e: (s, f, without(e, EventType.JOB_CLAIMED)),
    ],
    "every apply is done, or not at all": [
        lambda s, f, e: (s, f, without(e, EventType.APPLY_ENDED)),
        lambda s, f, e: (s, replace(f, open_applies=1), e),
        lambda s, f, e: (s, replace(f, laid_out=["01M7"]), e),
    ],
    "branches, index, stash and uncommitted files stay": [
        lambda s, f, e: (s, replace(f, damage="missing blob"), e),
        lambda s, f, e: (s, replace(f, refs=f.refs + "refs/stash"), e),
        lambda s, f, e: (s, with_file(f, "notes.txt", ""), e),
    ],
    "no sandbox and no ref of ours is left": [
        lambda s, f, e: (s, replace(f, sandboxes=["01M7"]), e),
        lambda s, f, e: (s, replace(f, refs=f.refs + "refs/cleveragents/base/01M7"), e),
    ],
}


def test_the_plans_are_played_on_real_processes_and_each_promise_can_be_broken(tmp_path: Path) -> None:
    told: list[str] = []

    def say(what: str, *details: str) -> None:
        told.extend([what, *details])

    story = PlanStory()
    with Container(demo_settings(tmp_path)) as container:
        crew, doomed = (
            WorkerProcess(name, container.settings, tmp_path / "log", "plans") for name in ("one", "two")
        )
        try:
            PlanTroupe(container, story, say).play(crew, doomed)
        finally:
            codes = [worker.finish() for worker in (crew, doomed)]
        found, evidence = gather_plans(container, story), gather(container)

        def broken_now(story: PlanStory, found: PlanEvidence, evidence: Evidence) -> list[str]:
            return [p.what for p in judge_plans(container, story, found, evidence) if not p.kept]

        assert broken_now(story, found, evidence) == []
        assert [p.what for p in judge_plans(container, story, found, evidence)] == list(PLAN_CASES)
        for promise, doctored in PLAN_CASES.items():
            for doctor in doctored:
                assert promise in broken_now(*doctor(story, found, evidence))
    assert codes == [0, -signal.SIGKILL]
    assert max(map(len, told)) + 11 <= 80
    assert {"+def mix(color, amount):", '  | VERSION = "1.1"', '  | VERSION = "2.0"'} <= set(told)
