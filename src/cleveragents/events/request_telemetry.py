"""Who is told how long things take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from cleveragents.core.event import DomainEvent

__all__ = ["AnsweredRequest", "Telemetry"]


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """A request that a server has answered; its route is a template, never what somebody asked for."""

    method: str
    route: str
    status: int
    started_at: datetime
    ended_at: datetime


class Telemetry(Protocol):
    """Makes traces. Any thread may tell it anything; it never waits and never raises: what it has no room
    for is lost, and so is what nobody takes from it."""

    def heard(self, events: Sequence[DomainEvent]) -> None:
        """What a transaction has left behind; made to be a commit listener of the database."""
        ...

    def answered(self, request: AnsweredRequest) -> None:
        """One more answer of a server."""
        ...

    def close(self) -> None:
        """Hands on what it has, for a few seconds at most. A second call changes nothing."""
        ...
