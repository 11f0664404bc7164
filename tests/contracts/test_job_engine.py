"""The `JobEngine` contract. Every engine is used through separate containers, as by separate processes."""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import msgspec
import pytest

from cleveragents.app.container import Container
from cleveragents.config.settings import Settings
from cleveragents.core.errors import (
    DuplicateKey,
    InvalidRequest,
    JobAlreadyEnded,
    QueueFull,
    UnknownJob,
)
from cleveragents.core.faults import FaultPoints
from cleveragents.jobs.engine import EngineWorker, JobEngine, WorkerRequest
from cleveragents.jobs.model.job import Job, JobState, Lane, NewJob
from cleveragents.jobs.ports import HandlerFunction, JobHandler
from cleveragents.jobs.worker.async_worker import AsyncJob
from tests.conditions import wait_until
from tests.postgres import PostgresServer
from tests.ready_database import ready_database
from tests.temporal_bench import settle_sdk, temporal_program, temporal_server

SECONDS = 60.0
QUEUE = "plans"
LEASE = 30.0
"""Long, so that on a busy machine no live worker counts as silent."""
WORKER = {
    "heartbeat_seconds": 0.5,
    "poll_seconds": 0.05,
    "cancel_grace_seconds": 2.0,
}


class Process(Protocol):
    """Creates the parts of another process."""

    def __call__(
        self, *, faults: FaultPoints | None = None, queue_bound: int = 100, lease_seconds: float = LEASE
    ) -> Container: ...


needs_temporal = pytest.mark.skipif(temporal_program() is None, reason="there is no Temporal server here")
ENGINES = [
    "embedded",
    pytest.param("embedded on postgresql", marks=pytest.mark.postgres),
    # Its server is a process; the version of Python does not matter to it.
    pytest.param("temporal", marks=[needs_temporal, pytest.mark.engine]),
]

if temporal_program() is not None:
    settle_sdk()


@pytest.fixture(scope="module")
def temporal() -> Iterator[Callable[[], str]]:
    """Return the address of one server for all tests, started at first use.

    Workflows of an earlier test are not in the next one's database, and end when a worker finds them.
    """
    with ExitStack() as stack:
        yield functools.cache(lambda: stack.enter_context(temporal_server()))


@pytest.fixture(params=ENGINES)
def process(
    request: pytest.FixtureRequest, tmp_path: Path, postgres: PostgresServer, temporal: Callable[[], str]
) -> Iterator[Process]:
    on_postgres = "postgresql" in request.param
    url = postgres.ready_url() if on_postgres else ready_database(tmp_path / "jobs.db")
    with ExitStack() as stack:
        engine = {"engine": "embedded"}
        if request.param == "temporal":
            engine = {"engine": "temporal", "temporal_address": temporal()}

        def made(
            *, faults: FaultPoints | None = None, queue_bound: int = 100, lease_seconds: float = LEASE
        ) -> Container:
            facts = {
                "state": {"directory": str(tmp_path)},
                "database": {"url": url},
                "worker": {**WORKER, "lease_seconds": lease_seconds},
                "jobs": {"queue_bound": queue_bound, **engine},
            }
            return stack.enter_context(Container(msgspec.convert(facts, Settings), faults=faults))

        yield made
    if on_postgres:
        postgres.drop(url)


def worker_of(
    engine: JobEngine,
    run: HandlerFunction,
    *,
    concurrency: int = 2,
    kind: str = "plan",
    queues: tuple[str, ...] = (QUEUE,),
) -> EngineWorker:
    return engine.run_worker(WorkerRequest({kind: JobHandler(run)}, "one", queues, concurrency))


def submit(engine: JobEngine, kind: str = "plan:1", **facts: object) -> Job:
    return engine.submit(NewJob(kind, **{"queue": QUEUE, **facts}))


def ended(engine: JobEngine, job: Job) -> Job:
    """Return the job, once it has ended."""
    wait_until(lambda: engine.get(job.id).state.ended)
    return engine.get(job.id)


def listed(engine: JobEngine, states: Collection[JobState], ids: Collection[str]) -> bool:
    """Return whether exactly these are listed eventually: an engine's list may lag behind."""
    wait_until(lambda: [job.id for job in engine.list(states=states)] == sorted(ids))
    return True


# ── submit, get, list ───────────────────────────────────────────────────────────────────────────


def test_every_process_sees_a_job_as_submitted(process: Process) -> None:
    mine, others = process().engine, process().engine
    made = submit(mine, "plan:1", payload={"plan_id": "x"}, priority=2, lanes=(Lane("a", 3),), key="k")
    assert made.state is JobState.QUEUED
    assert others.get(made.id) == made == mine.get(made.id)
    later = submit(others)
    assert listed(mine, (), [made.id, later.id])
    assert listed(mine, [JobState.RUNNING], [])
    assert [job.id for job in mine.list(after=made.id)] == [later.id]
    assert [job.id for job in mine.list(limit=1)] == [made.id]
    with pytest.raises(UnknownJob):
        mine.get("nobody")


def test_a_repeated_key_is_the_first_job(process: Process) -> None:
    mine, others = process().engine, process().engine
    made = submit(mine, key="once")
    assert submit(others, key="once") == made
    with pytest.raises(DuplicateKey):
        submit(others, "plan:2", key="once")


def test_a_full_queue_refuses_jobs_until_it_has_room(process: Process) -> None:
    mine, others = process(queue_bound=2).engine, process(queue_bound=2).engine
    first = submit(mine)
    submit(others)
    for engine in (mine, others):
        with pytest.raises(QueueFull):
            submit(engine)
    assert submit(mine, queue="").queue == ""  # private jobs are not limited
    others.cancel(first.id, "not wanted")
    submit(mine)


# ── running ─────────────────────────────────────────────────────────────────────────────────────


def test_a_worker_runs_jobs_of_any_process_and_all_see_the_result(process: Process) -> None:
    mine, others = process().engine, process().engine
    worker = worker_of(mine, lambda job: {"kind": job.kind, "given": job.payload["n"]})
    job = submit(others, "plan:7", payload={"n": 3})
    done = ended(others, job)
    assert (done.state, done.result, done.attempt) == (
        JobState.SUCCEEDED,
        {"kind": "plan:7", "given": 3},
        1,
    )
    assert listed(others, [JobState.SUCCEEDED], [job.id])
    worker.close()


def test_retries_a_failure_but_not_an_invalid_request(process: Process) -> None:
    engine = process().engine
    seen: list[tuple[str, int]] = []

    def run(job: AsyncJob) -> object:
        seen.append((job.kind, job.attempt))
        if job.kind == "plan:wrong":
            raise InvalidRequest
        if job.attempt == 1:
            raise OSError("the first time")
        return job.attempt

    worker_of(engine, run)
    wrong, unlucky = submit(engine, "plan:wrong"), submit(engine, "plan:unlucky")
    assert ended(engine, wrong).state is JobState.FAILED
    assert ended(engine, unlucky).result == 2
    assert Counter(seen) == {("plan:wrong", 1): 1, ("plan:unlucky", 1): 1, ("plan:unlucky", 2): 1}


def test_no_two_workers_run_the_same_job(process: Process) -> None:
    runs: list[str] = []

    def run(job: AsyncJob) -> object:
        runs.append(job.id)
        return None

    engines = [process().engine for _ in range(3)]
    for engine in engines:
        worker_of(engine, run, concurrency=3)
    jobs = [submit(engines[number % 3], f"plan:{number}") for number in range(18)]
    for job in jobs:
        assert ended(engines[0], job).state is JobState.SUCCEEDED
    assert Counter(runs) == {job.id: 1 for job in jobs}


def test_shared_limits_hold_across_workers(process: Process) -> None:
    lock = threading.Lock()
    running, most = 0, 0

    def run(job: AsyncJob) -> object:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        job.token.wait(0.02)
        with lock:
            running -= 1
        return None

    engines = [process().engine for _ in range(2)]
    lanes = (Lane("project:a", 2), Lane("provider:b", 50))
    jobs = [submit(engines[0], f"plan:{number}", lanes=lanes) for number in range(10)]
    for engine in engines:
        worker_of(engine, run, concurrency=4)
    for job in jobs:
        ended(engines[1], job)
    assert most <= 2


def test_a_worker_of_several_queues_keeps_its_concurrency(process: Process) -> None:
    engine, lock = process().engine, threading.Lock()
    running, most = 0, 0

    def run(job: AsyncJob) -> object:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        job.token.wait(0.1)
        with lock:
            running -= 1
        return None

    theirs = submit(engine, queue="plans@there")
    jobs = [submit(engine, f"plan:{name}", queue=name) for name in (QUEUE, "plans@here") for _ in range(3)]
    worker_of(engine, run, concurrency=2, queues=(QUEUE, "plans@here"))
    for job in jobs:
        assert ended(engine, job).state is JobState.SUCCEEDED
    assert most <= 2
    assert (engine.get(theirs.id).state, engine.get(theirs.id).attempt) == (JobState.QUEUED, 0)


def test_the_most_urgent_job_starts_first(process: Process) -> None:
    container = process()
    engine, order = container.engine, []
    began, release = threading.Event(), threading.Event()

    def run(job: AsyncJob) -> object:
        order.append(job.kind)
        if job.kind == "plan:first":
            began.set()
            release.wait(SECONDS)
        return None

    worker_of(engine, run, concurrency=1)
    first = submit(engine, "plan:first")
    assert began.wait(SECONDS)
    # While it is busy the others queue up, and the order must not depend on chance.
    jobs = [submit(engine, f"plan:{number}", priority=number) for number in (0, 1, -1, 2)]
    wait_until(lambda: all(is_in_line(container, job) for job in jobs))
    release.set()
    for job in (first, *jobs):
        ended(engine, job)
    assert order == ["plan:first", "plan:2", "plan:1", "plan:0", "plan:-1"]


def is_in_line(container: Container, job: Job) -> bool:
    """Return whether the engine has queued it."""
    if container.temporal is None:
        return True
    asked = container.temporal.run(lambda client: client.get_workflow_handle(job.id).describe())
    return len(asked.raw_description.pending_activities) == 1


# ── cancel ──────────────────────────────────────────────────────────────────────────────────────


def test_a_cancelled_queued_job_never_runs(process: Process) -> None:
    mine, others = process().engine, process().engine
    job = submit(mine)
    assert others.cancel(job.id, "not wanted").state is JobState.CANCELLED
    runs: list[str] = []
    worker_of(mine, lambda job: runs.append(job.id))
    ended(mine, submit(mine, "plan:other"))
    assert len(runs) == 1
    assert mine.get(job.id).cancel_reason == "not wanted"
    with pytest.raises(JobAlreadyEnded):
        mine.cancel(job.id, "once more")
    with pytest.raises(UnknownJob):
        mine.cancel("nobody", "not wanted")


@pytest.mark.parametrize("from_elsewhere", [True, False])
def test_a_cancel_stops_the_running_code(process: Process, from_elsewhere: bool) -> None:
    mine, others = process().engine, process().engine
    began = threading.Event()
    told: list[bool] = []

    def run(job: AsyncJob) -> object:
        began.set()
        told.append(job.token.wait(SECONDS))
        job.token.raise_if_cancelled()
        return None

    worker_of(mine, run)
    job = submit(mine)
    assert began.wait(SECONDS)
    (others if from_elsewhere else mine).cancel(job.id, "not wanted")
    after = ended(others, job)
    assert (after.state, after.cancel_reason, told) == (JobState.CANCELLED, "not wanted", [True])


# ── workers that end, and workers that are lost ─────────────────────────────────────────────────


def test_a_drained_worker_lets_its_job_end_and_claims_no_other(process: Process) -> None:
    engine = process().engine
    began, release = threading.Event(), threading.Event()

    def run(job: AsyncJob) -> object:
        began.set()
        return release.wait(SECONDS)

    worker_of(engine, run, concurrency=1)
    job = submit(engine)
    assert began.wait(SECONDS)
    waiting = submit(engine, "plan:2")
    drained: list[bool] = []
    draining = threading.Thread(target=lambda: drained.append(engine.drain(SECONDS)))
    draining.start()
    release.set()
    draining.join(SECONDS)
    assert drained == [True]
    assert engine.get(job.id).state is JobState.SUCCEEDED
    assert engine.get(waiting.id).state is JobState.QUEUED


def test_a_job_that_does_not_end_in_time_moves_to_another_worker(process: Process) -> None:
    mine, others = process().engine, process().engine
    began = threading.Event()

    def first(job: AsyncJob) -> object:
        began.set()
        job.token.wait(SECONDS)
        job.token.raise_if_cancelled()
        return None

    worker = worker_of(mine, first)
    job = submit(mine)
    assert began.wait(SECONDS)
    assert worker.drain(0) is False
    worker_of(others, lambda job: job.attempt)
    after = ended(others, job)
    assert (after.state, after.result) == (JobState.SUCCEEDED, 2)
    worker.close()
    worker.close()


class Cut:
    """Once cut, no heartbeat of the process arrives."""

    def __init__(self) -> None:
        self.off = threading.Event()

    def reach(self, name: str) -> None:
        if name == "job.heartbeat.before" and self.off.is_set():
            raise ConnectionError("cut off")


def test_the_job_of_a_silent_worker_moves_and_the_silent_one_stops(process: Process) -> None:
    """It also returns with a result, which is refused; the job has the other worker's."""
    cut = Cut()
    mine, others = (process(faults=faults, lease_seconds=2).engine for faults in (cut, None))
    began, told = threading.Event(), threading.Event()

    def first(job: AsyncJob) -> object:
        began.set()
        if job.token.wait(SECONDS):
            told.set()
        return "of the silent one"

    worker_of(mine, first, concurrency=1)
    job = submit(mine, max_attempts=10)
    assert began.wait(SECONDS)
    cut.off.set()
    # It claims nothing else meanwhile: it could get its own job again.
    draining = threading.Thread(target=mine.drain, args=(SECONDS,))
    draining.start()
    worker_of(others, lambda job: ["of the other", job.fence > 1])
    after = ended(others, job)
    assert told.wait(SECONDS)
    assert (after.state, after.result) == (JobState.SUCCEEDED, ("of the other", True))
    draining.join(SECONDS)
    assert others.get(job.id) == after


def test_an_engine_has_its_name_in_the_settings(process: Process) -> None:
    container = process()
    assert container.engine.name == container.settings.jobs.engine
    assert container.engine is container.engine
