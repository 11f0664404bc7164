"""The demo's graphs: real LangGraph graphs that leave their changes in changesets.

*review* asks for context, then edits three areas in parallel branches, each in a changeset of its own.
*migrate* goes through many files one after the other, in one changeset, and can go on where a dead worker
stopped. What belongs to one job reaches the nodes through a context variable: a graph is shared by all jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import sha256
from operator import add
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from cleveragents.application.ports.changesets import ChangesetStore
from cleveragents.application.ports.context import CancelSignal, ContextStrategy
from cleveragents.domain.change import ChangeEntry, ChangeKind
from cleveragents.domain.context import ContextFragment, ContextRequest

if TYPE_CHECKING:
    from cleveragents.application.services.acms_pipeline import ParallelStrategyExecutor
    from cleveragents.application.services.async_worker import CancellationToken
    from cleveragents.application.services.plan_execution_context import PlanExecutionContext
    from cleveragents.langgraph.bridge import Graph

__all__ = [
    "BRANCHES",
    "BROKEN_STRATEGY",
    "CURRENT",
    "MIGRATED",
    "RunAssignment",
    "migrate_graph",
    "review_graph",
]

BRANCHES = {
    "code": ("src/parser.py", "src/lexer.py", "src/printer.py"),
    "tests": ("tests/test_parser.py", "tests/test_lexer.py"),
    "docs": ("docs/grammar.md", "docs/errors.md", "README.md", "CHANGELOG.md"),
}
"""What each branch of a review edits, in that order."""

MIGRATED = tuple(f"src/module_{number:02d}.py" for number in range(16))
"""What a migration goes through, in that order."""

BROKEN_STRATEGY = "embeddings"

_QUESTIONS = ("where are tokens made?", "who calls the parser?", "what is printed?", "which errors exist?")
_STEP_SECONDS = 0.12
_CONTEXT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class RunAssignment:
    """What the nodes of one run work with: the plan's changesets, and the job's own token."""

    plan: PlanExecutionContext
    token: CancellationToken


CURRENT: ContextVar[RunAssignment] = ContextVar("demo_assignment")


class _Review(TypedDict, total=False):
    found: int
    strategies: Annotated[list[str], add]
    changesets: Annotated[list[list[str]], add]


class _Migration(TypedDict, total=False):
    changeset: str
    done: int


def review_graph(strategies: ParallelStrategyExecutor) -> Graph:
    """context → code | tests | docs, at once."""
    from langgraph.graph import END, START, StateGraph

    graph: Any = StateGraph(_Review)
    graph.add_node("context", lambda state: _find_context(strategies))
    graph.add_edge(START, "context")
    for branch in BRANCHES:
        graph.add_node(branch, _branch(branch))
        graph.add_edge("context", branch)
        graph.add_edge(branch, END)
    compiled: Graph = graph.compile()
    return compiled


def migrate_graph(store: ChangesetStore) -> Graph:
    """begin → step, again and again → finish."""
    from langgraph.graph import END, START, StateGraph

    graph: Any = StateGraph(_Migration)
    graph.add_node("begin", lambda state: _begin_migration(store))
    graph.add_node("step", _migrate_one)
    graph.add_node("finish", _finish_migration)
    graph.add_edge(START, "begin")
    for node in ("begin", "step"):
        graph.add_conditional_edges(node, lambda state: "step" if state["done"] < len(MIGRATED) else "finish")
    graph.add_edge("finish", END)
    compiled: Graph = graph.compile()
    return compiled


def _find_context(strategies: ParallelStrategyExecutor) -> _Review:
    asked: list[ContextStrategy] = [_Names(), _Words(), _Embeddings()]
    token = CURRENT.get().token
    found = 0
    outcomes: list[str] = []
    for question in _QUESTIONS:
        request = ContextRequest(question)
        report = strategies.execute(asked, request, deadline_seconds=_CONTEXT_SECONDS, cancelled=token)
        found += len(report.fragments)
        outcomes += [f"{one.name}: {one.status.value}" for one in report.strategies]
    return {"found": found, "strategies": outcomes}


def _branch(name: str) -> Callable[[_Review], _Review]:
    def edit(state: _Review) -> _Review:
        assignment = CURRENT.get()
        with assignment.plan.changeset() as changeset:
            assignment.token.raise_if_cancelled()
            assignment.plan.record_changes([_edited(path) for path in BRANCHES[name]])
        return {"changesets": [[name, changeset]]}

    return edit


def _begin_migration(store: ChangesetStore) -> _Migration:
    plan = CURRENT.get().plan
    left_open = [one for one in store.of_plan(plan.plan_id) if not one.closed]
    if not left_open:
        return {"changeset": plan.start_changeset(), "done": 0}
    return {"changeset": left_open[0].id, "done": left_open[0].length}


def _migrate_one(state: _Migration) -> _Migration:
    assignment = CURRENT.get()
    if assignment.token.wait(_STEP_SECONDS):
        assignment.token.raise_if_cancelled()
    done = state["done"]
    # The key makes a step that was done just before a crash, and is done again after it, count once.
    assignment.plan.record_change(_edited(MIGRATED[done]), state["changeset"], key=MIGRATED[done])
    return {"done": done + 1}


def _finish_migration(state: _Migration) -> _Migration:
    CURRENT.get().plan.close_changeset(state["changeset"])
    return {}


def _edited(path: str) -> ChangeEntry:
    before = sha256(path.encode()).hexdigest()
    after = sha256(f"{path} edited".encode()).hexdigest()
    return ChangeEntry(ChangeKind.MODIFY, path, before_hash=before, after_hash=after)


class _Names:
    """Finds files by their names."""

    name = "names"

    def retrieve(self, request: ContextRequest, cancelled: CancelSignal) -> Sequence[ContextFragment]:
        words = request.question.strip("?").split()
        paths = [path for branch in BRANCHES.values() for path in branch]
        return [
            ContextFragment(path, path, 1.0, self.name) for path in paths if any(w[:5] in path for w in words)
        ]


class _Words:
    """Finds one fragment for each question."""

    name = "words"

    def retrieve(self, request: ContextRequest, cancelled: CancelSignal) -> Sequence[ContextFragment]:
        return [ContextFragment("docs/grammar.md", request.question, 0.5, self.name)]


class _Embeddings:
    """Always fails: the breaker is to notice, and nobody else is to suffer."""

    name = BROKEN_STRATEGY

    def retrieve(self, request: ContextRequest, cancelled: CancelSignal) -> Sequence[ContextFragment]:
        raise ConnectionError("the embedding service is down")
