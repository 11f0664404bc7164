"""The worker of a shared queue, which runs, applies and undoes plans.

`agents worker` runs one, and a server has its own. Closing a worker returns its running jobs to the queue.
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
    """A running worker. Its starter drains or closes it, from any thread.

    It has the threads of the engine's worker, and one thread for each of these: its reports, the output of
    plans, plans whose jobs failed because their workers died too often, and anchors of the audit log, if
    configured.
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
        """The number of running jobs."""
        return self._busy.running

    @property
    def ended(self) -> int:
        """The number of finished jobs, whatever their outcome."""
        return self._busy.ended

    def drain(self, timeout: float) -> bool:
        """Take no more jobs and let running jobs end; return whether all of them ended in time.

        After the timeout, the rest are stopped and returned to the queue.
        """
        self._reports.draining()
        return self._worker.drain(timeout)

    def close(self) -> None:
        """Drain without waiting. A second call changes nothing."""
        for service in self._services:
            service.stop()
        try:
            self._worker.close()
        finally:  # the output is stored, and the worker reported as gone, even if it is slow to end
            for service in self._services:
                service.join(_CLOSE_SECONDS)
            self._recorder.close()
            self._reports.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class WorkerParts:
    """The components of workers of shared queues. Safe in any thread."""

    def __init__(self, container: Container) -> None:
        self._container = container
        self._parts = container.plan_parts

    @property
    def queues(self) -> tuple[str, ...]:
        """The default queues of a worker: the shared queue, and the queue for directories of this machine."""
        return SHARED_QUEUE, home_queue(self._container.home)

    def ensure_reachable(self, *, engine: bool = True) -> None:
        """Raise `DatabaseUnreachable` or `EngineUnavailable` while a worker could not start.

        Without `engine`, only the database is checked.
        """
        container = self._container
        with container.database.read():
            pass
        if engine and container.temporal is not None:
            from cleveragents.contrib.temporal.worker import ensure_namespace

            container.temporal.run(ensure_namespace)

    def start(
        self, *, name: str, queues: tuple[str, ...] = (), concurrency: int | None = None
    ) -> SharedWorker:
        """Start a worker for these queues; by default, for the queues of this machine.

        Before it takes a job, it settles applies that dead workers left incomplete. Raises
        `ConfigurationError` or `EngineUnavailable`.
        """
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
        """Return the handler of each kind of job; the output of plans goes to `recorder`."""

        def tell(plan: Plan, line: str) -> None:
            progress = recorder.watch(plan).progress
            if progress is not None:
                progress(line)

        watched, settled = PlanObserver(tell, recorder.end), PlanObserver(tell, recorder.settle)
        apart = self._container.engine.phases_apart
        run = self._parts.run(watch=recorder.watch, one_phase=apart)
        return {
            "plan": PlanJob(run, self._parts, watched, apart),
            # A client that waits for the job reads its last lines then.
            "apply": ApplyJob(self._parts, settled),
            "undo": UndoJob(self._parts, settled),
        }

    def is_idle(self, queues: Collection[str] = ()) -> bool:
        """Return whether no job is queued or running in these queues; by default, in the queues of this
        machine.
        """
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
        """Anchor the audit log, unless that is the task of another state directory. Return the seconds until
        the next call.
        """
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
