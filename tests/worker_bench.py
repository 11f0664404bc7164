"""A bench for workers: an in-memory store, a fake machine and clock, and manual steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from cleveragents.core.faults import FaultPoints
from cleveragents.core.identifiers import WorkerIdentity
from cleveragents.jobs.model.job import Job, NewJob
from cleveragents.jobs.ports import HandlerFunction, JobHandler, JobHandoff
from cleveragents.jobs.process.supervisor import JobProcess, JobProgram
from cleveragents.jobs.worker.async_worker import AsyncWorker
from cleveragents.jobs.worker.attempt import WorkerOptions
from cleveragents.testing.clock import CountingIdentifiers, FakeClock
from cleveragents.testing.job_store import InMemoryJobStore

__all__ = ["OPTIONS", "Bench", "Machine", "Moody", "claim"]

OPTIONS = WorkerOptions(
    lease_seconds=15, heartbeat_seconds=5, cancel_grace_seconds=4, leftover_grace_seconds=0, retry_seconds=8
)


@dataclass
class Machine:
    """A fake process table: live processes, and those that were ended."""

    dead: set[str] = field(default_factory=set)
    ended: list[str] = field(default_factory=list)

    def identity(self, worker_id: str) -> WorkerIdentity:
        return WorkerIdentity(worker_id, "here", 1, 1)

    def is_alive(self, worker: WorkerIdentity) -> bool | None:
        return None if worker.host != "here" else worker.id not in self.dead

    def environment(self, marker: str) -> Mapping[str, str]:
        return {"JOB": marker}

    def alive(self, marker: str) -> Sequence[int]:
        return []

    def end(self, marker: str, *, grace_seconds: float) -> Sequence[int]:
        self.ended.append(marker)
        return [4711]

    def launch(self, marker: str, program: JobProgram) -> JobProcess:
        raise NotImplementedError


@dataclass
class Bench:
    """Workers on one store, stepped manually."""

    clock: FakeClock = field(default_factory=FakeClock)
    machine: Machine = field(default_factory=Machine)
    store: InMemoryJobStore = field(default_factory=lambda: InMemoryJobStore(CountingIdentifiers("job")))
    spawned: list[Callable[[], None]] = field(default_factory=list)

    def worker(
        self,
        run: HandlerFunction = lambda job: None,
        name: str = "a",
        faults: FaultPoints | None = None,
        **changes: object,
    ) -> AsyncWorker:
        options = replace(OPTIONS, name=name, **changes)
        handlers = {"work": JobHandler(run)}
        return AsyncWorker(
            self.store, handlers, self.clock, self.machine, options, faults=faults, spawn=self._spawn
        )

    def _spawn(self, name: str, work: Callable[[], None]) -> None:
        self.spawned.append(work)

    def submit(self, **facts: object) -> str:
        return self.store.submit(NewJob("work", **facts), now=self.clock.now()).id

    def play(self, worker: AsyncWorker, **facts: object) -> str:
        """Run a job from its submission until this worker leaves it; return its id."""
        job_id = self.submit(**facts)
        claim(worker)
        self.run_all()
        return job_id

    def run_all(self) -> None:
        """Run all spawned callables, as threads would."""
        while self.spawned:
            self.spawned.pop(0)()

    def job(self, job_id: str) -> Job:
        return self.store.get(job_id)


class Moody(InMemoryJobStore):
    """A store that fails at times: the next calls raise `trouble`, before or after they take effect."""

    def __init__(self) -> None:
        super().__init__(CountingIdentifiers("job"))
        self.trouble: list[Exception] = []
        self.after = False

    def finish(self, job_id: str, *args: object, **more: object) -> Job:
        return self._moodily(lambda: super(Moody, self).finish(job_id, *args, **more))

    def finish_and_claim(self, *args: object, **more: object) -> JobHandoff:
        return self._moodily(lambda: super(Moody, self).finish_and_claim(*args, **more))

    def heartbeats(self, *args: object, **more: object) -> object:
        return self._moodily(lambda: super(Moody, self).heartbeats(*args, **more))

    def _moodily(self, act: Callable[[], object]) -> object:
        if not self.trouble:
            return act()
        if self.after:
            act()
        raise self.trouble.pop(0)


def claim(worker: AsyncWorker) -> None:
    worker._claim_ready()
