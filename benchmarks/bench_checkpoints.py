"""A graph on our checkpointer, compared with the same graph on LangGraph's own for SQLite.

Each writes to its own file with the same `synchronous` setting and waits for every checkpoint
(`durability="sync"`). Aim: ≤ 1.0 of theirs. `history` is the size of the state: nearly empty, a conversation
of 100 kB that no step changes, or one of 20 kB to which every step adds a message.
"""

from __future__ import annotations

import asyncio
import operator
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, TypedDict

from benchmarks.ratio import ratio

__all__ = ["Checkpoints"]

_STEPS = 40
_AT_ONCE = 32
_MESSAGE = {"role": "user", "text": "x" * 480}
_HISTORIES = {"none": 0, "unchanged": 200, "growing": 40}


class _State(TypedDict, total=False):
    turn: int
    messages: Annotated[list[dict[str, str]], operator.add]


class Checkpoints:
    """40 steps, one after the other; and 32 such graphs in parallel, with 10 steps each."""

    params = (["none", "unchanged", "growing"], ["NORMAL", "FULL"])
    param_names = ("history", "durability")
    timeout = 300
    unit = "ratio"

    def setup(self, history: str, durability: str) -> None:
        from cleveragents.actors.graph.checkpoint_saver import DatabaseCheckpointSaver
        from cleveragents.actors.store.sql_checkpoint_store import SqlCheckpointStore
        from cleveragents.storage.database import open_database

        self._folder = TemporaryDirectory()
        self._home = Path(self._folder.name)
        self._numbers = count()
        self._input = {"turn": 0, "messages": [_MESSAGE] * _HISTORIES[history]}
        self._database = open_database(f"sqlite:///{self._home}/ours.db", durability=durability.lower())
        self._ours = DatabaseCheckpointSaver(SqlCheckpointStore(self._database))

    def teardown(self, history: str, durability: str) -> None:
        self._database.close()
        self._folder.cleanup()

    def track_sync_step_ratio(self, history: str, durability: str) -> float:
        """`invoke`, compared with `SqliteSaver`."""
        from langgraph.checkpoint.sqlite import SqliteSaver

        with closing(sqlite3.connect(self._home / "theirs.db", check_same_thread=False)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {durability}")
            ours, theirs = self._graphs(SqliteSaver(connection), history, _STEPS)
            return ratio(lambda: self._invoke(ours), lambda: self._invoke(theirs))

    def track_async_step_ratio(self, history: str, durability: str) -> float:
        """`ainvoke`, compared with `AsyncSqliteSaver`."""
        return asyncio.run(self._beside(history, durability, _STEPS, 1))

    def track_async_at_once_ratio(self, history: str, durability: str) -> float:
        """32 graphs on one loop."""
        return asyncio.run(self._beside(history, durability, _STEPS // 4, _AT_ONCE))

    async def _beside(self, history: str, durability: str, steps: int, at_once: int) -> float:
        import aiosqlite
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        loop = asyncio.get_running_loop()
        async with aiosqlite.connect(self._home / "theirs.db") as connection:
            await connection.execute("PRAGMA journal_mode = WAL")
            await connection.execute(f"PRAGMA synchronous = {durability}")
            ours, theirs = self._graphs(AsyncSqliteSaver(connection), history, steps)

            def timed(graph: Any) -> Callable[[], object]:
                async def runs() -> None:
                    await asyncio.gather(*(self._ainvoke(graph) for _ in range(at_once)))

                return lambda: asyncio.run_coroutine_threadsafe(runs(), loop).result(self.timeout)

            return await asyncio.to_thread(ratio, timed(ours), timed(theirs), rounds=7)

    def _graphs(self, theirs: Any, history: str, steps: int) -> tuple[Any, Any]:
        grows = history == "growing"
        return _graph(self._ours, steps, grows), _graph(theirs, steps, grows)

    def _invoke(self, graph: Any) -> None:
        graph.invoke(self._input, self._config(), durability="sync")

    async def _ainvoke(self, graph: Any) -> None:
        await graph.ainvoke(self._input, self._config(), durability="sync")

    def _config(self) -> dict[str, Any]:
        thread_id = f"thread-{next(self._numbers)}"
        return {"configurable": {"thread_id": thread_id}, "recursion_limit": 2 * _STEPS}


def _graph(saver: Any, steps: int, grows: bool) -> Any:
    from langgraph.graph import END, START, StateGraph
    from langgraph.utils.runnable import RunnableCallable

    def turn(state: _State) -> _State:
        following: _State = {"turn": state["turn"] + 1}
        if grows:
            following["messages"] = [_MESSAGE]
        return following

    async def aturn(state: _State) -> _State:
        return turn(state)

    builder = StateGraph(_State)
    builder.add_node("turn", RunnableCallable(turn, aturn))
    builder.add_edge(START, "turn")
    builder.add_conditional_edges("turn", lambda state: "turn" if state["turn"] < steps else END)
    return builder.compile(checkpointer=saver)
