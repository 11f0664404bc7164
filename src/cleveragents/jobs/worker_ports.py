"""Who works: for people to look at. No lease depends on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

__all__ = ["WorkerRecord", "WorkerRegistry"]


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A worker as it last said it is: working, draining or gone. `home` names its state directory.
    `isolation` is that of the commands it runs; None for workers of versions that did not report it."""

    id: str
    name: str
    host: str
    pid: int
    home: str
    engine: str
    queue: str
    concurrency: int
    running: int
    state: str
    started_at: datetime
    seen_at: datetime
    isolation: str | None = None


class WorkerRegistry(Protocol):
    """Workers of all machines. Every method is one atomic step."""

    def report(self, worker: WorkerRecord) -> None:
        """Keeps what the worker says of itself; the first and the last report of one are events."""
        ...

    def list(self) -> Sequence[WorkerRecord]:
        """The latest first; those that went long ago are forgotten."""
        ...
