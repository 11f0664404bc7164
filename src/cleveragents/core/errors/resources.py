"""Errors of databases, queues, deadlines, events and the audit log."""

from __future__ import annotations

from cleveragents.core.errors.families import Fault, InvalidRequest, Unavailable
from cleveragents.core.errors.remedy import Remedy

__all__ = [
    "AnchorFailed",
    "AuditElsewhere",
    "AuditLogBroken",
    "BreakerOpen",
    "Cancelled",
    "Closed",
    "DatabaseFailed",
    "DatabaseUnreachable",
    "DatabaseUnusable",
    "DeadlineExceeded",
    "InvalidPayload",
    "OutcomeUnknown",
    "QueueFull",
    "StoreBusy",
    "StoreFull",
    "UnknownEventType",
]


class StoreBusy(Unavailable):
    """The database stayed busy for longer than the write could wait.

    `cause` names the process that held the lock, and a remedy, if these are known.
    """

    waited_seconds: float
    cause: str = ""

    def __str__(self) -> str:
        busy = f"the database was busy for {self.waited_seconds:.0f} s"
        return f"{busy}{': ' if self.cause else ''}{self.cause}; nothing was written, try again"


class StoreFull(Unavailable):
    """The disk or a quota is full."""

    message = "no space left for {location}; nothing was written, free some space and try again"
    location: str


class OutcomeUnknown(Unavailable):
    """The answer to a commit was lost: the write may or may not have succeeded."""

    message = "{location}: {problem}; the write may or may not have succeeded, check before you try again"
    location: str
    problem: str


class DatabaseFailed(Fault):
    """The database returned an unexpected error."""

    message = "{location} failed: {problem}; nothing was written, please report it"
    location: str
    problem: str


class DatabaseUnreachable(Unavailable):
    """The database server does not answer, or closed the connection."""

    message = (
        "cannot reach {location}: {problem}; nothing was written, try again; "
        "if this persists, check the server, the database name and the login"
    )
    location: str
    problem: str


class DatabaseUnusable(InvalidRequest):
    """The configured URL does not lead to a usable database."""

    message = "cannot use {location} as the database: {problem} (settings: database.url, state.directory)"
    location: str
    problem: str


class QueueFull(Unavailable):
    """A bounded queue is full, and its policy is to refuse new items."""

    message = "{queue} is full (limit: {bound}); try again later"
    queue: str
    bound: int


class BreakerOpen(Unavailable):
    """A circuit breaker is open and refuses the call."""

    message = "{name!r} failed too often; refused for another {retry_after_seconds:.1f} s"
    name: str
    retry_after_seconds: float


class Closed(Unavailable):
    """The component is closed and accepts no new work."""

    message = "{what} is closed"
    what: str


class DeadlineExceeded(Unavailable):
    """An operation exceeded its time limit."""

    message = "{what} did not end within {seconds:g} s"
    what: str
    seconds: float


class Cancelled(Unavailable):
    """The work was cancelled. `reason` states the cause."""

    exit_code = 130

    reason: str | None = None

    def __str__(self) -> str:
        return f"cancelled: {self.reason}" if self.reason else "cancelled"


class UnknownEventType(InvalidRequest):
    """The name is not an `EventType`."""

    name: str
    nearest: str | None = None

    def __str__(self) -> str:
        hint = f"; did you mean {self.nearest!r}?" if self.nearest else ""
        return f"{self.name!r} is not a known event type{hint}"


class InvalidPayload(InvalidRequest):
    """A payload holds a value that JSON cannot represent."""

    message = "{where}: {problem}; use only JSON values (text, numbers, lists, objects)"
    where: str
    problem: str


class AuditElsewhere(InvalidRequest):
    """The audit log of this database is signed from another state directory."""

    message = "the audit log is signed from another state directory, named {home}; verify the log there"
    home: str

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy("events.adopt", text="If that directory is lost, sign the log here"),)


class AuditLogBroken(Fault):
    """The audit log was changed after it was written."""

    message = "audit log, row {position}: {problem}"
    position: int
    problem: str


class AnchorFailed(Unavailable):
    """Anchors of the audit log could not be read or written."""

    message = "anchor at {target} failed: {problem}"
    target: str
    problem: str
    remedies: tuple[Remedy, ...] = ()
