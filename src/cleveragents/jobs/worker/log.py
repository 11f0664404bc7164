"""The worker's voice: whatever is said of a job names it, and the plan that it is for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from cleveragents.jobs.model.job import Job

__all__ = ["speaking_of", "worker_log"]


def worker_log(job: Job | None = None) -> FilteringBoundLogger:
    """A logger, of that job if it is about one; structlog is imported at the first word, because a job's
    process mostly says none."""
    import structlog

    logger: FilteringBoundLogger = structlog.get_logger("cleveragents.worker")
    return logger if job is None else logger.bind(**_names(job))


@contextmanager
def speaking_of(job: Job) -> Iterator[None]:
    """Says that it begins. While it lasts, all that is logged by this thread, and by tasks and calls that it
    starts with its context, names the job and its plan: who logs deep below knows of neither."""
    import structlog

    with structlog.contextvars.bound_contextvars(**_names(job)):
        # Where nobody has configured it, it goes to stdout, and that is not ours.
        if structlog.is_configured():
            worker_log(job).info("job.started", kind=job.kind, attempt=job.attempt, fence=job.fence)
        yield


def _names(job: Job) -> dict[str, str]:
    plan_id = job.payload.get("plan_id")
    names = {"job_id": job.id}
    return {**names, "plan_id": plan_id} if isinstance(plan_id, str) else names
