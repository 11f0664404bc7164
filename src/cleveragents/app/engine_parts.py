"""The configured job engine and its workers, and a standalone worker without plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.config.settings import Settings
    from cleveragents.contrib.temporal.connection import TemporalConnection
    from cleveragents.contrib.temporal.store import TemporalJobStore
    from cleveragents.jobs.engine import JobEngine, WorkerRequest
    from cleveragents.jobs.ports import JobHandler, JobStore
    from cleveragents.jobs.worker.async_worker import AsyncWorker
    from cleveragents.jobs.worker.attempt import WorkerOptions

__all__ = ["engine_for", "jobs_for", "open_worker", "temporal_for", "temporal_store", "worker_for"]


def engine_for(container: Container) -> JobEngine:
    """Return the configured engine. Raises `ConfigurationError` if its package is not installed."""
    from cleveragents.jobs.engine import EmbeddedJobEngine

    def make_worker(request: WorkerRequest) -> AsyncWorker:
        return container.worker(
            request.handlers, name=request.name, concurrency=request.concurrency, queues=request.queues
        )

    bound = container.settings.jobs.queue_bound
    if container.temporal is None:
        return EmbeddedJobEngine(container.jobs, container.clock, make_worker, queue_bound=bound)
    from cleveragents.contrib.temporal.engine import TemporalJobEngine
    from cleveragents.plans.jobs.shared_jobs import cancel_plan_of

    store = temporal_store(container, container.temporal)
    return TemporalJobEngine(
        store,
        container.temporal,
        container.clock,
        make_worker,
        queue_bound=bound,
        on_cancelled=lambda job: cancel_plan_of(job, container.plan_parts.lifecycle),
    )


def jobs_for(container: Container) -> JobStore:
    """Return the store of the job table. With Temporal, the store also starts workflows."""
    if container.temporal is not None:
        return temporal_store(container, container.temporal)
    return container.job_table


def temporal_store(container: Container, temporal: TemporalConnection) -> TemporalJobStore:
    """Return the job table with Temporal."""
    from cleveragents.contrib.temporal.store import TemporalJobStore
    from cleveragents.plans.jobs.names import goal_of, phase_of

    return TemporalJobStore(
        container.job_table,
        temporal,
        lambda job: phase_of(job, container.plan_parts.plans),
        lambda job: goal_of(job, container.plan_parts.plans),
    )


def temporal_for(settings: Settings) -> TemporalConnection | None:
    """Return the connection to Temporal, or None if another engine is configured."""
    if settings.jobs.engine != "temporal":
        return None
    from cleveragents.contrib.temporal.connection import TemporalConnection

    jobs = settings.jobs
    lease = settings.worker.lease_seconds
    return TemporalConnection(jobs.temporal_address, jobs.temporal_namespace, lease_seconds=lease)


def worker_for(
    container: Container,
    handlers: Mapping[str, JobHandler],
    name: str,
    concurrency: int,
    queues: tuple[str, ...],
) -> AsyncWorker:
    """Return a worker on the job table, with the timeouts of the settings."""
    from cleveragents.jobs.worker.async_worker import AsyncWorker
    from cleveragents.jobs.worker.attempt import WorkerOptions

    settings = container.settings.worker
    options = WorkerOptions(
        name=name,
        concurrency=concurrency,
        lease_seconds=settings.lease_seconds,
        heartbeat_seconds=settings.heartbeat_seconds,
        poll_seconds=settings.poll_seconds,
        cancel_grace_seconds=settings.cancel_grace_seconds,
        queues=queues,
    )
    return AsyncWorker(
        container.jobs, handlers, container.clock, container.processes, options, faults=container.faults
    )


@contextmanager
def open_worker(
    url: str, handlers: Mapping[str, JobHandler], options: WorkerOptions | None = None
) -> Iterator[AsyncWorker]:
    """Yield a started worker on the database at `url` (`sqlite:///jobs.db`), for these kinds of jobs.

    It is drained and closed with the block; unfinished jobs stay queued for the next worker.
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
