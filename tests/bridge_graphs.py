"""Real LangGraph graphs whose nodes a test can block, release and observe."""

from __future__ import annotations

import asyncio
import operator
import threading
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph

from cleveragents.actors.streams.message import StreamMessage

__all__ = ["LIMIT", "Gate", "State", "async_increment", "branches", "chain", "request", "sync_increment"]

LIMIT = 60.0
"""Time limit of a waiting test, in seconds."""


_ABANDONED: list[object] = []
# Python throws GeneratorExit into a garbage-collected coroutine, and langchain responds with coroutines that
# are never awaited: a warning in whichever test runs then. So they are kept alive.


class State(TypedDict, total=False):
    """Two channels: one that nodes overwrite, one to which parallel branches add."""

    n: int
    seen: Annotated[list[str], operator.add]


def chain(*nodes: Callable[[State], Any]) -> Any:
    """Return a graph with the nodes in sequence, compiled."""
    builder = StateGraph(State)
    for number, node in enumerate(nodes):
        builder.add_node(f"node{number}", node)
        builder.add_edge(f"node{number - 1}" if number else START, f"node{number}")
    builder.add_edge(f"node{len(nodes) - 1}", END)
    return builder.compile()


def branches(*nodes: Callable[[State], Any]) -> Any:
    """Return a graph with the nodes in parallel, compiled."""
    builder = StateGraph(State)
    for number, node in enumerate(nodes):
        builder.add_node(f"node{number}", node)
        builder.add_edge(START, f"node{number}")
        builder.add_edge(f"node{number}", END)
    return builder.compile()


def request(graph: str = "graph", number: int = 1, **content: object) -> StreamMessage:
    """Return a request for this graph."""
    return StreamMessage(id=f"message-{number}", graph=graph, content=content or {"n": number})


async def async_increment(state: State) -> State:
    """Return n + 1."""
    return {"n": state["n"] + 1}


def sync_increment(state: State) -> State:
    """Return n + 1, on a thread."""
    return {"n": state["n"] + 1}


class Gate:
    """Nodes that block until the test releases them.

    Uses threading events, because tests run on other threads.
    """

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.cleaning = threading.Event()
        self.opened = threading.Event()
        self.cleaned = threading.Event()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def open(self) -> None:
        """Release all current and future nodes."""
        self.opened.set()
        for loop, event in tuple(self._waiting):
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    def wait_entered(self, times: int = 1) -> None:
        """Return when nodes have entered this many times."""
        for _ in range(times):
            assert self.entered.acquire(timeout=LIMIT), "the node never started"

    async def hold(self, state: State) -> State:
        """Block until cancelled or until the gate opens."""
        self.entered.release()
        await self._until_opened()
        return {"n": state["n"] + 1}

    async def clean_up_slowly(self, state: State) -> State:
        """After a cancel, clean up until the gate opens."""
        self.entered.release()
        try:
            await asyncio.Event().wait()
        finally:
            self.cleaning.set()
            await self._until_opened()
            self.cleaned.set()
        return {}

    async def ignore_once(self, state: State) -> State:
        """Ignore the first cancellation, obey the second."""
        self.entered.release()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cleaning.set()
        await asyncio.Event().wait()
        return {}

    async def never_end(self, state: State) -> State:
        """Ignore every cancellation."""
        _ABANDONED.append(asyncio.current_task())
        self.entered.release()
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cleaning.set()

    def hold_thread(self, state: State) -> State:
        """Block in a synchronous node: only the gate ends it."""
        self.entered.release()
        assert self.opened.wait(LIMIT)
        self.cleaned.set()
        return {"n": state["n"] + 1}

    async def hold_loop(self, state: State) -> State:
        """Block the loop in an asynchronous node."""
        return self.hold_thread(state)

    async def _until_opened(self) -> None:
        # Registered first, then checked: an `open` in between sets the event.
        opened = asyncio.Event()
        self._waiting.append((asyncio.get_running_loop(), opened))
        if not self.opened.is_set():
            await opened.wait()
