"""What happens in the demo, step by step, on real processes and a database of its own.

The story only acts and watches; whether everything went as promised is `promises`' to say, from what the
database and the process table hold at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.application.services.job_attempt import marker_of
from cleveragents.domain.job import Job, JobState, NewJob
from cleveragents.errors import DeadlineExceeded, JobAlreadyEnded
from cleveragents.infrastructure.configuration.settings import Settings
from cleveragents.interfaces.cli.output import counted
from cleveragents.interfaces.demo.worker_process import WorkerProcess

if TYPE_CHECKING:
    from cleveragents.application.container import Container

__all__ = ["Story", "demo_settings", "tell"]

_WORKERS = 3
_REVIEWS_FIRST = 3
_REVIEWS_LATER = 3
_STEP_SECONDS = 60.0
_LOOK_SECONDS = 0.02
_KILL_AFTER_CHANGES = 4

Say = Callable[[str], None]


@dataclass
class Story:
    """What happened, for `promises` to judge. Ids are those of jobs."""

    labels: dict[str, str] = field(default_factory=dict)
    stubborn: str = ""
    stubborn_pids: tuple[int, ...] = ()
    stubborn_fence: int = 0
    second_cancel: str = ""
    migration: str = ""
    killed_worker: str = ""
    changes_before_kill: int = 0
    exit_codes: dict[str, int] = field(default_factory=dict)


def demo_settings(directory: Path) -> Settings:
    """Everything in that directory, and times short enough to watch."""
    return Settings.model_validate(
        {
            "state": {"directory": str(directory)},
            "database": {"url": f"sqlite:///{directory}/state.db"},
            "worker": {
                "lease_seconds": 10.0,
                "heartbeat_seconds": 0.5,
                "poll_seconds": 0.1,
                "cancel_grace_seconds": 1.0,
            },
        }
    )


def tell(container: Container, say: Say) -> Story:
    """Plays the whole story. `DeadlineExceeded` if a step does not come to pass."""
    story = Story()
    with ExitStack() as cleanup:
        workers = _start_workers(container, say, cleanup)
        _submit_reviews(container, story, _REVIEWS_FIRST)
        say(f"{_REVIEWS_FIRST} reviews are graphs with three parallel branches each, run as jobs")
        _cancel_the_stubborn(container, story, say)
        _submit_reviews(container, story, _REVIEWS_LATER)
        _kill_the_migrating(container, story, workers, say)
        _until("the end of all jobs", lambda: _all_ended(container))
        say("all jobs have ended; the workers finish")
        for worker in workers:
            story.exit_codes[worker.name] = worker.finish()
    return story


def _start_workers(container: Container, say: Say, cleanup: ExitStack) -> Sequence[WorkerProcess]:
    say(f"{_WORKERS} workers start, each a process of its own")
    workers: list[WorkerProcess] = []
    cleanup.callback(_stop_all, workers)
    for number in range(1, _WORKERS + 1):
        log = container.state_directory / f"worker-{number}.log"
        worker = WorkerProcess(f"worker-{number}", container.settings, log)
        workers.append(worker)
    for worker in workers:
        worker.wait_ready()
    say(f"{_WORKERS} workers run: " + ", ".join(f"{w.name} (pid {w.pid})" for w in workers))
    return workers


def _stop_all(workers: Sequence[WorkerProcess]) -> None:
    for worker in workers:
        worker.stop()
    for worker in workers:
        worker.finish()


def _submit(container: Container, story: Story, kind: str) -> str:
    number = sum(label.startswith(kind) for label in story.labels.values()) + 1
    job = container.jobs.submit(NewJob(kind), now=container.clock.now())
    story.labels[job.id] = f"{kind}-{number}"
    return job.id


def _submit_reviews(container: Container, story: Story, count: int) -> None:
    for _ in range(count):
        _submit(container, story, "review")


def _cancel_the_stubborn(container: Container, story: Story, say: Say) -> None:
    """A job whose processes ignore SIGTERM is cancelled, twice."""
    story.stubborn = _submit(container, story, "stubborn")
    job = _until_running(container, story.stubborn)
    marker = marker_of(job.id, job.fence)
    # The runner, its handler, two shells and a sleep in each.
    _until("the stubborn processes", lambda: len(container.processes.alive(marker)) >= 4)
    story.stubborn_fence = job.fence
    story.stubborn_pids = tuple(container.processes.alive(marker))
    say(f"stubborn-1 runs in {len(story.stubborn_pids)} processes and ignores SIGTERM; it is cancelled")
    container.jobs.request_cancel(job.id, "shown in the demo", now=container.clock.now())
    _until("the end of the stubborn job", lambda: container.jobs.get(job.id).state.ended)
    left = container.processes.alive(marker)
    say(f"stubborn-1 is {container.jobs.get(job.id).state.value}; {len(left)} of its processes are alive")
    try:
        container.jobs.request_cancel(job.id, "once more", now=container.clock.now())
    except JobAlreadyEnded as already:
        story.second_cancel = already.state


def _kill_the_migrating(
    container: Container, story: Story, workers: Sequence[WorkerProcess], say: Say
) -> None:
    """The worker of a job is killed in the middle of it."""
    story.migration = _submit(container, story, "migrate")
    owner = _until_running(container, story.migration).owner
    assert owner is not None
    _until("a few changes", lambda: _changes(container, story.migration) >= _KILL_AFTER_CHANGES)
    worker = next(one for one in workers if one.pid == owner.pid)
    worker.kill()
    story.killed_worker = worker.name
    story.changes_before_kill = _changes(container, story.migration)
    changes = counted(story.changes_before_kill, "change")
    say(f"kill -9 {worker.pid}: {worker.name} dies with migrate-1 after {changes}")
    taken = _until_running(container, story.migration, not_by=worker.name)
    heir = taken.owner.id if taken.owner else "a peer"
    say(f"{heir} takes migrate-1 over and goes on where it stopped (attempt {taken.attempt})")


def _changes(container: Container, plan_id: str) -> int:
    return sum(changeset.length for changeset in container.changesets.of_plan(plan_id))


def _until_running(container: Container, job_id: str, *, not_by: str = "") -> Job:
    def runs() -> bool:
        job = container.jobs.get(job_id)
        return job.owner is not None and job.owner.id != not_by

    _until(f"job {job_id} to run", runs)
    return container.jobs.get(job_id)


def _all_ended(container: Container) -> bool:
    return not container.jobs.list(states=(JobState.QUEUED, JobState.RUNNING))


def _until(what: str, holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + _STEP_SECONDS
    while not holds():
        if time.monotonic() >= give_up:
            raise DeadlineExceeded(what, _STEP_SECONDS)
        time.sleep(_LOOK_SECONDS)
