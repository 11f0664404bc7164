"""A worker by itself: a durable queue and what runs its jobs, without plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cleveragents.jobs.ports import JobHandler
    from cleveragents.jobs.worker.async_worker import AsyncWorker
    from cleveragents.jobs.worker.attempt import WorkerOptions

__all__ = ["open_worker"]


@contextmanager
def open_worker(
    url: str, handlers: Mapping[str, JobHandler], options: WorkerOptions | None = None
) -> Iterator[AsyncWorker]:
    """Yield a started worker on the database at `url` (`sqlite:///jobs.db`), for these kinds of jobs.

    It is drained and closed with the block; jobs that are not done stay queued for the next worker.
    """
    from cleveragents.core.clock import SystemClock
    from cleveragents.core.identifiers import UlidSource
    from cleveragents.jobs.process.supervisor import PsutilProcessSupervisor
    from cleveragents.jobs.store.sql_job_store import SqlJobStore
    from cleveragents.jobs.worker.async_worker import AsyncWorker
    from cleveragents.jobs.worker.attempt import WorkerOptions
    from cleveragents.storage.database import open_database

    with open_database(url) as database:
        store = SqlJobStore(database, UlidSource())
        worker = AsyncWorker(
            store, handlers, SystemClock(), PsutilProcessSupervisor(), options or WorkerOptions()
        )
        worker.start()
        try:
            yield worker
        finally:
            worker.close()
