"""Real LangGraph graphs whose nodes a test can hold, release and watch."""

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
"""Seconds after which a test that waits has failed."""


_ABANDONED: list[object] = []
# Python throws GeneratorExit into a coroutine that it collects unfinished, and langchain answers that with
# coroutines that nobody awaits: a warning, in whichever test runs then. So they are kept.


class State(TypedDict, total=False):
    """Two channels: one that nodes overwrite, one to which parallel branches add."""

    n: int
    seen: Annotated[list[str], operator.add]


def chain(*nodes: Callable[[State], Any]) -> Any:
    """The nodes, one after the other, compiled."""
    builder = StateGraph(State)
    for number, node in enumerate(nodes):
        builder.add_node(f"node{number}", node)
        builder.add_edge(f"node{number - 1}" if number else START, f"node{number}")
    builder.add_edge(f"node{len(nodes) - 1}", END)
    return builder.compile()


def branches(*nodes: Callable[[State], Any]) -> Any:
    """The nodes, all at once, compiled."""
    builder = StateGraph(State)
    for number, node in enumerate(nodes):
        builder.add_node(f"node{number}", node)
        builder.add_edge(START, f"node{number}")
        builder.add_edge(f"node{number}", END)
    return builder.compile()


def request(graph: str = "graph", number: int = 1, **content: object) -> StreamMessage:
    """A request for that graph."""
    return StreamMessage(id=f"message-{number}", graph=graph, content=content or {"n": number})


async def async_increment(state: State) -> State:
    """n + 1."""
    return {"n": state["n"] + 1}


def sync_increment(state: State) -> State:
    """n + 1, on a thread."""
    return {"n": state["n"] + 1}


class Gate:
    """Nodes that stop where the test wants them. Events of threads, because tests are on other ones."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.cleaning = threading.Event()
        self.opened = threading.Event()
        self.cleaned = threading.Event()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def open(self) -> None:
        """Lets every node through that waits here, and all that will."""
        self.opened.set()
        for loop, event in tuple(self._waiting):
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    def wait_entered(self, times: int = 1) -> None:
        """Returns when nodes have entered that often."""
        for _ in range(times):
            assert self.entered.acquire(timeout=LIMIT), "the node never started"

    async def hold(self, state: State) -> State:
        """Ends when it is cancelled, or when the gate opens."""
        self.entered.release()
        await self._until_opened()
        return {"n": state["n"] + 1}

    async def clean_up_slowly(self, state: State) -> State:
        """Cancelled, it cleans up until the gate opens."""
        self.entered.release()
        try:
            await asyncio.Event().wait()
        finally:
            self.cleaning.set()
            await self._until_opened()
            self.cleaned.set()
        return {}

    async def ignore_once(self, state: State) -> State:
        """Swallows the first cancellation, heeds the second."""
        self.entered.release()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cleaning.set()
        await asyncio.Event().wait()
        return {}

    async def never_end(self, state: State) -> State:
        """Swallows every cancellation."""
        _ABANDONED.append(asyncio.current_task())
        self.entered.release()
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cleaning.set()

    def hold_thread(self, state: State) -> State:
        """A synchronous node: nothing but the gate ends it."""
        self.entered.release()
        assert self.opened.wait(LIMIT)
        self.cleaned.set()
        return {"n": state["n"] + 1}

    async def hold_loop(self, state: State) -> State:
        """An asynchronous node that blocks its loop."""
        return self.hold_thread(state)

    async def _until_opened(self) -> None:
        # Listed first, then checked: an `open` in between sets the event.
        opened = asyncio.Event()
        self._waiting.append((asyncio.get_running_loop(), opened))
        if not self.opened.is_set():
            await opened.wait()
