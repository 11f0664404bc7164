"""Jobs and workers as rows and JSON show them, and how a job is cancelled."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import TYPE_CHECKING

from cleveragents.api.wording import timestamp
from cleveragents.core.json_value import JsonValue, freeze
from cleveragents.core.text.redaction import redact

if TYPE_CHECKING:
    from datetime import datetime

    from cleveragents.jobs.model.job import Job
    from cleveragents.jobs.ports import JobStore
    from cleveragents.jobs.worker_ports import WorkerRecord

__all__ = ["cancelled", "is_job_id", "is_silent", "job_account", "worker_account", "worker_state"]

_SILENT = timedelta(minutes=1)
"""A worker says how it is every few seconds; one that was not heard of for so long does nothing any more."""

_OVER = ("lost", "gone")


def is_job_id(text: str) -> bool:
    """Whether it could be one. Ids are ASCII; anything else is no id, and may be no text at all."""
    return text.isascii() and text.isprintable()


def job_account(job: Job) -> dict[str, JsonValue]:
    """A job as rows and JSON show it."""
    return {
        "id": job.id,
        "kind": job.kind,
        "state": job.state.value,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "priority": job.priority,
        "worker": job.owner.id if job.owner else None,
        "created": timestamp(job.created_at),
        "updated": timestamp(job.updated_at),
        "not_before": timestamp(job.not_before),
        "cancel_reason": _shown(job.cancel_reason),
        "error": _shown(job.error),
        "key": job.key,
        "payload": _shown(job.payload),
        "result": _shown(job.result),
    }


def cancelled(jobs: JobStore, job_id: str, reason: str, *, now: datetime) -> Job:
    """The job, cancelled or told to stop; one that was cancelled before stays as it is. `UnknownJob`,
    `JobAlreadyEnded` if it ended otherwise."""
    from cleveragents.core.cancel_reason import said_by_somebody
    from cleveragents.core.errors import JobAlreadyEnded
    from cleveragents.jobs.model.job import JobState

    try:
        return jobs.request_cancel(job_id, said_by_somebody(reason), now=now)
    except JobAlreadyEnded as ended:
        if ended.state != JobState.CANCELLED.value:
            raise
        return jobs.get(job_id)


def is_silent(worker: WorkerRecord, *, now: datetime) -> bool:
    """Whether it has said nothing for longer than any worker does that lives."""
    return now - worker.seen_at > _SILENT


def _is_dead(worker: WorkerRecord, home: str) -> bool:
    """Whether it worked on the state of this home, on this machine, and its process is not there any more."""
    if (worker.home, worker.host) != (home, socket.gethostname()):
        return False
    try:
        os.kill(worker.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # somebody else's
    return False


def worker_state(worker: WorkerRecord, *, now: datetime, home: str) -> str:
    """As it last said it is; `lost` if it has said nothing for long, or its process is gone, without having
    left; `idle` if it could run something and does not."""
    if worker.state != "gone" and (is_silent(worker, now=now) or _is_dead(worker, home)):
        return "lost"
    return "idle" if worker.state == "working" and not worker.running else worker.state


def worker_account(worker: WorkerRecord, *, now: datetime, home: str) -> dict[str, JsonValue]:
    """A worker, and how it is."""
    state = worker_state(worker, now=now, home=home)
    return {
        "id": worker.id,
        "name": worker.name,
        "host": worker.host,
        "pid": worker.pid,
        "engine": worker.engine,
        "queue": worker.queue,
        "concurrency": worker.concurrency,
        "running": 0 if state in _OVER else worker.running,
        "state": state,
        "started": timestamp(worker.started_at),
        "seen": timestamp(worker.seen_at),
        "isolation": worker.isolation,
    }


def _shown(value: JsonValue) -> JsonValue:
    # What a job was given or said may hold a secret; a list of jobs is read over shoulders and pasted.
    return freeze(redact(value))
