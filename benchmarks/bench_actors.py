"""An actor with twenty model calls, from YAML through the bridge, compared with the same calls in bare
LangGraph.

Both use the same host, which answers immediately and remembers calls by name, so each call has its own name.
Both keep the same conversation. With persistence, ours uses our checkpointer and theirs LangGraph's own for
SQLite. Both wait until each call is stored, with the same `synchronous` setting. Aim: ≤ 1.5 per node. Without
persistence, ours goes through the bridge, and neither stores anything. Aim: ≤ 1.15.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, TypedDict

from benchmarks.ratio import ratio

__all__ = ["ActorNodes"]

_NODES = 20
_LIMIT = 120.0

_NEXT = [*(f"n{n}" for n in range(1, _NODES)), "end"]
_YAML = "name: bench/chain\ntype: graph\nentry: n0\nlimits: {steps: 100}\nnodes:\n" + "".join(
    f"  n{n}: {{type: llm, prompt: 'Do ${{goal}}.', next: {following}}}\n"
    for n, following in enumerate(_NEXT)
)


class _State(TypedDict, total=False):
    goal: str
    messages: Annotated[list[dict[str, Any]], operator.add]


class ActorNodes:
    """Twenty model calls, one after the other."""

    timeout = 300
    unit = "ratio"

    def setup(self) -> None:
        from cleveragents.actors.loader import load_actor
        from cleveragents.actors.runner import BridgeActorRunner
        from cleveragents.actors.store.sql_checkpoint_store import SqlCheckpointStore
        from cleveragents.storage.database import open_database
        from cleveragents.testing.actor_host import ScriptedHost, says

        self._folder = TemporaryDirectory()
        self._home = Path(self._folder.name)
        self._numbers = count()
        self._host = ScriptedHost(lambda thought: says("done"))
        self._actor = load_actor(_YAML, "bench")
        self._database = open_database(f"sqlite:///{self._home}/ours.db")
        self._runner = BridgeActorRunner(SqlCheckpointStore(self._database))

    def teardown(self) -> None:
        self._runner.close()
        self._database.close()
        self._folder.cleanup()

    def track_kept_ratio(self) -> float:
        """With checkpoints."""
        return asyncio.run(self._kept())

    def track_unkept_ratio(self) -> float:
        """Without checkpoints; ours on the bridge's loop, theirs on its own."""
        from cleveragents.actors.bridge.bridge import RxPyLangGraphBridge
        from cleveragents.actors.graph.compiler import compile_actor
        from cleveragents.actors.streams.message import StreamMessage

        graph = _Bare(compile_actor(self._actor, _NoActors()), self._actor, self._host)
        with RxPyLangGraphBridge({"actor": graph}) as bridge, asyncio.Runner() as runner:
            theirs = _graph(self._host, None)

            def ours() -> None:
                message = StreamMessage(str(next(self._numbers)), "actor", {"goal": "win"})
                answer = bridge.create_future_task(message).result(_LIMIT)
                assert answer.error is None, answer.error

            def floor() -> None:
                runner.run(theirs.ainvoke({"goal": "win", "messages": []}, {"recursion_limit": 100}))

            return ratio(ours, floor)

    async def _kept(self) -> float:
        import aiosqlite
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        loop = asyncio.get_running_loop()
        async with aiosqlite.connect(self._home / "theirs.db") as connection:
            await connection.execute("PRAGMA journal_mode = WAL")
            await connection.execute("PRAGMA synchronous = NORMAL")
            theirs = _graph(self._host, AsyncSqliteSaver(connection))

            def floor() -> None:
                config = {
                    "configurable": {"thread_id": f"thread-{next(self._numbers)}"},
                    "recursion_limit": 100,
                }
                run = theirs.ainvoke({"goal": "win", "messages": []}, config, durability="sync")
                asyncio.run_coroutine_threadsafe(run, loop).result(_LIMIT)

            return await asyncio.to_thread(ratio, self._run_actor, floor)

    def _run_actor(self) -> None:
        from cleveragents.actors.ports import ActorRequest
        from cleveragents.jobs.worker.async_worker import CancellationToken

        self._runner.run(
            ActorRequest(
                actor=self._actor,
                thread_id=f"plan/execute/{next(self._numbers)}",
                inputs={"goal": "win"},
                host=self._host,
                stop=CancellationToken(),
            )
        )


class _NoActors:
    """A set of actors that is empty."""

    def get(self, name: str) -> Any:
        raise KeyError(name)


class _Bare:
    """An actor's graph in the form that the bridge accepts, without a checkpointer."""

    def __init__(self, graph: Any, actor: Any, host: Any) -> None:
        self._graph, self._actor, self._host = graph, actor, host
        self._numbers = count()

    async def ainvoke(self, input_: Any, config: Any = None, /) -> Any:
        from cleveragents.actors.graph.run_context import RunContext
        from cleveragents.actors.graph.state import first_state

        thread_id = f"plan/execute/{next(self._numbers)}"
        context = RunContext(self._host, thread_id, lambda progress: None)
        begun = first_state(self._actor, input_, path="")
        return await self._graph.ainvoke(begun, {"recursion_limit": 200}, context=context)


def _graph(host: Any, saver: Any) -> Any:
    from langgraph.graph import END, START, StateGraph

    builder: Any = StateGraph(_State)
    for n in range(_NODES):
        builder.add_node(f"n{n}", _thinking(host, f"n{n}"))
        builder.add_edge(START if n == 0 else f"n{n - 1}", f"n{n}")
    builder.add_edge(f"n{_NODES - 1}", END)
    return builder.compile(checkpointer=saver)


def _thinking(host: Any, name: str) -> Callable[[_State], Any]:
    from cleveragents.core.json_value import thaw
    from cleveragents.models.model.conversation import Message, MessageRole
    from cleveragents.models.ports import ModelRequest

    numbers = count()

    async def think(state: _State) -> _State:
        asked = Message(MessageRole.USER, f"Do {state['goal']}.")
        request = ModelRequest(messages=[asked], max_output_tokens=4_000)
        reply = await host.think(None, request, key=f"{name}.{next(numbers)}", actor="bench/chain", node=name)
        return {"messages": [thaw(asked.to_json()), thaw(reply.message.to_json())]}

    return think
