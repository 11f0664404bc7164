"""What happens in the demo, step by step, on real processes and a database of its own.

The story only acts and watches; whether everything went as promised is `promises`' to say, from what the
database and the process table hold at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.application.services.job_attempt import marker_of
from cleveragents.domain.job import Job, JobState, NewJob
from cleveragents.errors import JobAlreadyEnded
from cleveragents.infrastructure.configuration.settings import Settings
from cleveragents.interfaces.cli.output import counted
from cleveragents.interfaces.demo.patience import Say, until
from cleveragents.interfaces.demo.plan_story import PlanStory, PlanTroupe
from cleveragents.interfaces.demo.worker_process import WorkerProcess

if TYPE_CHECKING:
    from cleveragents.application.container import Container

__all__ = ["Story", "demo_settings", "tell"]

_WORKERS = ("worker-1", "worker-2", "worker-3")
_PLAN_WORKERS = ("plans-1", "plans-2")
_REVIEWS_FIRST = 3
_REVIEWS_LATER = 3
_KILL_AFTER_CHANGES = 4


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
    plans: PlanStory = field(default_factory=PlanStory)

    @property
    def killed_workers(self) -> set[str]:
        """Those that did not end by themselves."""
        return {self.killed_worker, self.plans.killed_worker}


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
                "concurrency": 6,
            },
        }
    )


def tell(container: Container, say: Say) -> Story:
    """Plays the whole story. `DeadlineExceeded` if a step does not come to pass."""
    story = Story()
    with ExitStack() as cleanup:
        # All at once, for the graphs' workers take a while to start; the plans are played meanwhile.
        parts = dict.fromkeys(_PLAN_WORKERS, "plans") | dict.fromkeys(_WORKERS, "graphs")
        started = _started(container, parts, cleanup)
        crew, doomed, *workers = started
        PlanTroupe(container, story.plans, say).play(crew, doomed)
        _label_plans(container, story)
        for worker in workers:
            worker.wait_ready()
        say(f"{len(workers)} workers run, with the pids {', '.join(str(w.pid) for w in workers)}")
        _tell_jobs(container, story, workers, say)
        for worker in started:
            worker.retire()
        story.exit_codes = {worker.name: worker.finish() for worker in started}
    return story


def _label_plans(container: Container, story: Story) -> None:
    for label, plan_id in story.plans.ids.items():
        story.labels[plan_id] = label
        story.labels[str(container.plan_parts.plans.get(plan_id).job_id)] = label


def _tell_jobs(container: Container, story: Story, workers: Sequence[WorkerProcess], say: Say) -> None:
    _submit_reviews(container, story, _REVIEWS_FIRST)
    say(f"{_REVIEWS_FIRST} reviews are graphs with three parallel branches each, run as jobs")
    _cancel_the_stubborn(container, story, say)
    _submit_reviews(container, story, _REVIEWS_LATER)
    _kill_the_migrating(container, story, workers, say)
    until("the end of all jobs", lambda: _all_ended(container))
    say("all jobs have ended; the workers finish")


def _started(container: Container, parts: Mapping[str, str], cleanup: ExitStack) -> Sequence[WorkerProcess]:
    """A process for each name; all are ended with `cleanup`, whatever happens."""
    workers: list[WorkerProcess] = []
    cleanup.callback(_stop_all, workers)
    for name, part in parts.items():
        log = container.state_directory / f"{name}.log"
        workers += [WorkerProcess(name, container.settings, log, part)]
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
    until("the stubborn processes", lambda: len(container.processes.alive(marker)) >= 4)
    story.stubborn_fence = job.fence
    story.stubborn_pids = tuple(container.processes.alive(marker))
    say(f"stubborn-1 runs in {len(story.stubborn_pids)} processes and ignores SIGTERM; it is cancelled")
    container.jobs.request_cancel(job.id, "shown in the demo", now=container.clock.now())
    until("the end of the stubborn job", lambda: container.jobs.get(job.id).state.ended)
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
    until("a few changes", lambda: _changes(container, story.migration) >= _KILL_AFTER_CHANGES)
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

    until(f"job {job_id} to run", runs)
    return container.jobs.get(job_id)


def _all_ended(container: Container) -> bool:
    return not container.jobs.list(states=(JobState.QUEUED, JobState.RUNNING))
