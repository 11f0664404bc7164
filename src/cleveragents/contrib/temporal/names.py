"""What our jobs are called in Temporal, so that people find plans there and versions stay apart.

A workflow's id begins with its plan's, whatever job of the plan it runs: looking for that finds all of them.
A task queue names the protocol that its workers speak. One that speaks an older protocol does not take what
it could not run, and what it began, a newer one moves to its own queue.
"""

from __future__ import annotations

import re

from cleveragents.jobs.model.job import Job

__all__ = [
    "PROTOCOL",
    "is_of_older_protocol",
    "job_id_of",
    "memo_of",
    "older_task_queues",
    "priority_key",
    "summary_of",
    "task_queue_of",
    "workflow_id",
]

PROTOCOL = 2
"""Raised when workers of the version before could not go on with our workflows, or we with theirs."""

_VERSIONED = re.compile(r"cleveragents-v([0-9]{1,6})-")
_SUMMARY_BYTES = 200  # Temporal takes no more than twice that
_GOAL_BYTES = 2000


def workflow_id(job: Job) -> str:
    """Of the workflow that runs the job."""
    plan_id = _plan_id(job)
    return job.id if plan_id is None else f"plan-{plan_id}-{job.id}"


def task_queue_of(queue: str) -> str:
    """What a queue of ours is called there."""
    return f"cleveragents-v{PROTOCOL}-{queue}"


def is_of_older_protocol(task_queue: str) -> bool:
    """Whether workers of an older version take from it. The first protocol had no number."""
    found = _VERSIONED.match(task_queue)
    return (1 if found is None else int(found[1])) < PROTOCOL


def older_task_queues(queue: str) -> list[str]:
    """What a queue of ours was called before."""
    return [f"cleveragents-{queue}", *(f"cleveragents-v{number}-{queue}" for number in range(1, PROTOCOL))]


def job_id_of(found: str) -> str:
    """Of the job that a workflow of that id runs, in whatever version it was begun."""
    return found.rpartition("-")[2]


def summary_of(job: Job, goal: str) -> str:
    """What Temporal's pages say of the job, in a line."""
    plan_id = _plan_id(job)
    if plan_id is None:
        return _cut(job.kind, _SUMMARY_BYTES)
    first, _, _ = goal.partition("\n")
    done = job.kind.partition(":")[0]
    return _cut(f"{done} {plan_id}: {first}" if first else f"{done} {plan_id}", _SUMMARY_BYTES)


def memo_of(job: Job, goal: str) -> dict[str, str]:
    """What Temporal keeps beside the workflow, for people and their own programs."""
    facts = {"job": job.id, "kind": job.kind, "plan": _plan_id(job) or "", "goal": _cut(goal, _GOAL_BYTES)}
    return {name: text for name, text in facts.items() if text}


def priority_key(priority: int) -> int:
    """Temporal's word for a priority of ours. It knows five, of which the least goes first; who asks for none
    gets the middle one."""
    return min(max(3 - priority, 1), 5)


def _plan_id(job: Job) -> str | None:
    plan_id = job.payload.get("plan_id")
    return plan_id if isinstance(plan_id, str) else None


def _cut(text: str, most_bytes: int) -> str:
    return text.encode("utf-8", "replace")[:most_bytes].decode("utf-8", "ignore")
