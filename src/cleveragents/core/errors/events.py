"""Events and the audit log."""

from __future__ import annotations

from dataclasses import dataclass

from cleveragents.core.errors.families import Fault, InvalidRequest, Unavailable
from cleveragents.core.errors.remedy import Remedy

__all__ = ["AnchorFailed", "AuditElsewhere", "AuditLogBroken", "InvalidPayload", "UnknownEventType"]


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
