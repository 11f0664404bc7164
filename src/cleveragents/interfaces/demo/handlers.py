"""The demo's job handlers: graphs on threads of the worker, the stubborn one in a process of its own."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING

from cleveragents.application.services.job_handlers import JobHandler
from cleveragents.application.services.plan_execution_context import PlanExecutionContext
from cleveragents.interfaces.demo.graphs import CURRENT, RunAssignment, migrate_graph, review_graph
from cleveragents.reactive.message import StreamMessage

if TYPE_CHECKING:
    from cleveragents.application.container import Container
    from cleveragents.application.ports.changesets import ChangesetStore
    from cleveragents.application.services.async_worker import AsyncJob
    from cleveragents.langgraph.bridge import RxPyLangGraphBridge

__all__ = ["MIGRATE", "REVIEW", "STUBBORN", "demo_handlers"]

REVIEW = "review"
MIGRATE = "migrate"
STUBBORN = "stubborn"

_RUN_SECONDS = 60.0


def demo_handlers(container: Container) -> dict[str, JobHandler]:
    """One bridge, shared by all graph jobs of a worker."""
    graphs = {REVIEW: review_graph(container.strategies), MIGRATE: migrate_graph(container.changesets)}
    graph_jobs = _GraphJobs(container.changesets, container.bridge(graphs))
    return {
        REVIEW: JobHandler(graph_jobs.run),
        MIGRATE: JobHandler(graph_jobs.run),
        STUBBORN: JobHandler(
            target="cleveragents.interfaces.demo.stubborn:refuse_to_stop", isolation="process"
        ),
    }


class _GraphJobs:
    """Runs jobs as graph runs. Any thread of the worker may call it: it has no state of its own."""

    def __init__(self, changesets: ChangesetStore, bridge: RxPyLangGraphBridge) -> None:
        self._changesets = changesets
        self._bridge = bridge

    def run(self, job: AsyncJob) -> object:
        """The output of the graph named like the job's kind. Whatever ends the run otherwise is raised."""
        assignment = RunAssignment(PlanExecutionContext(job.id, self._changesets), job.token)
        context = contextvars.copy_context()
        context.run(CURRENT.set, assignment)
        future = context.run(self._bridge.create_future_task, StreamMessage(job.id, job.kind))

        def cancel() -> None:
            future.cancel()

        with job.token.on_cancel(cancel):
            answer = future.result(_RUN_SECONDS)
        if answer.error is not None:
            raise answer.error
        return dict(answer.content)
