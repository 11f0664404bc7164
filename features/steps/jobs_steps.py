"""Steps about background jobs: a real worker with real processes on a store in memory."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import Any

from behave import given, then, when

from cleveragents.core.clock import SystemClock
from cleveragents.core.errors import JobAlreadyEnded, StaleFence
from cleveragents.core.identifiers import UlidSource, WorkerIdentity
from cleveragents.jobs.model.job import AttemptOutcome, JobState, NewJob
from cleveragents.jobs.ports import JobHandler
from cleveragents.jobs.process.supervisor import PsutilProcessSupervisor
from cleveragents.jobs.worker.async_worker import AsyncJob, AsyncWorker
from cleveragents.jobs.worker.attempt import WorkerOptions
from cleveragents.testing.job_store import InMemoryJobStore
from tests.crash.programs.job_handlers import WAYS_OUT
from tests.processes import PidPipe, lives

OPTIONS = WorkerOptions(
    poll_seconds=0.02, cancel_poll_seconds=0.02, cancel_grace_seconds=2.0, retry_seconds=0.01
)
TREE = "tests.crash.programs.job_handlers:grow_a_tree_and_hang"
ELSEWHERE = WorkerIdentity("silent", "another machine", 1, 1)


def _fail(job: AsyncJob) -> object:
    raise RuntimeError("it never works")


@given("a job worker on an empty job store")
def make_worker(context: Any) -> None:
    def wait(job: AsyncJob) -> None:
        context.started.set()
        job.token.wait(60)
        job.token.raise_if_cancelled()

    context.started = threading.Event()
    context.clock = SystemClock()
    context.store = InMemoryJobStore(UlidSource())
    handlers = {
        "return": JobHandler(lambda job: job.payload["value"]),
        "object": JobHandler(lambda job: object()),
        "fail": JobHandler(_fail),
        "wait": JobHandler(wait),
        "tree": JobHandler(target=TREE, isolation="process"),
    }
    context.worker = AsyncWorker(context.store, handlers, context.clock, PsutilProcessSupervisor(), OPTIONS)
    context.add_cleanup(context.worker.close)
    context.worker.start()


def _submit(context: Any, kind: str, attempts: int = 3, **payload: Any) -> None:
    context.job_id = context.worker.submit(NewJob(kind, payload, max_attempts=attempts)).id


@when("a job that returns 42 is submitted")
def submit_returning(context: Any) -> None:
    _submit(context, "return", value=42)


@when("a job that returns an object is submitted")
def submit_object(context: Any) -> None:
    _submit(context, "object")


@when("a job that always fails is submitted with {attempts:d} attempts")
def submit_failing(context: Any, attempts: int) -> None:
    _submit(context, "fail", attempts)


@when("a job that grows a tree of deaf processes is running")
def run_tree(context: Any) -> None:
    directory = context.temporary = tempfile.TemporaryDirectory()
    context.add_cleanup(directory.cleanup)
    pids = PidPipe(Path(directory.name))
    context.add_cleanup(pids.close)
    _submit(context, "tree", fifo=str(pids.path))
    context.tree = pids.read(len(WAYS_OUT) + 1)
    assert all(lives(pid) for pid in context.tree)


@when("a job that waits for its cancel is running")
def run_waiting(context: Any) -> None:
    _submit(context, "wait")
    assert context.started.wait(20)


@when("the job is cancelled")
def cancel(context: Any) -> None:
    assert context.worker.cancel(context.job_id, "enough").state is JobState.RUNNING
    context.worker.run_until_idle(60)


@when("the job worker is closed")
def close(context: Any) -> None:
    context.worker.close()


@given("a job that a worker claimed before it died")
def claimed_by_the_dead(context: Any) -> None:
    context.worker.close()
    now = context.clock.now()
    context.job_id = context.store.submit(NewJob("return", {"value": 42}), now=now).id
    mine = PsutilProcessSupervisor().identity("dead")
    dead = WorkerIdentity("dead", mine.host, mine.pid, mine.started_ticks + 1)
    context.store.claim(dead, ["return"], now=now)
    make_rescuer(context)


def make_rescuer(context: Any) -> None:
    handlers = {"return": JobHandler(lambda job: job.payload["value"])}
    context.worker = AsyncWorker(context.store, handlers, context.clock, PsutilProcessSupervisor(), OPTIONS)
    context.add_cleanup(context.worker.close)
    context.worker.start()


@given("a job that a peer has taken from its silent owner")
def taken(context: Any) -> None:
    context.worker.close()
    now = context.clock.now()
    context.job_id = context.store.submit(NewJob("return", {"value": 1}), now=now).id
    context.store.claim(ELSEWHERE, ["return"], now=now)
    context.store.reclaim(context.job_id, 1, 0, error="silent", now=now)
    context.store.claim(PsutilProcessSupervisor().identity("peer"), ["return"], now=now)


@when("the job's old owner wants to finish the job")
def finish_late(context: Any) -> None:
    context.refusal = None
    try:
        outcome = AttemptOutcome(JobState.SUCCEEDED, result="late")
        context.store.finish(context.job_id, 1, outcome, now=context.clock.now())
    except StaleFence as refusal:
        context.refusal = refusal


@then("the old owner of the job is refused, and the job is still the peer's")
def refused(context: Any) -> None:
    assert context.refusal is not None
    job = context.store.get(context.job_id)
    assert (job.state, job.fence, job.owner.id, job.result) == (JobState.RUNNING, 2, "peer", None)


def _ended(context: Any) -> Any:
    context.worker.run_until_idle(60)
    return context.store.get(context.job_id)


@then("the job is succeeded with the result {result:d}")
def succeeded(context: Any, result: int) -> None:
    job = _ended(context)
    assert (job.state, job.result) == (JobState.SUCCEEDED, result), job


@then("the job is failed after attempt {attempt:d}")
def failed(context: Any, attempt: int) -> None:
    job = _ended(context)
    assert (job.state, job.attempt) == (JobState.FAILED, attempt), job


@then('the error of the job names "{text}"')
def error_names(context: Any, text: str) -> None:
    assert text in context.store.get(context.job_id).error


@then("the job is cancelled")
def is_cancelled(context: Any) -> None:
    assert _ended(context).state is JobState.CANCELLED


@then("no process of the job is alive")
def none_alive(context: Any) -> None:
    assert [pid for pid in context.tree if lives(pid)] == []


@then("a second cancel of the job says that it has ended, and changes nothing")
def second_cancel(context: Any) -> None:
    before = context.store.get(context.job_id)
    try:
        context.worker.cancel(context.job_id)
    except JobAlreadyEnded:
        assert context.store.get(context.job_id) == before
        return
    raise AssertionError("the second cancel was accepted")


@then("the job needed {attempts:d} attempts")
def needed(context: Any, attempts: int) -> None:
    assert context.store.get(context.job_id).attempt == attempts


@then("the job is queued again")
def queued_again(context: Any) -> None:
    assert context.store.get(context.job_id).state is JobState.QUEUED
