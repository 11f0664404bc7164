"""The MCP servers of one stage of a plan: each started at first use, all ended with the stage.

A server that cannot start, does not answer or dies causes a `ToolRefused` that a model and a person can
understand. An interrupted call is not repeated, because its effects are unknown; the next use restarts the
server, once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from types import TracebackType
from typing import Any, TypeVar

from cleveragents.config.entry_points import install_command
from cleveragents.core.errors import Cancelled, ToolRefused
from cleveragents.processes.event_loop_thread import EventLoopThread
from cleveragents.processes.ports import StopSignal
from cleveragents.tools.mcp.connection import ServerConnection, ServerTimeouts
from cleveragents.tools.mcp.gate import ServerPermit
from cleveragents.tools.mcp.launch import ServerPlace
from cleveragents.tools.mcp.tool_list import CallResult, ListedTool

__all__ = ["McpServers"]

T = TypeVar("T")

_MOST_STARTS = 2


@dataclass(eq=False, slots=True)
class _Slot:
    """The state of one server; used on the loop only."""

    permit: ServerPermit
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    connection: ServerConnection | None = None
    listing: tuple[ListedTool, ...] | None = None
    starts: int = 0
    problem: str = ""


class McpServers:
    """A context manager for MCP servers: leaving it ends every server and all processes it started.

    Thread safety:
        Owner: the stage that entered it. Any thread may call it meanwhile; all state belongs to the loop,
            which is one thread, so there is no lock but the loop's own.
        Guarantee: a server runs at most once at a time and is started at most twice; after the context is
            left, no server and no process that it started is alive.
    Cancel safety: a cancelled call ends its server, which might still be working on the call; the next use
        starts it again.
    """

    def __init__(self, place: ServerPlace, patience: ServerTimeouts | None = None) -> None:
        self._place = place
        self._patience = patience or ServerTimeouts()
        self._slots: dict[str, _Slot] = {}
        self._loop = EventLoopThread("mcp")

    def __enter__(self) -> McpServers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all servers. Idempotent."""
        self._loop.close(self._close_all)

    def tools(self, permit: ServerPermit, stop: StopSignal | None = None) -> tuple[ListedTool, ...]:
        """Return the server's tools, requested once. Raises `ToolRefused`, `Cancelled`."""
        return self._asked(permit, self._list, stop)

    def call(
        self, permit: ServerPermit, tool: str, arguments: Mapping[str, Any], stop: StopSignal | None = None
    ) -> CallResult:
        """Return the answer of a tool. Raises `ToolRefused`, `Cancelled`."""
        return self._asked(permit, lambda slot: self._call(slot, tool, arguments), stop)

    def _asked(
        self,
        permit: ServerPermit,
        question: Callable[[_Slot], Coroutine[Any, Any, T]],
        stop: StopSignal | None,
    ) -> T:
        server = permit.server.name
        if find_spec("mcp") is None:
            raise ToolRefused(f"MCP server {server}", f"needs the package `mcp`: {install_command('mcp')}")

        async def work() -> T:
            slot = self._slots.get(server)
            if slot is None:
                slot = self._slots[server] = _Slot(permit)
            return await question(slot)

        try:
            return self._loop.run(work, stop)
        except Cancelled:
            # guard: it may still be working, and change files unnoticed
            self._loop.run(lambda: self._drop(server))
            raise

    async def _list(self, slot: _Slot) -> tuple[ListedTool, ...]:
        async with slot.turn:
            connection = await self._connected(slot)
            if slot.listing is None:
                slot.listing = await self._noted(slot, connection.tools())
            return slot.listing

    async def _call(self, slot: _Slot, tool: str, arguments: Mapping[str, Any]) -> CallResult:
        async with slot.turn:
            connection = await self._connected(slot)
        return await self._noted(slot, connection.call(tool, arguments))

    async def _connected(self, slot: _Slot) -> ServerConnection:
        if slot.connection is not None and slot.connection.usable:
            return slot.connection
        if slot.connection is not None:
            await slot.connection.close()
            slot.connection = None
        if slot.starts >= _MOST_STARTS:  # guard: a server that keeps dying is not restarted forever
            name = f"MCP server {slot.permit.server.name}"
            raise ToolRefused(
                name, f"the server is not started a third time; last problem: {slot.problem or 'it ended'}"
            )
        slot.starts += 1
        _quieten()
        connection = ServerConnection(slot.permit, self._place, self._patience)
        slot.connection = connection
        await self._noted(slot, connection.open())
        return connection

    async def _noted(self, slot: _Slot, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await work
        except ToolRefused as refusal:
            slot.problem = refusal.reason
            raise

    async def _drop(self, server: str) -> None:
        slot = self._slots.get(server)
        if slot is not None and slot.connection is not None:
            await slot.connection.close()

    async def _close_all(self) -> None:
        await asyncio.gather(*(self._drop(name) for name in self._slots))


def _quieten() -> None:
    """Silence the library's loggers: they may log the servers' messages and addresses."""
    for name in ("mcp", "client", "httpx2", "httpcore2"):
        logger = logging.getLogger(name)
        logger.propagate = False
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
