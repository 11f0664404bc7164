"""Joins a worker of a shared queue: who runs plans, applies and undoes them, wherever it is started.

`agents worker` is one, and a server has one of its own. Closing it gives back what it runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from cleveragents.jobs.engine import EngineWorker, WorkerRequest
from cleveragents.jobs.model.job import JobState
from cleveragents.jobs.ports import JobHandler
from cleveragents.jobs.service_thread import ServiceThread
from cleveragents.jobs.worker.reports import BusyCount, WorkerReports
from cleveragents.plans.jobs.names import SHARED_QUEUE, home_queue
from cleveragents.plans.jobs.shared_jobs import ApplyJob, PlanJob, PlanObserver, UndoJob
from cleveragents.plans.model.plan import Plan, PlanState
from cleveragents.plans.output_recorder import OutputRecorder

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.jobs.ports import WorkerRecord
    from cleveragents.plans.ports.plans import PlanOutput

__all__ = ["SharedWorker", "WorkerParts"]

_PAGE = 1000
_RECONCILE_SECONDS = 30.0
_CLOSE_SECONDS = 10.0
_UNDER_WAY = (PlanState.QUEUED, PlanState.PROCESSING, PlanState.WAITING)
_UNFINISHED = (JobState.QUEUED, JobState.RUNNING)


class SharedWorker:
    """A worker that runs. Whoever started it drains or closes it, from any thread.

    Its threads: those of the engine's worker, one that reports, one that keeps what plans print, one that
    tells plans what became of jobs whose workers died too often, and, if set, one that anchors the audit log.
    """

    def __init__(
        self,
        worker: EngineWorker,
        busy: BusyCount,
        recorder: OutputRecorder,
        reports: WorkerReports,
        services: Sequence[ServiceThread],
    ) -> None:
        self._worker = worker
        self._busy = busy
        self._recorder = recorder
        self._reports = reports
        self._services = services

    @property
    def running(self) -> int:
        """Jobs that it is at."""
        return self._busy.running

    @property
    def ended(self) -> int:
        """Jobs that it has been at, however that ended."""
        return self._busy.ended

    def drain(self, timeout: float) -> bool:
        """Takes no more jobs and lets running ones end; True if all did. Past the time, the rest are told to
        stop and are given back."""
        self._reports.draining()
        return self._worker.drain(timeout)

    def close(self) -> None:
        """Drains without waiting. A second call changes nothing."""
        for service in self._services:
            service.stop()
        try:
            self._worker.close()
        finally:  # what was printed is kept, and the worker seen to be gone, though it is slow to end
            for service in self._services:
                service.join(_CLOSE_SECONDS)
            self._recorder.close()
            self._reports.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class WorkerParts:
    """What workers of shared queues need. Any thread may ask for any part."""

    def __init__(self, container: Container) -> None:
        self._container = container
        self._parts = container.plan_parts

    @property
    def queues(self) -> tuple[str, ...]:
        """Where a worker takes jobs from unless it is told otherwise: what any machine can run, and what is
        about directories of this one."""
        return SHARED_QUEUE, home_queue(self._container.home)

    def ensure_reachable(self, *, engine: bool = True) -> None:
        """`DatabaseUnreachable` or `EngineUnavailable`, as long as a worker could not start; without
        `engine`, as long as nothing could."""
        container = self._container
        with container.database.read():
            pass
        if engine and container.temporal is not None:
            from cleveragents.contrib.temporal.worker import ensure_namespace

            container.temporal.run(ensure_namespace)

    def start(
        self, *, name: str, queues: tuple[str, ...] = (), concurrency: int | None = None
    ) -> SharedWorker:
        """A worker for these queues, or for those of this machine; before it takes anything, it settles what
        dead ones left half applied. `ConfigurationError`, `EngineUnavailable`."""
        container = self._container
        engine = container.engine
        at_once = concurrency or container.settings.worker.concurrency
        queues = queues or self.queues
        self._parts.apply.settle()
        busy = BusyCount()
        recorder = OutputRecorder(self._output(), container.clock)
        reports = WorkerReports(
            container.worker_registry,
            container.clock,
            self._record(name, queues, at_once),
            lambda: busy.running,
            every_seconds=container.settings.worker.heartbeat_seconds,
        )
        services = self._services(name)
        handlers = {kind: JobHandler(run=busy.counted(run)) for kind, run in self.handlers(recorder).items()}
        with ExitStack() as undoing:
            undoing.callback(reports.close)
            reports.start()
            undoing.callback(recorder.close)
            recorder.start()
            worker = engine.run_worker(WorkerRequest(handlers, name, queues, at_once))
            undoing.pop_all()
        for service in services:
            service.start()
        return SharedWorker(worker, busy, recorder, reports, services)

    def handlers(self, recorder: OutputRecorder) -> Mapping[str, PlanJob | ApplyJob | UndoJob]:
        """What runs each kind of job; what is seen of plans goes there."""

        def tell(plan: Plan, line: str) -> None:
            progress = recorder.watch(plan).progress
            if progress is not None:
                progress(line)

        watched = PlanObserver(tell, recorder.end)
        apart = self._container.engine.phases_apart
        run = self._parts.run(watch=recorder.watch, one_phase=apart)
        return {
            "plan": PlanJob(run, self._parts, watched, apart),
            "apply": ApplyJob(self._parts, watched),
            "undo": UndoJob(self._parts, watched),
        }

    def is_idle(self, queues: Collection[str] = ()) -> bool:
        """Whether nothing is queued there, or in the queues of this machine, and nothing of it runs
        anywhere."""
        queues = queues or self.queues
        engine = self._container.engine
        after: str | None = None
        while page := engine.list(states=_UNFINISHED, limit=_PAGE, after=after):
            if any(job.queue in queues for job in page):
                return False
            after = page[-1].id
        return True

    def _output(self) -> PlanOutput:
        from cleveragents.plans.store.sql_plan_output import SqlPlanOutput

        return SqlPlanOutput(self._container.database)

    def _record(self, name: str, queues: tuple[str, ...], concurrency: int) -> WorkerRecord:
        from cleveragents.jobs.ports import WorkerRecord

        container = self._container
        me, now = container.processes.identity(name), container.clock.now()
        return WorkerRecord(
            id=container.identifiers.new(),
            name=name,
            host=_host_name(),
            pid=me.pid,
            home=container.home,
            engine=container.engine.name,
            queue=",".join(queues),
            concurrency=concurrency,
            running=0,
            state="working",
            started_at=now,
            seen_at=now,
            isolation=self._parts.isolation.value,
        )

    def _services(self, name: str) -> list[ServiceThread]:
        services = [ServiceThread(f"{name}-plans", self._reconcile, pause_seconds=_RECONCILE_SECONDS)]
        audit = self._container.settings.audit
        if audit.anchor and audit.anchor_minutes:
            seconds = audit.anchor_minutes * 60.0
            services.append(ServiceThread(f"{name}-anchor", self._anchor, pause_seconds=seconds))
        return services

    def _anchor(self) -> float:
        """Where several state directories share a database, the one that attests the log anchors it."""
        container = self._container
        if not container.audit.is_attested_elsewhere():
            container.anchors.write()
        return container.settings.audit.anchor_minutes * 60.0

    def _reconcile(self) -> float:
        after: str | None = None
        plans = self._parts.plans
        while page := plans.list(states=_UNDER_WAY, limit=_PAGE, after=after):
            self._parts.lifecycle.all_reconciled(page)
            after = page[-1].id
        return _RECONCILE_SECONDS


def _host_name() -> str:
    import socket

    return socket.gethostname()
