"""32 goal plans in parallel against a local server that takes 500 ms for every answer.

A plan makes twelve model calls, eleven of which request a tool. The ideal schedule is bounded by latency
alone: twelve answers in sequence, all plans in parallel. The peer is bare LangGraph with its own SQLite
checkpointer and the same calls, with tools that only read the file. Sandboxes are made before the clock
starts, because the peer has none; `track_whole_seconds` includes everything. Aims: ≤ 1.3 of the ideal, ≤ 1.1
of the peer. The server runs in a separate process.
"""

from __future__ import annotations

import asyncio
import operator
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, TypedDict

__all__ = ["GoalsAtOnce"]

_PLANS = 32
_CALLS = 12
_LATENCY = 0.5
_SCRIPT = "version: 1\nrules:\n  - turns:\n" + "".join(
    [f"      - calls: [{{tool: read, arguments: {{path: 'f{n}.txt'}}}}]\n" for n in range(_CALLS - 1)]
    + ["      - text: done\n"]
)


_ACTOR = """\
name: bench/reader
type: llm
system: You read files.
prompt: ${task}
tools: [read]
"""


class GoalsAtOnce:
    """The wall time of 32 plans, and the memory they use."""

    timeout = 600

    def setup(self) -> None:
        self._folder = TemporaryDirectory()
        self._home = Path(self._folder.name)
        self._numbers = count()
        (self._home / "script.yaml").write_text(_SCRIPT)
        repository = self._home / "repository"
        repository.mkdir()
        for n in range(_CALLS):
            (repository / f"f{n}.txt").write_text(f"file {n}\n")
        subprocess.run(["git", "init", "-q"], cwd=repository, check=True)
        subprocess.run(["git", "add", "-A"], cwd=repository, check=True)
        identity = ["-c", "user.name=b", "-c", "user.email=b@example.org"]
        subprocess.run(["git", *identity, "commit", "-qm", "first"], cwd=repository, check=True)
        actors = self._home / "config" / "cleveragents" / "actors"
        actors.mkdir(parents=True)
        (actors / "reader.yaml").write_text(_ACTOR)
        os.environ["XDG_CONFIG_HOME"] = str(self._home / "config")
        os.environ["OPENAI_API_KEY"] = "sk-no-key-at-all"

    def teardown(self) -> None:
        self._folder.cleanup()

    def track_ideal_ratio(self) -> float:
        """The plans' wall time relative to twelve latencies, in a worker that has run plans before, because
        the first one loads the libraries.
        """
        with self._server() as url:
            self._plans(url, 2)
            return self._plans(url, _PLANS)[0] / (_CALLS * _LATENCY)

    def track_langgraph_ratio(self) -> float:
        """The plans' wall time relative to that of bare LangGraph."""
        # One loop for both runs: LangChain's client keeps its connections, which are bound to the loop.
        with self._server() as url, asyncio.Runner() as runner:
            runner.run(self._peer(url, 2))
            self._plans(url, 2)
            peer = runner.run(self._peer(url, _PLANS))
            return self._plans(url, _PLANS)[0] / peer

    def track_whole_seconds(self) -> float:
        """Seconds from the first request to the last plan's end, including sandboxes."""
        with self._server() as url:
            return self._plans(url, _PLANS)[1]

    def track_memory_per_plan(self) -> float:
        """Memory per running plan, in MiB."""
        with self._server() as url:
            self._plans(url, 2)
            before = _peak()
            self._plans(url, _PLANS)
            return (_peak() - before) / _PLANS

    track_ideal_ratio.unit = track_langgraph_ratio.unit = "ratio"
    track_whole_seconds.unit = "s"
    track_memory_per_plan.unit = "MiB"

    @contextmanager
    def _server(self) -> Iterator[str]:
        command = [sys.executable, "-m", "cleveragents.testing.scripted_server"]
        command += [str(self._home / "script.yaml"), "--port", "0", "--latency", str(_LATENCY)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            yield process.stdout.readline().strip()
            process.stdin.close()

    def _plans(self, url: str, plans: int) -> tuple[float, float]:
        """Return the seconds of work, and in total."""
        import msgspec

        from cleveragents.app.container import Container
        from cleveragents.config.settings import Settings
        from cleveragents.jobs.ports import JobHandler
        from cleveragents.plans.model.plan import PlanState
        from cleveragents.plans.ports.plans import PlanDraft
        from cleveragents.plans.run import kind_of_plan
        from cleveragents.sandboxes.ports import SandboxRequest

        state = self._home / f"state-{next(self._numbers)}"
        state.mkdir()
        settings = msgspec.convert(
            {
                "state": {"directory": str(state)},
                "database": {"url": f"sqlite:///{state}/state.db"},
                "models": {"base_url": url, "concurrency": 256},
            },
            Settings,
        )
        request = {"arguments": {"goal": "g"}, "model": "openai/scripted", "actor": "bench/reader"}
        resource = self._home / "repository"
        began = time.perf_counter()
        with Container(settings) as container:
            parts = container.plan_parts
            made = [
                parts.lifecycle.create(PlanDraft("g", "builtin/goal", str(resource), request))
                for _ in range(plans)
            ]
            for plan in made:
                parts.sandboxes.create(SandboxRequest(plan.id, resource))
            container.models.get("openai/scripted")
            worker = container.worker(
                {kind_of_plan(plan.id): JobHandler(parts.run()) for plan in made},
                name="bench",
                concurrency=plans,
            )
            at_work = time.perf_counter()
            worker.start()
            worker.run_until_idle(self.timeout)
            ended = time.perf_counter()
            states = {parts.plans.get(plan.id).state for plan in made}
            errors = {parts.plans.get(plan.id).error for plan in made}
            assert states == {PlanState.COMPLETE}, (states, errors)
        return ended - at_work, ended - began

    async def _peer(self, url: str, plans: int) -> float:
        import aiosqlite
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        path = self._home / f"peer-{next(self._numbers)}.db"
        async with aiosqlite.connect(path) as connection:
            await connection.execute("PRAGMA journal_mode = WAL")
            await connection.execute("PRAGMA synchronous = NORMAL")
            graph = _bare(url, self._home / "repository", AsyncSqliteSaver(connection))
            began = time.perf_counter()
            await asyncio.gather(*(_run(graph, n) for n in range(plans)))
            return time.perf_counter() - began


class _State(TypedDict):
    messages: Annotated[list[Any], operator.add]


async def _run(graph: Any, number: int) -> None:
    from langchain_core.messages import HumanMessage, SystemMessage

    config = {"configurable": {"thread_id": str(number)}, "recursion_limit": 100}
    ended = await graph.ainvoke(
        {"messages": [SystemMessage("You read files."), HumanMessage("g")]}, config, durability="sync"
    )
    assert ended["messages"][-1].content == "done"


def _bare(url: str, files: Path, saver: Any) -> Any:
    from langchain_core.messages import ToolMessage
    from langchain_openai import ChatOpenAI
    from langgraph.graph import END, START, StateGraph

    from cleveragents.core.json_value import thaw
    from cleveragents.tools.registry import ToolRegistry

    spec = ToolRegistry().get("read").spec
    schema = {"name": "read", "description": spec.description, "parameters": thaw(spec.input_schema)}
    tool = {"type": "function", "function": schema}
    model = ChatOpenAI(model="scripted", base_url=url, api_key="scripted", streaming=True).bind_tools([tool])

    async def think(state: _State) -> _State:
        return {"messages": [await model.ainvoke(state["messages"])]}

    async def call(state: _State) -> _State:
        requests = state["messages"][-1].tool_calls
        texts = [await asyncio.to_thread((files / r["args"]["path"]).read_text) for r in requests]
        answers = zip(texts, requests, strict=True)
        return {"messages": [ToolMessage(text, tool_call_id=r["id"]) for text, r in answers]}

    async def onward(state: _State) -> str:
        return "call" if state["messages"][-1].tool_calls else END

    builder: Any = StateGraph(_State)
    builder.add_node("think", think)
    builder.add_node("call", call)
    builder.add_edge(START, "think")
    builder.add_conditional_edges("think", onward, ["call", END])
    builder.add_edge("call", "think")
    return builder.compile(checkpointer=saver)


def _peak() -> float:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
