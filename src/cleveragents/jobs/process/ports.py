"""The processes of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cleveragents.core.identifiers import WorkerIdentity
from cleveragents.core.json_value import JsonValue
from cleveragents.jobs.model.job import Job

__all__ = ["JobProcess", "JobProgram", "ProcessSupervisor", "Raised", "Returned"]


@dataclass(frozen=True, slots=True)
class Returned:
    """A handler came back with this value, which may or may not be JSON."""

    value: object


@dataclass(frozen=True, slots=True)
class Raised:
    """A handler did not come back with a value: it raised, or its process died.

    `permanent`: another attempt would end the same way. `cancelled`: it says that it stopped because it
    was told to. `refusal`: code and fields of the error, if it is one of ours and permanent.
    """

    problem: str
    permanent: bool = False
    cancelled: bool = False
    refusal: JsonValue = None


@dataclass(frozen=True, slots=True)
class JobProgram:
    """What a process of its own is to run: `target` is `package.module:function`.

    `lease_until` is a reading of `Clock.monotonic`, which all processes of a boot share: the process ends
    itself and its whole tree at that moment unless the lease was renewed.
    """

    job: Job
    target: str
    lease_until: float


class JobProcess(Protocol):
    """An attempt that runs in a process of its own. Any thread may call it; no call but `wait` waits."""

    def renew(self, lease_until: float) -> None:
        """The worker still owns the job, until then."""
        ...

    def cancel(self, reason: str) -> None:
        """Cancels the handler's token over there."""
        ...

    def wait(self, timeout: float) -> Returned | Raised | None:
        """What the handler did, once it and all its processes ended; None if that takes longer."""
        ...

    def close(self) -> None:
        """Gives up the connection; a process that still runs ends itself and its tree."""
        ...


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
        `DeadlineExceeded` if they multiply faster than they can be ended.
        """
        ...

    def launch(self, marker: str, program: JobProgram) -> JobProcess:
        """Starts the program in a process that carries the marker."""
        ...
