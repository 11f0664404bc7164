"""The port for telemetry: durations of requests, and events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from cleveragents.core.event import DomainEvent

__all__ = ["AnsweredRequest", "Telemetry"]


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """A request that a server has answered. `route` is the path template, without the request's values."""

    method: str
    route: str
    status: int
    started_at: datetime
    ended_at: datetime


class Telemetry(Protocol):
    """Exports traces.

    Any thread may call any method. No method except `close` waits, and none raises: data that exceeds the
    buffer, or that no collector accepts, is lost.
    """

    def heard(self, events: Sequence[DomainEvent]) -> None:
        """Record the events of a transaction. Use it as a commit listener of the database."""
        ...

    def answered(self, request: AnsweredRequest) -> None:
        """Record an answered request."""
        ...

    def close(self) -> None:
        """Flush the buffer, for a few seconds at most. A second call changes nothing."""
        ...
