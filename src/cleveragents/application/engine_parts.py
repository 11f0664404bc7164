"""Joins who hands out jobs and who runs them, as the settings say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cleveragents.application.container import Container
    from cleveragents.application.services.async_worker import AsyncWorker
    from cleveragents.application.services.job_engine import JobEngine, WorkerRequest
    from cleveragents.application.services.job_handlers import JobHandler

__all__ = ["engine_for", "worker_for"]


def engine_for(container: Container) -> JobEngine:
    """The engine that the settings name. `ConfigurationError` for one that is not there."""
    from cleveragents.errors import ConfigurationError
    from cleveragents.infrastructure.jobs.embedded_engine import EmbeddedJobEngine

    settings = container.settings.jobs
    if settings.engine != "embedded":
        raise ConfigurationError("jobs.engine", f"{settings.engine} is not built in yet; use embedded")

    def make_worker(request: WorkerRequest) -> AsyncWorker:
        return container.worker(
            request.handlers, name=request.name, concurrency=request.concurrency, queue=request.queue or None
        )

    return EmbeddedJobEngine(container.jobs, container.clock, make_worker, queue_bound=settings.queue_bound)


def worker_for(
    container: Container, handlers: Mapping[str, JobHandler], name: str, concurrency: int, queue: str | None
) -> AsyncWorker:
    """A worker on the job table, as patient as the settings say."""
    from cleveragents.application.services.async_worker import AsyncWorker
    from cleveragents.application.services.worker_options import WorkerOptions

    settings = container.settings.worker
    options = WorkerOptions(
        name=name,
        concurrency=concurrency,
        lease_seconds=settings.lease_seconds,
        heartbeat_seconds=settings.heartbeat_seconds,
        poll_seconds=settings.poll_seconds,
        cancel_grace_seconds=settings.cancel_grace_seconds,
        queue=queue,
    )
    return AsyncWorker(
        container.jobs, handlers, container.clock, container.processes, options, faults=container.faults
    )
