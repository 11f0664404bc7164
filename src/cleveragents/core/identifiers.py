"""Identity as a parameter.

ULIDs.

The identity of a worker process.

The fence that a worker writes under.

The variable by which the processes of an attempt are known.

In whose name something is done: known where a request comes in, and told by whatever is recorded of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

__all__ = [
    "MARKER_VARIABLE",
    "Fence",
    "IdentifierSource",
    "UlidSource",
    "WorkerIdentity",
    "acting",
    "acting_as",
]


MARKER_VARIABLE = "CLEVERAGENTS_JOB"

_NAME: ContextVar[str | None] = ContextVar("cleveragents_acting", default=None)


class IdentifierSource(Protocol):
    """Gives ids (ULIDs): unique across processes, sortable by creation time. Any thread may ask."""

    def new(self) -> str:
        """An id nobody had before."""
        ...


class UlidSource:
    """`IdentifierSource` giving ULIDs. Stateless: 80 random bits make them unique without a lock."""

    def new(self) -> str:
        from ulid import ULID  # takes longer to load than this module, and few commands need it

        return str(ULID())


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """Who runs a job: enough to tell, on the same machine, whether that process is still alive.

    `host` names a machine and its boot; `started_ticks` tells a process from a later one of the same pid.
    """

    id: str
    host: str
    pid: int
    started_ticks: int


@dataclass(frozen=True, slots=True)
class Fence:
    """Who may write: the worker that holds this job under this fencing token."""

    job_id: str
    token: int


def acting() -> str | None:
    """The user's name; None where nobody said who they are, as with a command or a worker."""
    return _NAME.get()


@contextmanager
def acting_as(name: str | None) -> Iterator[None]:
    """Until the block ends, here and in what is called or started from here with its context."""
    token = _NAME.set(name)
    try:
        yield
    finally:
        _NAME.reset(token)
