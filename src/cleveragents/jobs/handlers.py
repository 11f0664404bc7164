"""What runs a kind of job, and where."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cleveragents.core.errors import ConfigurationError, UnknownJobKind

if TYPE_CHECKING:
    from cleveragents.jobs.model.job import Job
    from cleveragents.jobs.worker.async_worker import AsyncJob

__all__ = ["HandlerFunction", "JobHandler", "handler_for", "is_for"]

HandlerFunction = Callable[["AsyncJob"], object]


@dataclass(frozen=True, slots=True)
class JobHandler:
    """A function that runs jobs of one kind and returns a JSON value.

    `isolation="thread"` calls `run` on a thread of the worker: quick, but nothing can end it; it must watch
    its token. `isolation="process"` runs `target`, an import path `package.module:function`, in a process
    that is ended for real, with everything it started.
    What it raises is a failure and is tried again, except an `InvalidRequest`, which fails at once, and a
    `Cancelled` after its token was cancelled.
    """

    run: HandlerFunction | None = None
    target: str | None = None
    isolation: Literal["thread", "process"] = "thread"

    def __post_init__(self) -> None:
        if self.isolation == "thread" and self.run is None:
            raise ConfigurationError("job handler", "isolation 'thread' needs run=<function>")
        if self.isolation == "process" and ":" not in (self.target or ""):
            raise ConfigurationError("job handler", "isolation 'process' needs target='package.module:name'")


def handler_for(kind: str, handlers: Mapping[str, JobHandler]) -> JobHandler:
    """The handler of that kind; or of `name`, if that is `name:id`. `UnknownJobKind`."""
    handler = handlers.get(kind) or handlers.get(_name_of(kind))
    if handler is None:
        raise UnknownJobKind(kind, tuple(sorted(handlers)))
    return handler


def is_for(job: Job, handlers: Mapping[str, JobHandler], queues: Collection[str]) -> bool:
    """Whether a worker with these handlers claims it, if it takes from those shared queues."""
    if job.queue == "":
        return job.kind in handlers
    return job.queue in queues and (job.kind in handlers or _name_of(job.kind) in handlers)


def _name_of(kind: str) -> str:
    return kind.partition(":")[0]
