"""Names of our jobs in Temporal. They let people find plans, and keep different versions of CleverAgents
separate.

The id of a workflow begins with the id of its plan, so a search for the plan's id finds the workflows of all
its jobs. The name of a task queue includes the protocol of its workers. Workers with an older protocol do not
get jobs that they could not run; a newer worker moves their workflows to its own queue.
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
"""Version of the protocol between workers. Increase it if workers of the previous version could not continue
workflows of this version, or the other way round.
"""

_VERSIONED = re.compile(r"cleveragents-v([0-9]{1,6})-")
_SUMMARY_BYTES = 200  # Temporal accepts at most twice as much
_GOAL_BYTES = 2000


def workflow_id(job: Job) -> str:
    """Return the id of the workflow that runs the job."""
    plan_id = _plan_id(job)
    return job.id if plan_id is None else f"plan-{plan_id}-{job.id}"


def task_queue_of(queue: str) -> str:
    """Return the name of a queue in Temporal."""
    return f"cleveragents-v{PROTOCOL}-{queue}"


def is_of_older_protocol(task_queue: str) -> bool:
    """Return whether workers of an older version use the task queue. The first protocol had no number."""
    found = _VERSIONED.match(task_queue)
    return (1 if found is None else int(found[1])) < PROTOCOL


def older_task_queues(queue: str) -> list[str]:
    """Return the names of a queue in older versions."""
    return [f"cleveragents-{queue}", *(f"cleveragents-v{number}-{queue}" for number in range(1, PROTOCOL))]


def job_id_of(found: str) -> str:
    """Return the id of the job that a workflow with this id runs, in any version."""
    return found.rpartition("-")[2]


def summary_of(job: Job, goal: str) -> str:
    """Return a one-line summary of the job for Temporal's pages."""
    plan_id = _plan_id(job)
    if plan_id is None:
        return _cut(job.kind, _SUMMARY_BYTES)
    first, _, _ = goal.partition("\n")
    done = job.kind.partition(":")[0]
    return _cut(f"{done} {plan_id}: {first}" if first else f"{done} {plan_id}", _SUMMARY_BYTES)


def memo_of(job: Job, goal: str) -> dict[str, str]:
    """Return the memo that Temporal stores with the workflow, for people and their programs."""
    facts = {"job": job.id, "kind": job.kind, "plan": _plan_id(job) or "", "goal": _cut(goal, _GOAL_BYTES)}
    return {name: text for name, text in facts.items() if text}


def priority_key(priority: int) -> int:
    """Return Temporal's priority for the priority of a job.

    Temporal has five priorities, of which the lowest number goes first; the default is the middle one.
    """
    return min(max(3 - priority, 1), 5)


def _plan_id(job: Job) -> str | None:
    plan_id = job.payload.get("plan_id")
    return plan_id if isinstance(plan_id, str) else None


def _cut(text: str, most_bytes: int) -> str:
    return text.encode("utf-8", "replace")[:most_bytes].decode("utf-8", "ignore")
