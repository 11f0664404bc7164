"""The log of the worker: each entry names its job and plan; store trouble is logged once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from cleveragents.config.logging import is_logged, logged_with
from cleveragents.core.errors import (
    CleverAgentsError,
    DatabaseFailed,
    DatabaseUnreachable,
    DatabaseUnusable,
    StoreFull,
)

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from cleveragents.jobs.model.job import Job

__all__ = ["NO_STORE", "StoreTrouble", "speaking_of", "worker_log"]


NO_STORE = (StoreFull, DatabaseUnreachable, DatabaseUnusable, DatabaseFailed)
"""Errors after which the whole store is unusable until a person acts; a busy store is not one."""
_Doing = Literal["claiming", "writing", "reclaiming", "looking"]


def worker_log(job: Job | None = None) -> FilteringBoundLogger:
    """Return a logger, bound to the job if given.

    structlog is imported at first use, because the process of a job rarely logs.
    """
    import structlog

    logger: FilteringBoundLogger = structlog.get_logger("cleveragents.worker")
    return logger if job is None else logger.bind(**_names(job))


@contextmanager
def speaking_of(job: Job) -> Iterator[None]:
    """Log that the job begins, and add the job and its plan to all log entries in the block.

    This also covers tasks and calls started with the context of the block, so that code that knows neither
    the job nor the plan logs both.
    """
    with logged_with(**_names(job)):
        # An unconfigured structlog writes to stdout, which is not ours.
        if is_logged("info"):
            worker_log(job).info("job.started", kind=job.kind, attempt=job.attempt, fence=job.fence)
        yield


def _names(job: Job) -> dict[str, str]:
    plan_id = job.payload.get("plan_id")
    names = {"job_id": job.id}
    return {**names, "plan_id": plan_id} if isinstance(plan_id, str) else names


class StoreTrouble:
    """The kinds of store operations that fail at present, each with the time of its first failure.

    A successful operation ends the trouble of its kind; a successful write ends that of all kinds.

    Thread safety:
        Owner: the table of attempts; every thread of the worker shares it.
        Lock: none; each step is one operation on a dictionary, which is atomic.
        Guarantee: repeated failures of one kind are logged once, until an operation of that kind succeeds.
    Cancel safety: no call waits.
    """

    def __init__(self) -> None:
        self._met: dict[_Doing, tuple[float, CleverAgentsError]] = {}

    def met(self, doing: _Doing, error: Exception, now: float) -> bool:
        """Return whether the error means that the store is unusable; log the first such error of its kind."""
        if not isinstance(error, NO_STORE):
            return False
        fresh = now, error
        if self._met.setdefault(doing, fresh) is fresh:
            worker_log().warning("worker.store_waits", doing=doing, problem=str(error))
        return True

    def over(self, doing: _Doing) -> None:
        """Record that a store operation of this kind succeeded."""
        if self._met and self._met.pop(doing, None) is not None:
            worker_log().warning("worker.store_goes_on", doing=doing)

    def wrote(self) -> None:
        """Record that the store completed a write, of any kind."""
        for doing in tuple(self._met):
            self.over(doing)

    def since(self, then: float) -> CleverAgentsError | None:
        """Return an error that has made the store unusable since `then` or longer; None if there is none."""
        for began, error in tuple(self._met.values()):
            if began <= then:
                return error
        return None
