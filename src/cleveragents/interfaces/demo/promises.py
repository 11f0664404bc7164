"""Did the graphs and jobs go as promised? Judged from what the database and the process table hold, not from
the story; `plan_promises` does the same for plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cleveragents.application.services.job_attempt import marker_of
from cleveragents.domain.event import EventType
from cleveragents.domain.job import Job, JobState
from cleveragents.interfaces.cli.output import counted
from cleveragents.interfaces.demo.graphs import BRANCHES, BROKEN_STRATEGY, MIGRATED
from cleveragents.interfaces.demo.promise import Promise

if TYPE_CHECKING:
    from cleveragents.application.container import Container
    from cleveragents.application.ports.events import AuditRecord
    from cleveragents.interfaces.demo.story import Story

__all__ = ["Evidence", "gather", "judge"]

_ENDINGS = (EventType.JOB_SUCCEEDED, EventType.JOB_FAILED, EventType.JOB_CANCELLED)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is there at the end."""

    jobs: Mapping[str, Job]
    records: Sequence[AuditRecord]
    problems: Sequence[str]

    def workers_of(self, job_id: str) -> list[str]:
        """Who ran the job, in the order in which they did."""
        return [
            str(record.event.payload["worker"])
            for record in self.records
            if record.event.event_type is EventType.JOB_CLAIMED and record.event.subject == job_id
        ]

    def count(self, *event_types: EventType, subject: str | None = None) -> int:
        """Events of these types, of that subject if one is named."""
        return sum(
            record.event.event_type in event_types and subject in (None, record.event.subject)
            for record in self.records
        )


def gather(container: Container) -> Evidence:
    """Everything that the judgement needs, with the audit log verified."""
    report = container.audit.verify()
    records: list[AuditRecord] = []
    while page := container.audit.read(after=len(records)):
        records += page
    jobs = {job.id: job for job in container.jobs.list(limit=1000)}
    return Evidence(jobs, records, [str(finding) for finding in report.findings])


def judge(container: Container, story: Story, evidence: Evidence) -> list[Promise]:
    """Every promise of the demo, kept or not."""
    reviews = [job for job in evidence.jobs.values() if job.kind == "review"]
    return [
        _all_succeeded(reviews),
        _changes_filed(container, reviews),
        _context_survives(reviews, evidence),
        *_cancel(container, story, evidence),
        *_recovery(container, story, evidence),
        _every_move_told(evidence),
        _verified(evidence),
        _nothing_left(container, story, evidence),
    ]


def _all_succeeded(reviews: Sequence[Job]) -> Promise:
    done = sum(job.state is JobState.SUCCEEDED for job in reviews)
    return Promise("every review succeeded", done == len(reviews) > 0, f"{done} of {len(reviews)} graph runs")


def _changes_filed(container: Container, reviews: Sequence[Job]) -> Promise:
    filed = 0
    right = bool(reviews)
    for job in reviews:
        changesets = dict(_result(job).get("changesets", ()))
        right = right and set(changesets) == set(BRANCHES)
        for branch, changeset_id in changesets.items():
            entries = container.changesets.entries(changeset_id)
            filed += len(entries)
            right = right and tuple(one.entry.path for one in entries) == BRANCHES[branch]
            right = right and container.changesets.get(changeset_id).closed
    return Promise("each change is in the changeset of its branch, once", right, counted(filed, "change"))


def _context_survives(reviews: Sequence[Job], evidence: Evidence) -> Promise:
    outcomes = Counter(outcome for job in reviews for outcome in _result(job).get("strategies", ()))
    refused = outcomes[f"{BROKEN_STRATEGY}: breaker_open"]
    used = sum(n for outcome, n in outcomes.items() if outcome.endswith(": used"))
    opened = evidence.count(EventType.BREAKER_OPENED, subject=BROKEN_STRATEGY)
    kept = opened > 0 and refused >= len(reviews) and all(_result(job).get("found") for job in reviews)
    answers, breakers, calls = counted(used, "answer"), counted(opened, "breaker"), counted(refused, "call")
    shown = f"{answers} from the others, {breakers} opened, {calls} spared"
    return Promise("a failing context strategy is cut off, the others serve", kept, shown)


def _cancel(container: Container, story: Story, evidence: Evidence) -> Iterator[Promise]:
    job = evidence.jobs[story.stubborn]
    kept = job.state is JobState.CANCELLED and evidence.count(EventType.JOB_CANCELLED, subject=job.id) == 1
    yield Promise("cancel means cancelled", kept, f"stubborn-1 is {job.state.value}")
    alive = container.processes.alive(marker_of(story.stubborn, story.stubborn_fence))
    kept = len(story.stubborn_pids) > 0 and not alive
    still = counted(len(alive), "is alive", "are alive")
    shown = f"there were {len(story.stubborn_pids)}, SIGTERM ignored; {still}"
    yield Promise("no process of a cancelled job survives", kept, shown)
    kept = story.second_cancel == JobState.CANCELLED.value
    yield Promise("a second cancel says so and does nothing", kept, f"already {story.second_cancel}")


def _recovery(container: Container, story: Story, evidence: Evidence) -> Iterator[Promise]:
    job = evidence.jobs[story.migration]
    workers = evidence.workers_of(job.id)
    reclaimed = evidence.count(EventType.JOB_RECLAIMED, subject=job.id)
    kept = job.state is JobState.SUCCEEDED and reclaimed == 1 and workers[:1] == [story.killed_worker]
    kept = kept and len(workers) == 2 and workers[1] != story.killed_worker
    yield Promise("a peer recovers the job of a killed worker", kept, " → ".join(workers))
    entries = [
        one for c in container.changesets.of_plan(job.id) for one in container.changesets.entries(c.id)
    ]
    kept = tuple(one.entry.path for one in entries) == MIGRATED
    kept = kept and 0 < story.changes_before_kill < len(MIGRATED)
    shown = (
        f"{story.changes_before_kill} before the kill, {len(entries)} of {len(MIGRATED)} in all, each once"
    )
    yield Promise("nothing is lost or done twice by it", kept, shown)


def _every_move_told(evidence: Evidence) -> Promise:
    told = all(
        evidence.count(EventType.JOB_SUBMITTED, subject=job_id) == 1
        and evidence.count(*_ENDINGS, subject=job_id) == 1
        and len(evidence.workers_of(job_id)) == job.attempt
        for job_id, job in evidence.jobs.items()
    )
    return Promise("every job began and ended once in the log", told, counted(len(evidence.jobs), "job"))


def _verified(evidence: Evidence) -> Promise:
    events = counted(len(evidence.records), "event")
    shown = f"{events}, verified" if not evidence.problems else evidence.problems[0]
    return Promise("the audit log is whole", not evidence.problems and bool(evidence.records), shown)


def _nothing_left(container: Container, story: Story, evidence: Evidence) -> Promise:
    left = [
        pid
        for job_id, job in evidence.jobs.items()
        for fence in range(1, job.fence + 1)
        for pid in container.processes.alive(marker_of(job_id, fence))
    ]
    others = [code for name, code in story.exit_codes.items() if name not in story.killed_workers]
    kept = not left and set(others) == {0}
    shown = f"{counted(len(left), 'process', 'processes')}, {counted(len(others), 'worker')} ended cleanly"
    return Promise("nothing is left behind", kept, shown)


def _result(job: Job) -> dict[str, Any]:
    return dict(job.result) if isinstance(job.result, Mapping) else {}
