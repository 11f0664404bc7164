"""Runs a LangGraph graph on an event loop, with checkpoints in our database, until it is done or killed.

Arguments: database URL, thread id, journal, fault point (or "-"), count of the fault point, and whether every
checkpoint is kept ("all"), or only those needed to continue ("last"). Without any, it reads them line by line
and forks for each. Each node writes its name into the journal when it runs.
"""

from __future__ import annotations

import asyncio
import operator
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from cleveragents.actors.graph.checkpoint_saver import DatabaseCheckpointSaver
from cleveragents.actors.store.sql_checkpoint_store import SqlCheckpointStore
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.storage.database import open_database
from cleveragents.testing.clock import CrashAt
from tests.crash.programs.forking import serve

NODES = ("plan", "edit", "check", "report")
INPUT = {"goal": "g" * 500}


class State(TypedDict, total=False):
    """The request, and the nodes that have run."""

    goal: str
    log: Annotated[list[str], operator.add]


def graph_of(saver: BaseCheckpointSaver[Any], journal: Path) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return a graph of the nodes in sequence."""

    def node(name: str) -> Callable[[State], State]:
        def run(state: State) -> State:
            assert state["goal"] == INPUT["goal"]
            descriptor = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(descriptor, f"{name}\n".encode())
            os.close(descriptor)
            return {"log": [name]}

        return run

    builder = StateGraph(State)
    for name in NODES:
        builder.add_node(name, node(name))
    for before, after in zip((START, *NODES), NODES, strict=False):
        builder.add_edge(before, after)
    return builder.compile(checkpointer=saver)


def main(url: str, thread_id: str, journal: str, point: str, nth: str, kept: str) -> None:
    faults: FaultPoints = NoFaults() if point == "-" else CrashAt(point, int(nth))
    with open_database(url, faults=faults) as database:
        saver = DatabaseCheckpointSaver(SqlCheckpointStore(database), history=kept == "all")
        graph = graph_of(saver, Path(journal))
        asyncio.run(
            graph.ainvoke(INPUT, {"configurable": {"thread_id": thread_id}}, durability="sync"),
        )


if __name__ == "__main__":
    if sys.argv[1:]:
        main(*sys.argv[1:])
    else:
        serve(lambda order: main(*order["arguments"]))
