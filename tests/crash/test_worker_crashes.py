"""Workers that are killed or stopped at every durable step, and their jobs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from cleveragents.core.clock import SystemClock
from cleveragents.core.errors import JobAlreadyEnded
from cleveragents.core.faults import NoFaults
from cleveragents.core.identifiers import UlidSource
from cleveragents.jobs.model.job import Job, JobState, NewJob
from cleveragents.jobs.ports import JobHandler
from cleveragents.jobs.process.supervisor import PsutilProcessSupervisor
from cleveragents.jobs.store.sql_job_store import SqlJobStore
from cleveragents.jobs.worker.async_worker import AsyncWorker
from cleveragents.jobs.worker.attempt import WorkerOptions
from cleveragents.storage.database import Database, open_database
from cleveragents.storage.tables import outbox
from tests.crash.programs.job_handlers import WAYS_OUT
from tests.crash.programs.run_worker import make_worker
from tests.fork_server import Forked
from tests.processes import PidPipe, lives, wait_gone
from tests.ready_database import ready_database

PROGRAM = [sys.executable, "-m", "tests.crash.programs.run_worker"]
ROOT = Path(__file__).parents[2]
SHORT = {"lease_seconds": 2.5, "heartbeat_seconds": 0.6, "cancel_poll_seconds": 0.1, "poll_seconds": 0.05}
STOPPABLE = {**SHORT, "concurrency": 1}
"""With its one slot taken it claims nothing, so it does not hold SQLite's one lock when it is stopped."""
PATIENT = {"lease_seconds": 600.0, "heartbeat_seconds": 0.2, "poll_seconds": 0.05}
"""A very long lease: a process that recovers a job under it has detected its owner's death."""


class World:
    """A database with jobs, and workers in their own processes."""

    def __init__(self, directory: Path) -> None:
        self.url = ready_database(directory / "store.db")
        self.effects = directory / "effects"
        self.database: Database = open_database(self.url)
        self.store = SqlJobStore(self.database, UlidSource())
        self.children: list[subprocess.Popen[str]] = []
        self.pids = PidPipe(directory)

    def submit(self, kind: str, max_attempts: int = 5, at_most: int | None = None) -> str:
        payload = {"file": str(self.effects), "fifo": str(self.pids.path)}
        new = NewJob(kind, payload, max_attempts=max_attempts, at_most=at_most)
        return self.store.submit(new, now=SystemClock().now()).id

    def spawn(self, **arguments: Any) -> subprocess.Popen[str]:
        command = [*PROGRAM, json.dumps({"url": self.url, **arguments})]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        child = Forked(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.children.append(child)
        return child

    def recover(self, **options: Any) -> None:
        """Recover and complete the remaining jobs in this process."""
        worker = make_worker(self.database, NoFaults(), name="rescuer", **options)
        worker.start()
        try:
            worker.run_until_idle(240)
        finally:
            worker.close()

    def job(self, job_id: str) -> Job:
        return self.store.get(job_id)

    def told(self, job_id: str, event_type: str) -> int:
        """Return how many events of that type the job has, acknowledged and stored."""
        with self.database.read() as connection:
            rows = connection.execute(select(outbox)).mappings().all()
        return sum(
            1 for row in rows if job_id in map(str, row.values()) and event_type in map(str, row.values())
        )

    def most_at_once(self) -> int:
        """Return the maximum number of jobs that ran at the same time, by the order of their events."""
        with self.database.read() as connection:
            told = connection.execute(select(outbox.c.event_type).order_by(outbox.c.number)).scalars().all()
        ends = {"job.succeeded", "job.failed", "job.cancelled", "job.retried", "job.reclaimed"}
        steps = [(kind == "job.claimed") - (kind in ends) for kind in told]
        return max(accumulate(steps))

    def close(self) -> None:
        for child in self.children:
            child.kill()
            child.communicate()
        self.database.close()
        self.pids.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def died_by_its_own_hand(child: subprocess.Popen[str]) -> bool:
    _, errors = child.communicate(timeout=240)
    assert child.returncode == -signal.SIGKILL, errors
    return True


@pytest.mark.parametrize(
    ("point", "kind", "effects"),
    [
        ("job.claim.after", "append", ["2"]),
        ("job.run.before", "append", ["2"]),
        ("job.run.after", "append", ["1", "2"]),
        ("job.finish.before", "append", ["1", "2"]),
        ("job.finish.after", "append", ["1"]),
        ("job.heartbeat.before", "wait", ["2"]),
        ("job.heartbeat.after", "wait", ["2"]),
    ],
)
def test_a_worker_killed_at_any_step_loses_nothing(
    world: World, point: str, kind: str, effects: list[str]
) -> None:
    """Its death is noticed at once, and reported work is not repeated."""
    job_id = world.submit(kind)
    assert died_by_its_own_hand(world.spawn(crash_at=point, **PATIENT))
    world.recover(**PATIENT)
    job = world.job(job_id)
    assert job.state is JobState.SUCCEEDED
    assert world.effects.read_text().split() == effects
    assert job.result == int(effects[-1])
    assert world.told(job_id, "job.succeeded") == 1


def test_a_dead_owners_job_keeps_its_place_until_it_is_reclaimed(world: World) -> None:
    first, second = world.submit("append", at_most=1), world.submit("append", at_most=1)
    assert died_by_its_own_hand(world.spawn(crash_at="job.run.before", **PATIENT))
    somebody = PsutilProcessSupervisor().identity("somebody")
    assert world.store.claim(somebody, ["append"], now=SystemClock().now()) is None
    world.recover(**PATIENT, concurrency=4)
    assert [world.job(job_id).state for job_id in (first, second)] == [JobState.SUCCEEDED] * 2
    assert world.job(first).attempt == 2
    assert world.most_at_once() == 1


def test_processes_keep_the_limit_of_a_kind_even_if_one_dies(
    world: World,
) -> None:
    ids = [world.submit("append", at_most=2) for _ in range(24)]
    # First, or the others may finish everything before it starts; its remaining processes still count.
    assert died_by_its_own_hand(world.spawn(crash_at="job.run.after", **PATIENT))
    others = [world.spawn(**PATIENT) for _ in range(3)]
    for other in others:
        _, errors = other.communicate(timeout=240)
        assert other.returncode == 0, errors
    assert {world.job(job_id).state for job_id in ids} == {JobState.SUCCEEDED}
    assert world.most_at_once() <= 2


@pytest.mark.parametrize("point", ["job.reclaim.before", "job.reclaim.after"])
def test_a_killed_rescuer_is_rescued(world: World, point: str) -> None:
    job_id = world.submit("append")
    assert died_by_its_own_hand(world.spawn(crash_at="job.run.before", **PATIENT))
    assert died_by_its_own_hand(world.spawn(crash_at=point, **PATIENT))
    world.recover(**PATIENT)
    assert world.job(job_id).state is JobState.SUCCEEDED
    assert world.told(job_id, "job.reclaimed") == 1
    assert world.told(job_id, "job.succeeded") == 1


def test_a_stopped_worker_is_refused_when_it_resumes(world: World) -> None:
    """It stops before reporting its result, a peer takes the job, and the late write changes nothing."""
    job_id = world.submit("append")
    child = world.spawn(stop_at="job.finish.before", **STOPPABLE)
    stopped(child)
    world.recover(**SHORT)
    job = world.job(job_id)
    assert (job.state, job.fence, job.result) == (JobState.SUCCEEDED, 2, 2)
    child.send_signal(signal.SIGCONT)
    output, errors = child.communicate(timeout=240)
    assert json.loads(output)["lease_lost"] == 1
    [said] = [line for line in map(json.loads, errors.splitlines()) if line["event"] == "job.lease_lost"]
    assert (said["job_id"], said["fence"]) == (job_id, 1)
    assert "refused" in said["why"]
    assert world.job(job_id) == job


def test_a_stopped_workers_processes_end_before_a_peer_gets_its_job(world: World) -> None:
    job_id = world.submit("tree")
    # Between two writes, and late enough for a busy machine to start the processes of the job.
    child = world.spawn(stop_at="job.heartbeat.before", nth=10, **STOPPABLE)
    tree = world.pids.read(len(WAYS_OUT) + 1)
    stopped(child)
    alive_at_takeover: list[int] = []

    def take_over(job: object) -> str:
        alive_at_takeover.extend(pid for pid in tree if lives(pid))
        return "done by the peer"

    peer = AsyncWorker(
        world.store,
        {"tree": JobHandler(take_over)},
        SystemClock(),
        PsutilProcessSupervisor(),
        WorkerOptions(**SHORT),
    )
    peer.start()
    try:
        peer.run_until_idle(240)
    finally:
        peer.close()
    assert alive_at_takeover == []
    assert world.job(job_id).result == "done by the peer"
    child.send_signal(signal.SIGCONT)
    output, errors = child.communicate(timeout=240)
    assert json.loads(output)["lease_lost"] == 1
    assert "job.lease_lost" in errors


def test_a_killed_workers_processes_end_with_it(world: World) -> None:
    world.submit("tree")
    child = world.spawn(**PATIENT)
    tree = world.pids.read(len(WAYS_OUT) + 1)
    child.kill()
    assert wait_gone(tree) == []


@pytest.mark.parametrize("state", [JobState.CANCELLED, JobState.FAILED])
def test_a_job_that_dies_with_its_worker_leaves_no_process(world: World, state: JobState) -> None:
    """No later attempt cleans up: the process that removes the job does."""
    job_id = world.submit("start", max_attempts=1)
    child = world.spawn(**PATIENT)
    tree = world.pids.read(1)
    child.kill()
    child.wait()
    assert [pid for pid in tree if lives(pid)] == tree
    if state is JobState.CANCELLED:
        world.store.request_cancel(job_id, "by a user elsewhere", now=SystemClock().now())
    world.recover(**PATIENT)
    left = [pid for pid in tree if lives(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)  # it would keep the worker's pipes open, and this test waiting for them
    assert left == []
    assert world.job(job_id).state is state


def test_a_cancel_from_another_process_ends_the_whole_tree(world: World) -> None:
    job_id = world.submit("tree")
    child = world.spawn(cancel_grace_seconds=0.4, cancel_poll_seconds=0.1, **PATIENT)
    tree = world.pids.read(len(WAYS_OUT) + 1)
    world.store.request_cancel(job_id, "by a user elsewhere", now=SystemClock().now())
    child.communicate(timeout=240)
    job = world.job(job_id)
    assert job.state is JobState.CANCELLED
    assert job.cancel_reason == "by a user elsewhere"
    assert [pid for pid in tree if lives(pid)] == []
    with pytest.raises(JobAlreadyEnded):
        world.store.request_cancel(job_id, "again", now=SystemClock().now())
    assert world.job(job_id) == job


def stopped(child: subprocess.Popen[str]) -> None:
    """Return when the child has stopped itself."""
    _, status = os.waitpid(child.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
