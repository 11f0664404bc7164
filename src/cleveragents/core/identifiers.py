"""Identifiers: ULIDs, the identity of a worker process, the fence of its writes, and the acting user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from msgspec import Struct

__all__ = [
    "MARKER_VARIABLE",
    "Fence",
    "IdentifierSource",
    "TurnFence",
    "UlidSource",
    "WorkerIdentity",
    "acting_as",
    "acting_user",
]


MARKER_VARIABLE = "CLEVERAGENTS_JOB"

_NAME: ContextVar[str | None] = ContextVar("cleveragents_acting", default=None)


class IdentifierSource(Protocol):
    """A source of ids (ULIDs): unique across processes, sortable by creation time. Safe in any thread."""

    def new(self) -> str:
        """Return a new unique id."""
        ...


class UlidSource:
    """A source of ULIDs. Stateless: 80 random bits make them unique without a lock."""

    def new(self) -> str:
        from ulid import ULID  # takes longer to load than this module, and few commands need it

        return str(ULID())


class WorkerIdentity(Struct, frozen=True):
    """The process that runs a job, identified well enough to check on the same machine whether it is alive.

    `host` identifies a machine and its boot; `started_ticks` distinguishes the process from a later process
    with the same pid.
    """

    id: str
    host: str
    pid: int
    started_ticks: int


class Fence(Struct, frozen=True):
    """The right to write: the worker that owns this job under this fencing token."""

    job_id: str
    token: int


class TurnFence(Struct, frozen=True):
    """The right to write: the process that runs this turn of a conversation under this fencing token."""

    conversation_id: str
    turn: int
    token: int


def acting_user() -> str | None:
    """Return the name of the acting user; None in commands and workers."""
    return _NAME.get()


@contextmanager
def acting_as(name: str | None) -> Iterator[None]:
    """Set the acting user for this block, and for calls and tasks started with its context."""
    token = _NAME.set(name)
    try:
        yield
    finally:
        _NAME.reset(token)
