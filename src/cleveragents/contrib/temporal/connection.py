"""Temporal's client, for threads: connected at its first use, on a loop of its own."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from cleveragents.config.entry_points import install_command
from cleveragents.contrib.temporal.names import (
    is_of_older_protocol,
    memo_of,
    priority_key,
    summary_of,
    task_queue_of,
    workflow_id,
)
from cleveragents.core.errors import ConfigurationError, EngineUnavailable
from cleveragents.jobs.model.job import Job
from cleveragents.processes.event_loop_thread import EventLoopThread

if TYPE_CHECKING:
    from temporalio.client import Client

__all__ = ["MOVED", "TemporalConnection"]

T = TypeVar("T")

# Who submits a job waits for it, and a worker tells Temporal of what could not be told in this time.
_SECONDS = 3.0
MOVED = "begun by an older version of cleveragents; workers of the newer one take the job from here"


class TemporalConnection:
    """One connection of a process. Any thread may use it; a Temporal that does not answer is asked again at
    the next use.

    Thread safety:
        Owner: who made it closes it; any thread may call `run` and `start`.
        Lock: `_lock` guards which client there is; held for an assignment.
        Guarantee: nothing is sent after `close`; a job has one workflow at a time, by its id.
    Cancel safety: a call that is interrupted may have reached Temporal; all of them may be repeated.
    """

    def __init__(self, address: str, namespace: str, *, lease_seconds: float) -> None:
        self.address = address
        self.lease_seconds = lease_seconds
        self._namespace = namespace
        self._loop = EventLoopThread("temporal")
        self._lock = threading.Lock()
        self._client: Client | None = None

    def run(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """What the coroutine returns. `EngineUnavailable` when Temporal does not answer."""
        _client_class()
        from temporalio.service import RPCError

        try:
            return self._loop.run(lambda: self._with_client(work))
        except (RPCError, RuntimeError, OSError, TimeoutError) as error:
            raise EngineUnavailable("temporal", f"{self.address}: {_first_line(error)}") from error

    def begin(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Has it run on the connection's loop, for as long as it takes."""
        return self._loop.begin(work)

    def start(self, job: Job, phase: str, goal: str = "") -> bool:
        """Has a workflow run the job, unless one does, beginning with that phase. One that an older version
        began is begun anew, for workers of this one; True then. `EngineUnavailable`."""
        _client_class()
        from datetime import timedelta

        from temporalio.common import Priority, WorkflowIDReusePolicy
        from temporalio.exceptions import WorkflowAlreadyStartedError

        from cleveragents.contrib.temporal.workflow import WORKFLOW, WorkflowInput

        async def begin(client: Client) -> None:
            await client.start_workflow(
                WORKFLOW,
                WorkflowInput(job.id, self.lease_seconds, phase=phase),
                id=workflow_id(job),
                task_queue=task_queue_of(job.queue),
                priority=Priority(priority_key=priority_key(job.priority)),
                # What Temporal's own pages say of it.
                static_summary=summary_of(job, goal),
                memo=memo_of(job, goal),
                # One at a time: another while one runs is refused. One that ended, though its job did
                # not, was ended by somebody in Temporal, or forgotten there.
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                rpc_timeout=timedelta(seconds=_SECONDS),
            )

        async def begin_once(client: Client) -> bool:
            with suppress(WorkflowAlreadyStartedError):
                await begin(client)
                return False
            begun = client.get_workflow_handle(workflow_id(job))
            described = await begun.describe(rpc_timeout=timedelta(seconds=_SECONDS))
            if not is_of_older_protocol(described.task_queue):  # guard: what runs is not begun anew
                return False
            # That run alone: somebody else may have moved it since, and theirs goes on.
            older = client.get_workflow_handle(workflow_id(job), run_id=described.run_id)
            await _unless_gone(older.terminate(reason=MOVED, rpc_timeout=timedelta(seconds=_SECONDS)))
            with suppress(WorkflowAlreadyStartedError):  # somebody else moved it
                await begin(client)
            return True

        return self.run(begin_once)

    def cancel(self, job: Job) -> None:
        """Has the job's workflow cancelled, and with it the code that runs. `EngineUnavailable`."""
        _client_class()
        from datetime import timedelta

        async def end(client: Client) -> None:
            workflow = client.get_workflow_handle(workflow_id(job))
            await _unless_gone(workflow.cancel(rpc_timeout=timedelta(seconds=_SECONDS)))

        self.run(end)

    def open_on(self, task_queues: Collection[str]) -> list[tuple[str, str]]:
        """The workflows and runs that are not over, of those queues. `EngineUnavailable`."""
        _client_class()
        from datetime import timedelta

        named = ", ".join(f"'{name}'" for name in sorted(task_queues) if "'" not in name)
        query = f"TaskQueue IN ({named}) AND ExecutionStatus = 'Running'"

        async def look(client: Client) -> list[tuple[str, str]]:
            listed = client.list_workflows(query, rpc_timeout=timedelta(seconds=_SECONDS))
            return [(found.id, found.run_id) async for found in listed]

        return self.run(look)

    def end(self, workflow: str, run: str, reason: str) -> None:
        """Ends that run of the workflow, without its code; one that is over stays as it is.
        `EngineUnavailable`."""
        _client_class()
        from datetime import timedelta

        async def terminate(client: Client) -> None:
            found = client.get_workflow_handle(workflow, run_id=run)
            await _unless_gone(found.terminate(reason=reason, rpc_timeout=timedelta(seconds=_SECONDS)))

        self.run(terminate)

    def close(self) -> None:
        """Ends the loop. Twice is harmless."""
        self._loop.close(_nothing)
        with self._lock:
            self._client = None

    async def _with_client(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        return await work(self._client or await self._connected())

    async def _connected(self) -> Client:
        # On the runtime that the SDK shares, which lives as long as the process. One of its own would end
        # with the client: that waits for its threads, and they may wait for the interpreter's lock, which who
        # ends it holds.
        client = await _client_class().connect(self.address, namespace=self._namespace)
        with self._lock:
            self._client = self._client or client
            return self._client


def _client_class() -> type[Client]:
    """`ConfigurationError` where the SDK is not installed: so this comes before anything else of it."""
    try:
        from temporalio.client import Client
    except ImportError:
        missing = f"temporal needs its SDK: {install_command('temporal')}"
        raise ConfigurationError("jobs.engine", missing) from None
    return Client


async def _unless_gone(asked: Awaitable[None]) -> None:
    """Waits for what was asked of a workflow; one that has ended, or was never begun, is left at that."""
    from temporalio.service import RPCError, RPCStatusCode

    try:
        await asked
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


async def _nothing() -> None:
    """There is nothing to say goodbye to: a client has no end."""
