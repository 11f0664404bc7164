"""Real graphs on `DatabaseCheckpointSaver`: they continue from what is stored."""

from __future__ import annotations

import asyncio
import operator
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointMetadata, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, Interrupt, Overwrite, Send, interrupt
from sqlalchemy import Engine, event

from cleveragents.actors.graph.checkpoint_saver import DatabaseCheckpointSaver, PlainSerializer
from cleveragents.actors.store.sql_checkpoint_store import SqlCheckpointStore
from cleveragents.core.errors import InvalidPayload, StaleFence, UnknownPlan
from cleveragents.core.identifiers import Fence, UlidSource, WorkerIdentity
from cleveragents.jobs.model.job import NewJob
from cleveragents.jobs.store.sql_job_store import SqlJobStore
from cleveragents.storage.database import Database, open_database
from tests.contracts.databases import locked
from tests.ready_database import ready_database

LONG = "x" * 1000
NOW = datetime(2026, 1, 1, tzinfo=UTC)
DURABILITIES = ("sync", "async", "exit")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    with open_database(ready_database(path), patience_seconds=5) as opened:
        yield opened


@pytest.fixture
def saver(database: Database) -> DatabaseCheckpointSaver:
    return DatabaseCheckpointSaver(SqlCheckpointStore(database))


def at(thread_id: str = "plan/execute", **more: str) -> Any:
    return {"configurable": {"thread_id": thread_id, **more}}


class State(TypedDict, total=False):
    """`log` grows; `text` is long and rarely changes."""

    log: Annotated[list[Any], operator.add]
    text: str
    count: int


def looping(saver: BaseCheckpointSaver[Any], turns: int) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return a graph with a counting node that is its own successor, followed by a subgraph."""

    def count(state: State) -> State:
        return {"count": state.get("count", 0) + 1, "log": [state.get("count", 0)]}

    inner = StateGraph(State)
    inner.add_node("one", lambda state: {"log": ["one"]})
    inner.add_node("two", lambda state: {"log": ["two"]})
    inner.add_edge(START, "one")
    inner.add_edge("one", "two")
    outer = StateGraph(State)
    outer.add_node("count", count)
    outer.add_node("inner", inner.compile())
    outer.add_edge(START, "count")
    outer.add_conditional_edges("count", lambda state: "count" if state["count"] < turns else "inner")
    return outer.compile(checkpointer=saver)


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_graph_is_read_back_as_it_ended_and_goes_on_from_there(
    saver: DatabaseCheckpointSaver, durability: Any
) -> None:
    graph = looping(saver, 3)
    ended = graph.invoke({"text": LONG}, at(), durability=durability)
    assert ended["text"] == LONG
    assert graph.get_state(at()).values == ended
    again = looping(saver, 3).invoke({"log": ["more"]}, at(), durability=durability)
    in_memory = looping(InMemorySaver(), 3)
    assert ended == in_memory.invoke({"text": LONG}, at(), durability=durability)
    assert again == in_memory.invoke({"log": ["more"]}, at(), durability=durability)


@pytest.mark.parametrize("durability", DURABILITIES)
def test_the_same_on_an_event_loop(saver: DatabaseCheckpointSaver, durability: Any) -> None:
    async def run() -> None:
        graph = looping(saver, 3)
        ended = await graph.ainvoke({"text": LONG}, at(), durability=durability)
        assert (await graph.aget_state(at())).values == ended
        steps = [state.metadata["step"] async for state in graph.aget_state_history(at(), limit=2)]
        assert steps == sorted(steps, reverse=True)
        await saver.adelete_thread("plan")
        assert await saver.aget_tuple(at()) is None

    asyncio.run(run())


def test_two_branches_of_one_checkpoint_find_each_its_own_values(saver: DatabaseCheckpointSaver) -> None:
    graph = looping(saver, 2)
    graph.invoke({"text": LONG}, at(), durability="sync")
    fork = next(state for state in graph.get_state_history(at()) if state.next == ("count",))
    first = graph.update_state(fork.config, {"text": LONG + "first"}, as_node="count")
    second = graph.update_state(fork.config, {"text": LONG + "second"}, as_node="count")
    assert graph.get_state(first).values["text"] == LONG + "first"
    assert graph.get_state(second).values["text"] == LONG + "second"
    assert graph.get_state(fork.config).values["text"] == LONG


def test_a_question_waits_in_the_database_until_it_is_answered(saver: DatabaseCheckpointSaver) -> None:
    asked: list[str] = []

    def ask(state: State) -> State:
        answer = interrupt({"question": "really?"})
        asked.append(answer)
        return {"log": [answer]}

    def graph() -> CompiledStateGraph[Any, Any, Any, Any]:
        builder = StateGraph(State)
        builder.add_node("ask", ask)
        builder.add_edge(START, "ask")
        return builder.compile(checkpointer=saver)

    waiting = graph().invoke({"text": LONG}, at(), durability="sync")
    assert [question.value for question in waiting["__interrupt__"]] == [{"question": "really?"}]
    state = graph().get_state(at())
    assert [question.value for question in state.interrupts] == [{"question": "really?"}]
    assert graph().invoke(Command(resume="yes"), at(), durability="sync")["log"] == ["yes"]
    assert asked == ["yes"]


def test_parallel_branches_that_finished_are_not_run_again_after_one_failed(
    saver: DatabaseCheckpointSaver,
) -> None:
    runs: list[str] = []
    broken = True

    def work(state: dict[str, str]) -> State:
        runs.append(state["name"])
        if broken and state["name"] == "bad":
            raise RuntimeError("no")
        return {"log": [state["name"]]}

    def graph() -> CompiledStateGraph[Any, Any, Any, Any]:
        builder = StateGraph(State)
        builder.add_node("work", work)
        names = ("good", "bad", "also good")
        builder.add_conditional_edges(START, lambda state: [Send("work", {"name": name}) for name in names])
        return builder.compile(checkpointer=saver)

    with pytest.raises(RuntimeError):
        graph().invoke({"text": LONG}, {**at(), "max_concurrency": 1}, durability="sync")
    broken = False
    done = list(runs)
    ended = graph().invoke(None, at(), durability="sync")
    assert sorted(ended["log"]) == ["also good", "bad", "good"]
    assert runs[len(done) :].count("bad") == 1
    assert runs.count("good") == 1


def test_a_worker_that_lost_its_job_cannot_go_on(database: Database) -> None:
    jobs = SqlJobStore(database, UlidSource())
    jobs.submit(NewJob("plan", {}), now=NOW)
    job = jobs.claim(WorkerIdentity("ann", "here", 1, 1), ["plan"], now=NOW)
    assert job is not None
    saver = DatabaseCheckpointSaver(SqlCheckpointStore(database), fence=Fence(job.id, job.fence))
    ran: list[int] = []

    def step(state: State) -> State:
        ran.append(state.get("count", 0))
        if len(ran) == 3:
            jobs.reclaim(job.id, job.fence, 0, error="silent", now=NOW)
        return {"count": len(ran)}

    builder = StateGraph(State)
    builder.add_node("step", step)
    builder.add_edge(START, "step")
    builder.add_conditional_edges("step", lambda state: "step" if state["count"] < 9 else END)
    graph = builder.compile(checkpointer=saver)
    with pytest.raises(StaleFence):
        graph.invoke({"text": LONG}, at(), durability="sync")
    assert len(ran) == 3
    assert graph.get_state(at()).values["count"] == 2


def test_a_graph_with_a_deleted_thread_ends_and_restores_nothing(
    saver: DatabaseCheckpointSaver,
) -> None:
    def step(state: State) -> State:
        if state.get("count") == 2:
            saver.delete_thread("plan")
        return {"count": state.get("count", 0) + 1}

    builder = StateGraph(State)
    builder.add_node("step", step)
    builder.add_edge(START, "step")
    builder.add_conditional_edges("step", lambda state: "step" if state["count"] < 9 else END)
    with pytest.raises(UnknownPlan):
        builder.compile(checkpointer=saver).invoke({"text": LONG}, at(), durability="sync")
    assert list(saver.list(None)) == []


def test_a_loop_does_not_wait_for_a_busy_database(saver: DatabaseCheckpointSaver, path: Path) -> None:
    async def run() -> None:
        turns = 0
        checkpoint = empty_checkpoint()
        with locked(path):
            writing = asyncio.create_task(saver.aput(at(), checkpoint, {"step": 1}, {}))
            while turns < 100:
                turns += 1
                await asyncio.sleep(0)
                assert not writing.done()
        stored = await writing
        assert stored["configurable"]["checkpoint_id"] == checkpoint["id"]

    asyncio.run(run())


@contextmanager
def counted() -> Iterator[list[int]]:
    """Record the lengths of the statements, including values, of databases opened within the block."""
    statements: list[int] = []

    def trace(driver: sqlite3.Connection, record: object) -> None:
        driver.set_trace_callback(lambda statement: statements.append(len(statement)))

    event.listen(Engine, "connect", trace)
    try:
        yield statements
    finally:
        event.remove(Engine, "connect", trace)


def test_the_two_thousandth_checkpoint_costs_what_the_second_one_did(path: Path) -> None:
    config = at(checkpoint_ns="")
    costs: list[list[int]] = []
    with counted() as statements, open_database(ready_database(path)) as database:
        saver = DatabaseCheckpointSaver(SqlCheckpointStore(database))
        unchanged = version = saver.get_next_version(None, None)
        statements.clear()
        for number in range(2000):
            checkpoint = empty_checkpoint()
            checkpoint["id"] = str(uuid.UUID(int=number))
            checkpoint["channel_values"] = {"text": LONG * 100, "count": number % 2, "log": ["y" * 100]}
            checkpoint["channel_versions"] = {"text": unchanged, "count": version, "log": version}
            fresh = checkpoint["channel_versions"] if number == 0 else {"count": version, "log": version}
            config = saver.put(config, checkpoint, {"step": 1}, fresh)
            saver.put_writes(config, [("log", ["y" * 100])], str(number % 10))
            costs.append(statements.copy())
            statements.clear()
            version = saver.get_next_version(version, None)
        found = saver.get_tuple(at())
        reading = len(statements)
    assert sum(costs[0]) > len(LONG) * 100
    assert all(cost == costs[1] for cost in costs[1:])
    assert sum(costs[1]) < 6000
    assert found is not None
    assert found.checkpoint["channel_values"]["text"] == LONG * 100
    assert reading <= 5  # including the start and the end of the transaction


def test_checkpoints_can_be_filtered_by_metadata(saver: DatabaseCheckpointSaver) -> None:
    config = at(checkpoint_ns="")
    stored = []
    for number in range(4):
        about: CheckpointMetadata = {"step": number, "source": "loop" if number % 2 else "input"}
        config = saver.put(config, empty_checkpoint(), about, {})
        stored.append(config)
    newest_first = [each["configurable"]["checkpoint_id"] for each in reversed(stored)]

    def listed(config: Any, **options: Any) -> list[str]:
        return [found.config["configurable"]["checkpoint_id"] for found in saver.list(config, **options)]

    assert listed(None) == newest_first
    assert listed(at(), filter={"source": "loop"}) == newest_first[::2]
    assert listed(at(), filter={"source": "loop"}, limit=1) == newest_first[:1]
    assert listed(at(), filter={"source": None}) == []
    assert listed(at(), filter={"nothing": None}) == []
    assert listed(at(), before=stored[2]) == newest_first[2:]
    assert listed(stored[1]) == newest_first[2:3]
    assert listed(at("other")) == []


# ── plain values ──


@dataclass
class Thing:
    """A class that a reader would have to import."""

    name: str


@pytest.mark.parametrize(
    "value",
    [None, True, -1, 2**63, 0.5, "", "ü😀", b"\0", bytearray(b"x"), [1, [None]], {"a": {"b": [1]}}, {1: 2}],
)
def test_plain_values_are_read_as_they_were_written(value: object) -> None:
    serializer = PlainSerializer()
    kind, content = serializer.dumps_typed(value)
    assert isinstance(content, bytes)
    assert serializer.loads_typed((kind, content)) == value


def test_the_marks_of_langgraph_are_kept() -> None:
    serializer = PlainSerializer()
    for mark in ([Interrupt({"q": 1}, id="i")], Send("node", {"a": [1]}), Overwrite([1])):
        assert serializer.loads_typed(serializer.dumps_typed(mark)) == mark
    told = serializer.loads_typed(serializer.dumps_typed([RuntimeError("no"), {"a": ("b",)}]))
    assert told == ["RuntimeError('no')", {"a": ["b"]}]
    ours = UnknownPlan("p")
    for failure, words in ((ours, repr(ours)), ([ours], [repr(ours)])):
        kept = serializer.dumps_typed(failure)
        assert serializer.loads_typed(kept) == words, "an error of ours names its class"


@pytest.mark.parametrize(
    "value",
    [
        Thing("x"),
        {"deep": [Thing("x")]},
        {Thing: 1},
        Send("node", Thing("x")),
        Interrupt(Thing("x"), id="i"),
        uuid.UUID(int=1),
        NOW,
        {1, 2},
        Path("x"),
        print,
        2**70,
    ],
)
def test_other_files_are_refused(value: object) -> None:
    with pytest.raises(InvalidPayload):
        PlainSerializer().dumps_typed(value)


def test_objects_written_by_another_program_are_not_revived() -> None:
    serializer = PlainSerializer()
    foreign = JsonPlusSerializer(allowed_msgpack_modules=True).dumps_typed(Thing("x"))
    assert not isinstance(serializer.loads_typed(foreign), Thing)
    for kind in ("pickle", "json", "other"):
        with pytest.raises(InvalidPayload, match=kind):
            serializer.loads_typed((kind, b"null"))


def test_no_graph_can_widen_what_is_allowed(saver: DatabaseCheckpointSaver) -> None:
    assert saver.with_allowlist([(Thing.__module__, Thing.__name__)]) is saver
