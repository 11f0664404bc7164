"""A worker whose jobs run one graph, which records many changes and continues where a dead worker stopped.

It reads its name and its settings from stdin, a line each, and works until its stdin ends.
"""

from __future__ import annotations

import contextvars
import signal
import sys
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypedDict

import msgspec

from cleveragents.actors.bridge.bridge import Graph
from cleveragents.actors.streams.message import StreamMessage
from cleveragents.app.container import Container
from cleveragents.changes.execution_context import ChangesetStore, PlanExecutionContext
from cleveragents.config.logging import configure_logging
from cleveragents.config.settings import Settings
from cleveragents.core.change import ChangeEntry, ChangeKind
from cleveragents.jobs.ports import JobHandler
from cleveragents.jobs.worker.async_worker import AsyncJob, CancellationToken

MIGRATE = "migrate"
MIGRATED = tuple(f"src/module_{number:02d}.py" for number in range(16))
"""The steps of a migration, in order."""

STEP_SECONDS = 0.12
RUN_SECONDS = 60.0
DRAIN_SECONDS = 10.0


@dataclass(frozen=True)
class Assignment:
    """The context of the nodes of one run: the plan's changesets, and the job's own token."""

    plan: PlanExecutionContext
    token: CancellationToken


CURRENT: ContextVar[Assignment] = ContextVar("assignment")


class Migration(TypedDict, total=False):
    changeset: str
    done: int


def migrate_graph(store: ChangesetStore) -> Graph:
    """Return the graph: begin → step, repeated → finish."""
    from langgraph.graph import END, START, StateGraph

    graph: Any = StateGraph(Migration)
    graph.add_node("begin", lambda state: _begin(store))
    graph.add_node("step", _migrate_one)
    graph.add_node("finish", _finish)
    graph.add_edge(START, "begin")
    for node in ("begin", "step"):
        graph.add_conditional_edges(node, lambda state: "step" if state["done"] < len(MIGRATED) else "finish")
    graph.add_edge("finish", END)
    compiled: Graph = graph.compile()
    return compiled


def _begin(store: ChangesetStore) -> Migration:
    plan = CURRENT.get().plan
    left_open = [one for one in store.of_plan(plan.plan_id) if not one.closed]
    if not left_open:
        return {"changeset": plan.start_changeset(), "done": 0}
    return {"changeset": left_open[0].id, "done": left_open[0].length}


def _migrate_one(state: Migration) -> Migration:
    assignment = CURRENT.get()
    if assignment.token.wait(STEP_SECONDS):
        assignment.token.raise_if_cancelled()
    done = state["done"]
    # The key makes a step that is repeated after a crash count once.
    assignment.plan.record_change(_edited(MIGRATED[done]), state["changeset"], key=MIGRATED[done])
    return {"done": done + 1}


def _finish(state: Migration) -> Migration:
    CURRENT.get().plan.close_changeset(state["changeset"])
    return {}


def _edited(path: str) -> ChangeEntry:
    before = sha256(path.encode()).hexdigest()
    after = sha256(f"{path} edited".encode()).hexdigest()
    return ChangeEntry(ChangeKind.MODIFY, path, before_hash=before, after_hash=after)


def handler(container: Container) -> JobHandler:
    """Return a handler with one bridge, shared by all jobs."""
    bridge = container.bridge({MIGRATE: migrate_graph(container.changesets)})

    def run(job: AsyncJob) -> object:
        context = contextvars.copy_context()
        context.run(CURRENT.set, Assignment(PlanExecutionContext(job.id, container.changesets), job.token))
        future = context.run(bridge.create_future_task, StreamMessage(job.id, MIGRATE))

        def cancel() -> None:
            future.cancel()

        with job.token.on_cancel(cancel):
            answer = future.result(RUN_SECONDS)
        if answer.error is not None:
            raise answer.error
        return dict(answer.content)

    return JobHandler(run)


def main() -> int:
    signal.signal(signal.SIGTERM, _on_terminate)
    name = sys.stdin.readline().strip()
    settings = msgspec.json.decode(sys.stdin.readline(), type=Settings)
    configure_logging(settings)
    with Container(settings) as container:
        worker = container.worker({MIGRATE: handler(container)}, name=name)
        worker.start()
        sys.stdin.read()
        worker.drain(DRAIN_SECONDS)
    return 0


def _on_terminate(signum: int, frame: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
