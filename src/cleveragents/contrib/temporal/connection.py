"""Temporal's client for threads: connected at first use, on its own event loop."""

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

# Submitters wait for this; workers later report to Temporal what could not be sent in this time.
_SECONDS = 3.0
MOVED = "started by an older version of cleveragents; a newer worker continues the job"


class TemporalConnection:
    """The connection of a process. Any thread may use it; after a failure the next use connects again.

    Thread safety:
        Owner: the code that made it closes it; any thread may call `run` and `start`.
        Lock: `_lock` guards the current client; held for an assignment.
        Guarantee: nothing is sent after `close`; a job has one workflow at a time, by its id.
    Cancel safety: an interrupted call may have reached Temporal; all calls may be repeated.
    """

    def __init__(self, address: str, namespace: str, *, lease_seconds: float) -> None:
        self.address = address
        self.lease_seconds = lease_seconds
        self._namespace = namespace
        self._loop = EventLoopThread("temporal")
        self._lock = threading.Lock()
        self._client: Client | None = None

    def run(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Return the result of the coroutine. Raises `EngineUnavailable` if Temporal does not answer."""
        _client_class()
        from temporalio.service import RPCError

        try:
            return self._loop.run(lambda: self._with_client(work))
        except (RPCError, RuntimeError, OSError, TimeoutError) as error:
            raise EngineUnavailable("temporal", f"{self.address}: {_first_line(error)}") from error

    def begin(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Run the coroutine on the connection's loop, without a time limit."""
        return self._loop.begin(work)

    def start(self, job: Job, phase: str, goal: str = "") -> bool:
        """Start a workflow for the job, beginning with this phase, unless one is running.

        A workflow of an older version is restarted for workers of this version; only then, return True.
        Raises `EngineUnavailable`.
        """
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
                # Shown on Temporal's pages.
                static_summary=summary_of(job, goal),
                memo=memo_of(job, goal),
                # One at a time: a second one is refused while one runs. One that ended although its job did
                # not was ended by a person in Temporal, or lost there.
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                rpc_timeout=timedelta(seconds=_SECONDS),
            )

        async def begin_once(client: Client) -> bool:
            with suppress(WorkflowAlreadyStartedError):
                await begin(client)
                return False
            begun = client.get_workflow_handle(workflow_id(job))
            described = await begun.describe(rpc_timeout=timedelta(seconds=_SECONDS))
            if not is_of_older_protocol(described.task_queue):  # guard: a running workflow is not restarted
                return False
            # Only this run: if another process has moved it since, the new run continues.
            older = client.get_workflow_handle(workflow_id(job), run_id=described.run_id)
            await _unless_gone(older.terminate(reason=MOVED, rpc_timeout=timedelta(seconds=_SECONDS)))
            with suppress(WorkflowAlreadyStartedError):  # another process moved it
                await begin(client)
            return True

        return self.run(begin_once)

    def cancel(self, job: Job) -> None:
        """Cancel the workflow of the job, and with it the running code. Raises `EngineUnavailable`."""
        _client_class()
        from datetime import timedelta

        async def end(client: Client) -> None:
            workflow = client.get_workflow_handle(workflow_id(job))
            await _unless_gone(workflow.cancel(rpc_timeout=timedelta(seconds=_SECONDS)))

        self.run(end)

    def open_on(self, task_queues: Collection[str]) -> list[tuple[str, str]]:
        """Return the open workflows on these queues, each with its run id. Raises `EngineUnavailable`."""
        _client_class()
        from datetime import timedelta

        named = ", ".join(f"'{name}'" for name in sorted(task_queues) if "'" not in name)
        query = f"TaskQueue IN ({named}) AND ExecutionStatus = 'Running'"

        async def look(client: Client) -> list[tuple[str, str]]:
            listed = client.list_workflows(query, rpc_timeout=timedelta(seconds=_SECONDS))
            return [(found.id, found.run_id) async for found in listed]

        return self.run(look)

    def end(self, workflow: str, run: str, reason: str) -> None:
        """Terminate a run of the workflow, unless it has ended. Raises `EngineUnavailable`."""
        _client_class()
        from datetime import timedelta

        async def terminate(client: Client) -> None:
            found = client.get_workflow_handle(workflow, run_id=run)
            await _unless_gone(found.terminate(reason=reason, rpc_timeout=timedelta(seconds=_SECONDS)))

        self.run(terminate)

    def close(self) -> None:
        """End the loop. Closing twice is harmless."""
        self._loop.close(_nothing)
        with self._lock:
            self._client = None

    async def _with_client(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        return await work(self._client or await self._connected())

    async def _connected(self) -> Client:
        # Uses the SDK's shared runtime, which lives as long as the process. A separate runtime would end
        # with the client and wait for its threads, which may wait for the interpreter's lock, held by the
        # closing thread.
        client = await _client_class().connect(self.address, namespace=self._namespace)
        with self._lock:
            self._client = self._client or client
            return self._client


def _client_class() -> type[Client]:
    """Return the client class. Raises `ConfigurationError` if the SDK is missing, so call this before
    importing anything from it.
    """
    try:
        from temporalio.client import Client
    except ImportError:
        missing = f"temporal needs its SDK: {install_command('temporal')}"
        raise ConfigurationError("jobs.engine", missing) from None
    return Client


async def _unless_gone(asked: Awaitable[None]) -> None:
    """Await a request to a workflow; ignore a workflow that has ended or never started."""
    from temporalio.service import RPCError, RPCStatusCode

    try:
        await asked
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


async def _nothing() -> None:
    """Do nothing: a client has no close."""
