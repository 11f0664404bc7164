"""What can be set on a worker, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["WorkerOptions", "WorkerStatistics"]

_OWNERS_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """All times in seconds.

    A peer takes a job whose owner was silent for `lease_seconds`; the owner itself lets go earlier, after
    `owner_lease_seconds` without an acknowledged heartbeat, so that its processes are gone by then and two
    clocks of slightly different speed do not matter. `cancel_grace_seconds` is all that a cancelled attempt
    gets: half of it to stop by itself, the other half after a SIGTERM. `queues` are the shared ones that it
    takes jobs from, besides those that are for who names their kind.
    """

    name: str = "worker"
    concurrency: int = 4
    lease_seconds: float = 15.0
    heartbeat_seconds: float = 5.0
    cancel_poll_seconds: float = 1.0
    poll_seconds: float = 0.5
    cancel_grace_seconds: float = 5.0
    leftover_grace_seconds: float = 1.0
    retry_seconds: float = 1.0
    retry_limit_seconds: float = 300.0
    straggler_limit: int = 16
    queues: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ValueError("concurrency must be at least 1")
        if not 0 < self.heartbeat_seconds <= self.owner_lease_seconds / 2:
            raise ValueError("heartbeat_seconds must leave room for a missed beat: at most 0.4 of the lease")

    @property
    def owner_lease_seconds(self) -> float:
        return self.lease_seconds * _OWNERS_SHARE


@dataclass(frozen=True, slots=True)
class WorkerStatistics:
    """A snapshot. All but `running` and `stragglers` count since the worker was made.

    `stragglers` are handler threads that ignored a cancel and still run, fenced off.
    """

    claimed: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    handed_on: int = 0
    lease_lost: int = 0
    reclaimed: int = 0
    running: int = 0
    stragglers: int = 0
