"""The processes of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from cleveragents.domain.job import WorkerIdentity

__all__ = ["ProcessSupervisor"]


class ProcessSupervisor(Protocol):
    """Finds and ends whole trees of processes, by the marker they inherit and by descent.

    Any thread may call it. A *marker* names one attempt of one job; processes started with
    `environment(marker)` carry it, and so do their children, double-forked and `setsid` ones included.
    """

    def identity(self, worker_id: str) -> WorkerIdentity:
        """Who this process is, in terms any process can check."""
        ...

    def is_alive(self, worker: WorkerIdentity) -> bool | None:
        """Whether that process still runs; None if it is on another machine, where nobody here can tell."""
        ...

    def environment(self, marker: str) -> Mapping[str, str]:
        """Environment variables that mark a process as belonging to `marker`."""
        ...

    def alive(self, marker: str) -> Sequence[int]:
        """Pids of living processes of the marker (never this process itself)."""
        ...

    def end(self, marker: str, *, grace_seconds: float) -> Sequence[int]:
        """Ends them all: politely, then by force after the grace. Returns the pids that were ended.

        When it returns, none is alive. A process that appears meanwhile is ended, too.
        """
        ...
