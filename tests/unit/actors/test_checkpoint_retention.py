"""Checkpoints that are stored together with the next task's writes: less to write, and nothing is lost."""

from __future__ import annotations

import asyncio
import operator
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from cleveragents.actors.graph.checkpoint_saver import DatabaseCheckpointSaver
from cleveragents.actors.store.sql_checkpoint_store import SqlCheckpointStore
from cleveragents.core.errors import StaleFence
from cleveragents.core.identifiers import Fence, UlidSource, WorkerIdentity
from cleveragents.jobs.model.job import NewJob
from cleveragents.jobs.store.sql_job_store import SqlJobStore
from cleveragents.storage.database import Database, open_database

NOW = datetime(2026, 1, 1, tzinfo=UTC)
THREAD = "plan/execute"


class State(TypedDict, total=False):
    """The nodes that have run."""

    log: Annotated[list[str], operator.add]


class CountingStore:
    """A store that counts its writes."""

    def __init__(self, store: SqlCheckpointStore) -> None:
        self._store = store
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        self.writes += name in ("put", "put_writes")
        return getattr(self._store, name)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with open_database(f"sqlite:///{tmp_path}/store.db") as opened:
        yield opened


def at(namespace: str = "") -> Any:
    return {"configurable": {"thread_id": THREAD, "checkpoint_ns": namespace}}


def kept(database: Database) -> set[str]:
    """Return the nodes whose end a later process would find, in any graph."""
    found: set[str] = set()
    for stored in DatabaseCheckpointSaver(SqlCheckpointStore(database)).list(None):
        found.update(stored.checkpoint["channel_values"].get("log", ()))
        for _, channel, value in stored.pending_writes or ():
            found.update(value if channel == "log" else ())
    return found


class Looking:
    """Builds graphs whose nodes record what was stored when they started."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.seen: dict[str, set[str]] = {}

    def node(self, name: str) -> Any:
        async def run(state: State) -> State:
            self.seen[name] = await asyncio.to_thread(kept, self._database)
            return {"log": [name]}

        return run

    def chain(self, *names: str, below: CompiledStateGraph[Any, Any, Any, Any] | None = None) -> Any:
        """Return a sequence of nodes; `below` runs as the node before the last."""
        builder = StateGraph(State)
        for name in names:
            builder.add_node(name, self.node(name))
        order = list(names)
        if below is not None:
            builder.add_node("below", below)
            order.insert(-1, "below")
        for before, after in zip((START, *order), order, strict=False):
            builder.add_edge(before, after)
        return builder


def test_a_step_of_one_task_is_written_once(database: Database) -> None:
    store = CountingStore(SqlCheckpointStore(database))
    saver = DatabaseCheckpointSaver(store, history=False)
    names = ("a", "b", "c", "d")
    graph = Looking(database).chain(*names).compile(checkpointer=saver)
    ended = asyncio.run(graph.ainvoke({"log": []}, at(), durability="sync"))
    assert ended["log"] == list(names)
    assert store.writes == 1 + len(names) + 1, "the beginning, each of them, and the end"
    assert graph.get_state(at()).values == ended


def test_no_node_begins_before_what_came_before_it_is_kept(database: Database) -> None:
    looking = Looking(database)
    saver = DatabaseCheckpointSaver(SqlCheckpointStore(database), history=False)
    inner = looking.chain("i", "j").compile()
    graph = looking.chain("a", "b", "c", below=inner).compile(checkpointer=saver)
    asyncio.run(graph.ainvoke({"log": []}, at(), durability="sync"))
    assert looking.seen == {
        "a": set(),
        "b": {"a"},
        "i": {"a", "b"},
        "j": {"a", "b", "i"},
        "c": {"a", "b", "i", "j"},
    }


def test_a_checkpoint_before_parallel_tasks_is_stored_first(database: Database) -> None:
    saver = DatabaseCheckpointSaver(SqlCheckpointStore(database), history=False)
    began: dict[str, Any] = {}

    def node(name: str) -> Any:
        async def run(state: State) -> State:
            reader = DatabaseCheckpointSaver(SqlCheckpointStore(database))
            found = await asyncio.to_thread(reader.get_tuple, at())
            began[name] = None if found is None else found.checkpoint["channel_values"].get("log")
            return {"log": [name]}

        return run

    builder = StateGraph(State)
    for name in ("first", "left", "right"):
        builder.add_node(name, node(name))
    builder.add_edge(START, "first")
    builder.add_edge("first", "left")
    builder.add_edge("first", "right")
    graph = builder.compile(checkpointer=saver)
    asyncio.run(graph.ainvoke({"log": ["begun"]}, at(), durability="sync"))
    assert began["left"] == began["right"] == ["begun", "first"]


def test_a_worker_that_lost_its_job_starts_no_other_node(database: Database) -> None:
    jobs = SqlJobStore(database, UlidSource())
    jobs.submit(NewJob("plan", {}), now=NOW)
    job = jobs.claim(WorkerIdentity("ann", "here", 1, 1), ["plan"], now=NOW)
    assert job is not None
    saver = DatabaseCheckpointSaver(
        SqlCheckpointStore(database), fence=Fence(job.id, job.fence), history=False
    )
    looking = Looking(database)
    builder = looking.chain("a", "b")

    async def lose(state: State) -> State:
        await asyncio.to_thread(jobs.reclaim, job.id, job.fence, 0, error="silent", now=NOW)
        return {"log": ["lost"]}

    builder.add_node("lose", lose)
    builder.add_node("never", looking.node("never"))
    builder.add_edge("b", "lose")
    builder.add_edge("lose", "never")
    with pytest.raises(StaleFence):
        asyncio.run(builder.compile(checkpointer=saver).ainvoke({"log": []}, at(), durability="sync"))
    assert sorted(looking.seen) == ["a", "b"]
    assert kept(database) == {"a", "b"}


def test_a_held_checkpoint_is_stored_before_a_read_and_deleted_with_its_thread(
    database: Database,
) -> None:
    saver = DatabaseCheckpointSaver(SqlCheckpointStore(database), history=False)
    first: Any = {**empty_checkpoint(), "updated_channels": ["__start__"]}

    async def run() -> None:
        await saver.aput(at(), first, {"step": -1}, {})
        assert SqlCheckpointStore(database).get(THREAD) is None
        found = await saver.aget_tuple(at())
        assert found is not None
        assert found.checkpoint["id"] == first["id"]
        await saver.adelete_thread(THREAD)
        await saver.aput(at(), first, {"step": -1}, {})
        assert [found.checkpoint["id"] async for found in saver.alist(at())] == [first["id"]]
        await saver.adelete_thread(THREAD)
        await saver.aput(at(), first, {"step": -1}, {})
        await saver.adelete_thread(THREAD)
        assert await saver.aget_tuple(at()) is None

    asyncio.run(run())


class SlowWrites:
    """Stores writes only when something else was put meanwhile, or would have been by now."""

    def __init__(self, store: SqlCheckpointStore) -> None:
        self._store = store
        self._put_meanwhile = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put(self, *facts: Any, **more: Any) -> None:
        self._put_meanwhile.set()
        self._store.put(*facts, **more)

    def put_writes(self, *facts: Any, **more: Any) -> None:
        self._put_meanwhile.wait(0.5)
        self._store.put_writes(*facts, **more)


def test_a_checkpoint_after_a_held_one_is_stored_after_it(database: Database) -> None:
    """LangGraph does not wait for writes, and nothing holds back the last checkpoint of a run."""
    looking = Looking(database)
    builder: Any = StateGraph(State)
    builder.add_node("a", looking.node("a"))
    builder.add_edge(START, "a")
    store: Any = SlowWrites(SqlCheckpointStore(database))
    graph = builder.compile(checkpointer=DatabaseCheckpointSaver(store, history=False))
    asyncio.run(graph.ainvoke({"log": []}, at(), durability="sync"))
    assert kept(database) == {"a"}
