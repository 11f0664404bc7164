"""The worker's voice: whatever is said of a job names it, and the plan that it is for.

What keeps a worker from its store: since when, and told when it begins and when it is over.
"""

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
"""The store as a whole cannot be used until somebody sees to it; one that is busy is not meant."""
_Doing = Literal["claiming", "writing", "reclaiming", "looking"]


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
    with logged_with(**_names(job)):
        # Where nobody has configured it, it goes to stdout, and that is not ours.
        if is_logged("info"):
            worker_log(job).info("job.started", kind=job.kind, attempt=job.attempt, fence=job.fence)
        yield


def _names(job: Job) -> dict[str, str]:
    plan_id = job.payload.get("plan_id")
    names = {"job_id": job.id}
    return {**names, "plan_id": plan_id} if isinstance(plan_id, str) else names


class StoreTrouble:
    """Which uses of the store fail, each since when. A use that succeeds is over its trouble; one that wrote
    something is a proof for all of them.

    Thread safety:
        Owner: the table of attempts; every thread of the worker shares it.
        Lock: none; each step is one operation on a dictionary, which is atomic.
        Guarantee: however often a use fails, that is told once until it succeeds.
    Cancel safety: no call waits.
    """

    def __init__(self) -> None:
        self._met: dict[_Doing, tuple[float, CleverAgentsError]] = {}

    def met(self, doing: _Doing, error: Exception, now: float) -> bool:
        """Whether the error means that the store cannot be used; told if that is new."""
        if not isinstance(error, NO_STORE):
            return False
        fresh = now, error
        if self._met.setdefault(doing, fresh) is fresh:
            worker_log().warning("worker.store_waits", doing=doing, problem=str(error))
        return True

    def over(self, doing: _Doing) -> None:
        """That use of it succeeded."""
        if self._met and self._met.pop(doing, None) is not None:
            worker_log().warning("worker.store_goes_on", doing=doing)

    def wrote(self) -> None:
        """Something was kept by it, whatever the use."""
        for doing in tuple(self._met):
            self.over(doing)

    def since(self, then: float) -> CleverAgentsError | None:
        """What has kept it from being used from that moment on, or for longer."""
        for began, error in tuple(self._met.values()):
            if began <= then:
                return error
        return None
