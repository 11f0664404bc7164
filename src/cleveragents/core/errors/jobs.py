"""Jobs, their workers and their handlers."""

from __future__ import annotations

from dataclasses import dataclass

from cleveragents.core.errors.families import Conflict, Fault, InvalidRequest
from cleveragents.core.errors.remedy import Remedy

__all__ = ["HandlerFailed", "IllegalJobMove", "JobAlreadyEnded", "StaleFence", "UnknownJob", "UnknownJobKind"]


@dataclass(eq=False)
class UnknownJob(InvalidRequest):
    """No job of that id exists in this store."""

    message = "there is no job {job_id!r}"
    job_id: str

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy("job.list", text="List the jobs"),)


@dataclass(eq=False)
class UnknownJobKind(InvalidRequest):
    """No handler is registered for a job's kind."""

    kind: str
    known: tuple[str, ...] = ()

    def __str__(self) -> str:
        known = ", ".join(self.known) or "none"
        return f"no handler for jobs of kind {self.kind!r} (known: {known})"


@dataclass(eq=False)
class IllegalJobMove(InvalidRequest):
    """The state machine of a job has no such move."""

    message = "job {job_id} is {state} and cannot become {wanted}"
    job_id: str
    state: str
    wanted: str


@dataclass(eq=False)
class JobAlreadyEnded(Conflict):
    """The job had ended before the request came; nothing was changed."""

    message = "job {job_id} already {state}; nothing was changed"
    exit_code = 1  # trying again will not help

    job_id: str
    state: str


@dataclass(eq=False)
class StaleFence(Conflict):
    """The job belongs to somebody else now: this worker lost its lease, and its write was refused."""

    message = (
        "job {job_id}: fencing token {fence} is out of date, another worker owns the "
        "job; the write was refused, stop working on it"
    )
    job_id: str
    fence: int


@dataclass(eq=False)
class HandlerFailed(Fault):
    """A job's handler raised; the job carries this as its durable error."""

    message = "the {kind} handler failed: {problem}"
    kind: str
    problem: str
