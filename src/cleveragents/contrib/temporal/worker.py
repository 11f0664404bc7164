"""A worker that gets its jobs from Temporal.

An activity in Temporal claims the row of the job by its id and passes the job to our own worker. Temporal
only supplies the job and forwards a cancel. Heartbeats, fences, the end of all processes of a cancelled
attempt, and the return of jobs to the queue work as without Temporal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from contextvars import copy_context
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cleveragents.contrib.temporal.connection import MOVED, TemporalConnection
from cleveragents.contrib.temporal.names import (
    job_id_of,
    older_task_queues,
    task_queue_of,
    workflow_id,
)
from cleveragents.contrib.temporal.store import TemporalJobStore, kept_queue
from cleveragents.contrib.temporal.workflow import (
    ACTIVITY,
    CANCEL,
    PHASES,
    ActivityResult,
    JobWorkflow,
    activity_of,
)
from cleveragents.core.clock import Clock
from cleveragents.core.errors import EngineUnavailable, JobAlreadyEnded, UnknownJob
from cleveragents.core.identifiers import WorkerIdentity
from cleveragents.jobs.model.job import Job, JobState
from cleveragents.jobs.service_thread import ServiceThread
from cleveragents.jobs.worker.async_worker import AsyncWorker
from cleveragents.jobs.worker.log import worker_log

if TYPE_CHECKING:
    from temporalio.client import Client
    from temporalio.worker import Worker

__all__ = ["TemporalWorker", "ensure_namespace"]

_LOOK_SECONDS = 1.0
_HEARTBEAT_SECONDS = 1.0
_STOP_SECONDS = 30.0
_TELL_AGAIN_SECONDS = 120.0
_ASK_SECONDS = 5.0
_OLDER_SECONDS = 600.0
_PAGE = 1000


class TemporalWorker:
    """Runs up to `concurrency` jobs from some Temporal queues.

    Thread safety:
        Owner: the code that made it closes it; any thread may call `drain` and `close`, one after another.
        Lock: none of its own; our worker has a lock for running jobs, and Temporal's worker has its own loop.
        Guarantee: a job runs here only under a fence of its row; after `close`, no job runs here.
    Cancel safety: an interrupted drain may be called again.
    """

    def __init__(
        self,
        inner: AsyncWorker,
        store: TemporalJobStore,
        temporal: TemporalConnection,
        clock: Clock,
        *,
        queues: tuple[str, ...],
        concurrency: int,
        on_cancelled: Callable[[Job], None] = lambda job: None,
    ) -> None:
        self._inner = inner
        self._on_cancelled = on_cancelled
        self._store = store
        self._temporal = temporal
        self._clock = clock
        self._queues = queues
        self._concurrency = concurrency
        # A thread for each possible activity: one that waited for a thread would time out as silent.
        # No more than `concurrency` of them run a job; the others are rejected.
        threads = max(1, concurrency * len(queues))
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="temporal-job")
        self._told_at: dict[str, float] = {}
        self._asked_at = clock.monotonic()
        self._cluster: str | None = None
        self._look_for_older_at = 0.0
        self._sweeps = ServiceThread("temporal-sweeps", self._tell_of_forgotten, pause_seconds=_LOOK_SECONDS)
        self._theirs: list[Worker] = []
        self._ended: list[Future[None]] = []

    def start(self) -> None:
        """Start taking jobs. Raises `EngineUnavailable` if Temporal or the namespace is not available."""
        self._temporal.run(ensure_namespace)
        with suppress(
            EngineUnavailable
        ):  # without permission to list workflows, lost jobs wait for their next turn
            self._cluster = self._temporal.run(_cluster_id)
        self._theirs = self._temporal.run(self._made)
        self._inner.start()
        self._ended = [self._temporal.begin(one.run) for one in self._theirs]
        self._sweeps.start()

    def stop_claiming(self) -> None:
        """Take no more jobs; running jobs continue."""
        self._inner.stop_claiming()

    def drain(self, timeout: float) -> bool:
        """Take no more jobs and let running jobs end. After the timeout, return the rest to the queue. Return
        whether all ended in time.
        """
        self._inner.stop_claiming()
        self._sweeps.stop()
        self._sweeps.join(_STOP_SECONDS)  # before its next sweep mistakes stopped workers for failed ones
        stopping = [self._temporal.begin(one.shutdown) for one in self._theirs]
        drained = self._inner.drain(timeout)
        wait(stopping, _STOP_SECONDS)  # not forever: an activity whose code does not end keeps it open
        return drained

    def close(self) -> None:
        """Drain without waiting, and end all threads. A second call changes nothing."""
        self.drain(0)
        self._inner.close()
        wait(self._ended, _STOP_SECONDS)
        self._threads.shutdown()

    async def _made(self, client: Client) -> list[Worker]:
        """Create one worker for each queue: a Temporal worker serves only one."""
        from datetime import timedelta

        from temporalio import activity
        from temporalio.worker import UnsandboxedWorkflowRunner, Worker

        def named(name: str) -> Callable[[str, int], ActivityResult]:
            # An exception raised inside our code would leave its locks held: set a flag instead.
            @activity.defn(name=name, no_thread_cancel_exception=True)
            def run(job_id: str, look: int) -> ActivityResult:
                return self.run_job(job_id, look)

            return run

        @activity.defn(name=CANCEL)
        async def cancel(job_id: str) -> None:
            await asyncio.to_thread(self.cancel_job, job_id)

        return [
            Worker(
                client,
                task_queue=task_queue_of(queue),
                workflows=[JobWorkflow],
                activities=[cancel, *(named(name) for name in (ACTIVITY, *map(activity_of, PHASES)))],
                # Temporal's sandbox loads the module again for every workflow, on the loop that sends
                # heartbeats, and on a busy machine mistakes the time for a deadlock. Our workflow imports
                # nothing, and a test replays its histories.
                workflow_runner=UnsandboxedWorkflowRunner(),
                # No cache: workflows cached by a dead worker would be offered only to it, for ten
                # seconds. Histories are short, and another worker replays them as fast.
                max_cached_workflows=0,
                activity_executor=self._threads,
                max_concurrent_activities=self._concurrency,
                max_heartbeat_throttle_interval=timedelta(seconds=_HEARTBEAT_SECONDS),
                graceful_shutdown_timeout=timedelta(seconds=_STOP_SECONDS),
            )
            for queue in self._queues
        ]

    def run_job(self, job_id: str, look: int) -> ActivityResult:
        """Run the activity: claim the job, run it, and return its state."""
        from temporalio import activity

        info = activity.info()
        place = f"/{info.workflow_run_id}/{look}.{info.attempt}"

        def claim(me: WorkerIdentity) -> Job | None:
            owner = replace(me, id=f"{me.id}{place}")
            return self._store.table.claim_this(job_id, owner, now=self._clock.now())

        with self._listening(job_id):
            try:
                ran = self._inner.run_one(claim)
                job = self._store.get(job_id)
            except UnknownJob:
                return ActivityResult("deleted", ended=True)
        if job.state is JobState.CANCELLED:
            # guard: its plan may have been between two phases, where no code was running to be cancelled
            self._on_cancelled(job)
        if job.state.ended:
            return ActivityResult(job.state.value, ended=True)
        phase = self._store.phase_of(job)
        due = job.not_before <= self._clock.now()
        if ran and job.state is JobState.QUEUED and job.error is None and due:
            return ActivityResult(
                job.state.value, ended=False, phase=phase
            )  # a phase is done, the next is due
        if job.state is JobState.RUNNING:
            # Temporal may have lost track of the owner while it was down. The row decides whether that owner
            # is silent: any worker takes over from an owner without heartbeats there.
            wait_seconds = self._temporal.lease_seconds / 3
        else:
            wait_seconds = (job.not_before - self._clock.now()).total_seconds()
        wait_seconds = max(_LOOK_SECONDS, wait_seconds)
        return ActivityResult(job.state.value, ended=False, wait_seconds=wait_seconds, phase=phase)

    def cancel_job(self, job_id: str) -> None:
        """Cancel a job whose workflow was cancelled while no code of the job was running."""
        with suppress(UnknownJob):
            self._cancel(job_id)
            job = self._store.get(job_id)
            if job.state is JobState.CANCELLED:
                self._on_cancelled(job)

    @contextmanager
    def _listening(self, job_id: str) -> Iterator[None]:
        """Send heartbeats to Temporal for the activity, and forward its cancel to the attempt."""
        from temporalio import activity

        watch = _Watch(activity.heartbeat, _is_wanted_cancelled, lambda: self._cancel(job_id))
        # The activity is identified by the context of the thread that runs it.
        context = copy_context()
        name = f"temporal-{job_id}"
        timer = ServiceThread(name, lambda: context.run(watch.look), pause_seconds=_HEARTBEAT_SECONDS)
        timer.start()
        try:
            yield
        finally:
            timer.stop()
            timer.join(_STOP_SECONDS)

    def _cancel(self, job_id: str) -> None:
        with suppress(JobAlreadyEnded):
            self._inner.cancel(job_id, "cancelled in Temporal")

    def _tell_of_forgotten(self) -> float:
        """Submit queued jobs to Temporal again: jobs that their submitter could not send, that Temporal lost,
        or whose workflow a person ended. Return the seconds until the next call.

        A running workflow is not started again.
        """
        self._revive()
        self._end_forsaken()
        mine = {kept_queue(queue) for queue in self._queues}
        queued: dict[str, Job] = {}
        after: str | None = None
        while page := self._store.table.list(states=(JobState.QUEUED,), limit=_PAGE, after=after):
            after = page[-1].id
            queued |= {job.id: job for job in page if job.queue in mine}
        now = self._clock.monotonic()
        self._told_at = {job_id: at for job_id, at in self._told_at.items() if job_id in queued}
        if self._told_at and not self._still_knows(now):
            self._told_at.clear()  # guard: earlier submissions are lost there
        for job_id in sorted(queued):
            if now - self._told_at.get(job_id, -_TELL_AGAIN_SECONDS) < _TELL_AGAIN_SECONDS:
                continue
            try:
                self._store.tell(queued[job_id])
            except EngineUnavailable:
                return _LOOK_SECONDS
            self._told_at[job_id] = now
        return _LOOK_SECONDS

    def _end_forsaken(self) -> None:
        """End workflows of older versions whose jobs have ended or have moved to this version.

        These workflows have other names, and the workers that could continue them may be gone for good.
        """
        now = self._clock.monotonic()
        if now < self._look_for_older_at:
            return
        self._look_for_older_at = now + _OLDER_SECONDS
        older = {name for queue in self._queues for name in older_task_queues(queue)}
        with suppress(EngineUnavailable):  # the next sweep finds them
            for workflow, run in self._temporal.open_on(older):
                why = self._forsaken(workflow)
                if why is not None:
                    self._temporal.end(workflow, run, why)
                    worker_log().info("temporal.workflow_ended", workflow=workflow, why=why)

    def _forsaken(self, workflow: str) -> str | None:
        """Return the reason why the workflow is no longer needed, or None."""
        try:
            job = self._store.get(job_id_of(workflow))
        except UnknownJob:
            return None  # of another database
        if job.state.ended:
            return f"the job is {job.state.value}"
        # A workflow with our name is moved when its job is sent to Temporal; a running one may have a
        # worker of the older version.
        return MOVED if job.state is JobState.QUEUED and workflow != workflow_id(job) else None

    def _still_knows(self, now: float) -> bool:
        """Return whether Temporal still has the same data. False if it has another id, or if it was down and
        may have lost its data.
        """
        if now - self._asked_at < _ASK_SECONDS:
            return True
        self._asked_at = now
        before = self._cluster
        try:
            self._cluster = self._temporal.run(_cluster_id)
        except EngineUnavailable:
            self._cluster = None
        return before is None or before == self._cluster

    def _revive(self) -> None:
        """Restart Temporal workers that ended by themselves."""
        for place, ended in enumerate(self._ended):
            if not ended.done() or ended.cancelled():
                continue
            worker_log().error("temporal.worker_ended", problem=str(ended.exception()))
            try:
                self._theirs[place] = self._temporal.run(self._made)[place]
            except EngineUnavailable:
                return
            self._ended[place] = self._temporal.begin(self._theirs[place].run)


class _Watch:
    """Sends heartbeats for one activity, and reports its cancel once."""

    def __init__(
        self, beat: Callable[[], None], is_cancelled: Callable[[], bool], cancel: Callable[[], None]
    ) -> None:
        self._beat = beat
        self._is_cancelled = is_cancelled
        self._cancel = cancel
        self._heard = False

    def look(self) -> float:
        self._beat()
        if not self._heard and self._is_cancelled():
            self._heard = True
            self._cancel()
        return _HEARTBEAT_SECONDS


async def ensure_namespace(client: Client) -> None:
    """Raise an error if the namespace does not exist: otherwise a worker would silently wait forever."""
    from datetime import timedelta

    from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest

    asked = DescribeNamespaceRequest(namespace=client.namespace)
    await client.workflow_service.describe_namespace(asked, timeout=timedelta(seconds=_STOP_SECONDS))


async def _cluster_id(client: Client) -> str:
    """Return the id of Temporal's database, which changes if Temporal was replaced and has none of our
    jobs.
    """
    from datetime import timedelta

    from temporalio.api.workflowservice.v1 import GetClusterInfoRequest

    asked = client.workflow_service.get_cluster_info(
        GetClusterInfoRequest(), timeout=timedelta(seconds=_STOP_SECONDS)
    )
    return (await asked).cluster_id


def _is_wanted_cancelled() -> bool:
    """Return whether the activity was stopped because the workflow was cancelled by a request.

    An activity is also stopped when Temporal timed it out. In that case the job must not be cancelled,
    because it may already run on another worker; the fence decides.
    """
    from temporalio import activity

    details = activity.cancellation_details()
    return details is not None and details.cancel_requested  # guard: one that timed out cancels nothing
