"""The identity of a worker process."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["WorkerIdentity"]


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """Who runs a job: enough to tell, on the same machine, whether that process is still alive.

    `host` names a machine and its boot; `started_ticks` tells a process from a later one of the same pid.
    """

    id: str
    host: str
    pid: int
    started_ticks: int
