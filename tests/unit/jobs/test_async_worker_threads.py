"""The worker with its own threads, on the real clock and real processes."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import structlog
from msgspec.structs import replace

from cleveragents.core.clock import SystemClock
from cleveragents.core.errors import DatabaseUnreachable, JobAlreadyEnded, StoreBusy
from cleveragents.jobs.model.job import JobState, NewJob
from cleveragents.jobs.ports import JobHandler
from cleveragents.jobs.process.supervisor import PsutilProcessSupervisor
from cleveragents.jobs.service_thread import ServiceThread
from cleveragents.jobs.worker.async_worker import AsyncJob, AsyncWorker
from cleveragents.jobs.worker.attempt import WorkerOptions
from cleveragents.testing.clock import CountingIdentifiers
from cleveragents.testing.job_store import InMemoryJobStore
from tests.crash.programs.job_handlers import WAYS_OUT
from tests.processes import PidPipe, lives

HANDLERS = "tests.crash.programs.job_handlers"
OPTIONS = WorkerOptions(
    poll_seconds=0.02,
    cancel_poll_seconds=0.02,
    cancel_grace_seconds=0.4,
    leftover_grace_seconds=10,
    retry_seconds=0.01,
)


class Setting:
    """A store, and workers that are closed at the end of the test."""

    def __init__(self) -> None:
        self.store = InMemoryJobStore(CountingIdentifiers(f"job-{os.getpid()}"))
        self.workers: list[AsyncWorker] = []

    def worker(self, handlers: Mapping[str, JobHandler], **changes: object) -> AsyncWorker:
        options = replace(OPTIONS, **changes)
        worker = AsyncWorker(self.store, handlers, SystemClock(), PsutilProcessSupervisor(), options)
        self.workers.append(worker)
        worker.start()
        return worker


@pytest.fixture
def setting() -> Iterator[Setting]:
    made = Setting()
    yield made
    for worker in made.workers:
        worker.close()


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[PidPipe]:
    pipe = PidPipe(tmp_path)
    yield pipe
    pipe.close()


def test_many_jobs_by_several_workers_each_exactly_once(setting: Setting) -> None:
    ran: list[str] = []
    handlers = {"count": JobHandler(lambda job: ran.append(job.id))}
    workers = [setting.worker(handlers, name=f"w{n}") for n in range(3)]
    ids = [workers[n % 3].submit(NewJob("count")).id for n in range(300)]
    workers[0].run_until_idle(60)
    assert sorted(ran) == sorted(ids)
    for worker in workers:
        worker.close()
    assert sum(worker.statistics().succeeded for worker in workers) == 300
    for worker in workers:
        worker.close()


def test_no_more_jobs_at_once_than_the_worker_is_allowed(setting: Setting) -> None:
    running: list[int] = []
    most: list[int] = []
    everyone = threading.Barrier(3)

    def run(job: AsyncJob) -> None:
        running.append(1)
        most.append(len(running))
        everyone.wait(20)
        running.pop()

    worker = setting.worker({"meet": JobHandler(run)}, concurrency=3)
    for _ in range(9):
        worker.submit(NewJob("meet"))
    worker.run_until_idle(60)
    assert max(most) == 3


def test_a_failed_attempt_is_repeated_by_itself(setting: Setting) -> None:
    def run(job: AsyncJob) -> int:
        if job.attempt < 3:
            raise RuntimeError("not yet")
        return job.attempt

    worker = setting.worker({"later": JobHandler(run)})
    job_id = worker.submit(NewJob("later")).id
    worker.run_until_idle(60)
    assert setting.store.get(job_id).result == 3


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_cancel_ends_the_job_and_all_its_processes(setting: Setting, pids: PidPipe, isolation: str) -> None:
    """Of a thread's processes those that keep their environment; of a process's own, every one."""

    def run(job: AsyncJob) -> None:
        script = f"trap '' TERM; echo $$ >'{pids.path}'; exec sleep 1000"
        subprocess.run(["setsid", "sh", "-c", script], env={**os.environ, **job.environment}, check=True)

    hang = JobHandler(target=f"{HANDLERS}:grow_a_tree_and_hang", isolation="process")
    worker = setting.worker({"hang": JobHandler(run) if isolation == "thread" else hang})
    job_id = worker.submit(NewJob("hang", {"fifo": str(pids.path)})).id
    tree = pids.read(1 if isolation == "thread" else len(WAYS_OUT) + 1)
    assert all(lives(pid) for pid in tree)
    assert worker.cancel(job_id, "enough").state is JobState.RUNNING
    worker.run_until_idle(60)
    job = setting.store.get(job_id)
    assert job.state is JobState.CANCELLED
    assert job.error is not None
    assert job.error.startswith("cancelled (enough)")
    assert [pid for pid in tree if lives(pid)] == []
    with pytest.raises(JobAlreadyEnded):
        worker.cancel(job_id)
    assert setting.store.get(job_id) == job
    assert worker.statistics().stragglers == 0


def test_a_process_stops_on_request(setting: Setting, pids: PidPipe) -> None:
    handler = JobHandler(target=f"{HANDLERS}:wait_for_cancel", isolation="process")
    worker = setting.worker({"wait": handler}, cancel_grace_seconds=60.0)
    job_id = worker.submit(NewJob("wait", {"fifo": str(pids.path)})).id
    pids.read(1)
    # As another process would request it, only through the store.
    setting.store.request_cancel(job_id, "please", now=SystemClock().now())
    worker.run_until_idle(60)
    assert setting.store.get(job_id).error == "cancelled (please)"


def test_a_cancel_that_comes_before_the_process_reaches_it(setting: Setting, pids: PidPipe) -> None:
    handler = JobHandler(target=f"{HANDLERS}:wait_for_cancel", isolation="process")
    worker = setting.worker({"wait": handler}, cancel_grace_seconds=60.0)
    job_id = worker.submit(NewJob("wait", {"fifo": str(pids.path)})).id
    while setting.store.get(job_id).state is JobState.QUEUED:
        worker._table.wait_change(0.001)
    worker.cancel(job_id, "early")
    worker.run_until_idle(60)
    assert setting.store.get(job_id).state is JobState.CANCELLED


def test_a_thread_that_ignores_cancels_delays_neither_cancel_nor_close(setting: Setting) -> None:
    release = threading.Event()
    worker = setting.worker({"deaf": JobHandler(lambda job: release.wait(60))}, concurrency=1)
    job_id = worker.submit(NewJob("deaf")).id
    while setting.store.get(job_id).state is not JobState.RUNNING:
        worker._table.wait_change(0.001)
    worker.cancel(job_id)
    worker.run_until_idle(60)
    assert setting.store.get(job_id).state is JobState.CANCELLED
    while worker.statistics().stragglers == 0:  # it is counted once its outcome is stored
        worker._table.wait_change(0.001)
    assert worker.statistics().stragglers == 1
    worker.close()
    release.set()


def test_a_cancel_by_another_process_does_not_wait_for_a_long_heartbeat(setting: Setting) -> None:
    release = threading.Event()
    deaf = {"deaf": JobHandler(lambda job: release.wait(60))}
    worker = setting.worker(deaf, lease_seconds=600.0, heartbeat_seconds=240.0)
    job_id = worker.submit(NewJob("deaf")).id
    while setting.store.get(job_id).state is not JobState.RUNNING:
        worker._table.wait_change(0.001)
    setting.store.request_cancel(job_id, "from elsewhere", now=SystemClock().now())
    worker.run_until_idle(30)
    assert setting.store.get(job_id).state is JobState.CANCELLED
    release.set()


def test_close_gives_back_running_jobs_to_another_worker(setting: Setting) -> None:
    started = threading.Event()

    def run(job: AsyncJob) -> int:
        started.set()
        if job.attempt == 1:
            job.token.wait(60)
            job.token.raise_if_cancelled()
        return job.attempt

    handlers = {"long": JobHandler(run)}
    first = setting.worker(handlers, cancel_grace_seconds=60.0)
    job_id = first.submit(NewJob("long")).id
    assert started.wait(20)
    first.close()
    assert setting.store.get(job_id).state is JobState.QUEUED
    setting.worker(handlers).run_until_idle(60)
    assert setting.store.get(job_id).result == 2


def test_a_broken_step_does_not_end_a_service() -> None:
    steps = iter([RuntimeError("database gone"), None])
    twice = threading.Event()

    def step() -> float:
        trouble = next(steps, None)
        if trouble is not None:
            raise trouble
        twice.set()
        return 60.0

    service = ServiceThread("service", step, pause_seconds=0.001)
    service.start()
    assert twice.wait(20)
    service.stop()
    assert service.join(20)


def test_a_service_logs_an_outage_once_and_its_end_once() -> None:
    """A database that is down for a night would fill a disk with the same line."""
    left: list[Exception] = [*[DatabaseUnreachable("there", "gone")] * 5, StoreBusy(1.0)]
    done = threading.Event()

    def step() -> float:
        if left:
            raise left.pop(0)
        done.set()
        return 60.0

    service = ServiceThread("service", step, pause_seconds=0.001)
    with structlog.testing.capture_logs() as said:
        service.start()
        assert done.wait(20)
        service.stop()
        assert service.join(20)
    # A thread of an earlier test may still log its end.
    steps = [line for line in said if line["event"].startswith("worker.step_")]
    assert [line["event"].removeprefix("worker.step_") for line in steps] == ["waits", "waits", "goes_on"]
    assert "exc_info" not in steps[0]


def test_a_worker_that_was_never_started_can_be_closed(setting: Setting) -> None:
    worker = AsyncWorker(setting.store, {}, SystemClock(), PsutilProcessSupervisor())
    worker.close()
    worker.close()


def test_a_waiting_job_starts_as_soon_as_a_place_is_free(setting: Setting) -> None:
    """No worker polls here: the end that frees the place wakes the next."""
    at_once: list[int] = []

    def work(job: AsyncJob) -> None:
        at_once.append(len(setting.store.list(states=[JobState.RUNNING])))

    worker = setting.worker({"work": JobHandler(work)}, poll_seconds=600)
    for _ in range(5):
        worker.submit(NewJob("work", at_most=1))
    worker.run_until_idle(30)
    assert at_once == [1] * 5
