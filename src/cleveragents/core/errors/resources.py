"""Stores, queues and time.

Events and the audit log.
"""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(eq=False)
class StoreBusy(Unavailable):
    """The database stayed busy for longer than the write was prepared to wait; `cause` says who kept it, and
    what to do about that, where it is known."""

    waited_seconds: float
    cause: str = ""

    def __str__(self) -> str:
        busy = f"the database was busy for {self.waited_seconds:.0f} s"
        return f"{busy}{': ' if self.cause else ''}{self.cause}; nothing was written, try again"


@dataclass(eq=False)
class StoreFull(Unavailable):
    """The disk, or a quota, has no room for the write."""

    message = "no space left for {location}; nothing was written, free some and try again"
    location: str


@dataclass(eq=False)
class OutcomeUnknown(Unavailable):
    """A commit was under way and its answer never came: the write may have been kept, or not."""

    message = "{location}: {problem}; the write may have been kept or not, look before trying again"
    location: str
    problem: str


@dataclass(eq=False)
class DatabaseFailed(Fault):
    """The database answered with an error that nobody foresaw."""

    message = "{location} failed: {problem}; nothing was written, please report it"
    location: str
    problem: str


@dataclass(eq=False)
class DatabaseUnreachable(Unavailable):
    """The database's server does not answer, or hung up."""

    message = (
        "cannot reach {location}: {problem}; nothing was written, try again; "
        "if it stays so, check: is the server up, are database and login right?"
    )
    location: str
    problem: str


@dataclass(eq=False)
class DatabaseUnusable(InvalidRequest):
    """What the configured URL points at cannot serve as our database."""

    message = "cannot use {location} as the database: {problem} (settings: database.url, state.directory)"
    location: str
    problem: str


@dataclass(eq=False)
class QueueFull(Unavailable):
    """A bounded queue has no room and its policy is to refuse."""

    message = "{queue} holds its limit of {bound}; wait until some of it is done"
    queue: str
    bound: int


@dataclass(eq=False)
class BreakerOpen(Unavailable):
    """A circuit breaker refuses the call for now."""

    message = "{name!r} failed too often; refused for another {retry_after_seconds:.1f} s"
    name: str
    retry_after_seconds: float


@dataclass(eq=False)
class Closed(Unavailable):
    """The component was closed; it takes no new work."""

    message = "{what} is closed"
    what: str


@dataclass(eq=False)
class DeadlineExceeded(Unavailable):
    """The time allowed for a step has passed."""

    message = "{what} did not end within {seconds:g} s"
    what: str
    seconds: float


@dataclass(eq=False)
class Cancelled(Unavailable):
    """The work was cancelled; `reason` says by whom or why."""

    exit_code = 130

    reason: str | None = None

    def __str__(self) -> str:
        return f"cancelled: {self.reason}" if self.reason else "cancelled"


@dataclass(eq=False)
class UnknownEventType(InvalidRequest):
    """An event's type is not one of `EventType`."""

    name: str
    nearest: str | None = None

    def __str__(self) -> str:
        hint = f"; did you mean {self.nearest!r}?" if self.nearest else ""
        return f"{self.name!r} is not a known event type{hint}"


@dataclass(eq=False)
class InvalidPayload(InvalidRequest):
    """A payload holds something JSON cannot carry."""

    message = "{where}: {problem}; use only JSON values (text, numbers, lists, objects)"
    where: str
    problem: str


@dataclass(eq=False)
class AuditElsewhere(InvalidRequest):
    """The audit log of this database is ordered and attested under another state directory."""

    message = "the audit log is attested by the state directory named {home}; verify it there"
    home: str

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy("events.adopt", text="If that directory is lost, attest it here"),)


@dataclass(eq=False)
class AuditLogBroken(Fault):
    """The audit log is not what it was when it was written."""

    message = "audit log, row {position}: {problem}"
    position: int
    problem: str


@dataclass(eq=False)
class AnchorFailed(Unavailable):
    """Anchors of the audit log could not be read or written."""

    message = "anchor at {target} failed: {problem}"
    target: str
    problem: str
    remedies: tuple[Remedy, ...] = ()
