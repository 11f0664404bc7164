"""The terminals of one session: each is one recorded command, run on a thread, that is asked about meanwhile.

A terminal is made at once, and its command waits for its turn: calls in a sandbox are made one after the
other. The agent can look at what it says, wait for it and end it, as the protocol has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from cleveragents.actors.agent_ports import AgentClient, TerminalCommand
from cleveragents.core.errors import ToolRefused
from cleveragents.jobs.worker.async_worker import CancellationToken

if TYPE_CHECKING:
    from acp.schema import (
        CreateTerminalRequest,
        TerminalExitStatus,
        TerminalOutputResponse,
        WaitForTerminalExitResponse,
    )

__all__ = ["Terminals", "seen"]

_MOST_BYTES = 1 << 20
_CANNOT_RUN = 126


class Terminals:
    """Not thread-safe: the session's loop uses it."""

    def __init__(
        self,
        client: AgentClient,
        in_thread: Callable[[Callable[[], int | None]], Awaitable[int | None]],
        most: int,
    ) -> None:
        self._client = client
        self._in_thread = in_thread
        self._most = most
        self._open: dict[str, _Terminal] = {}
        self._numbers = count(1)

    def create(self, request: CreateTerminalRequest) -> str:
        """Its name. `ToolRefused` when there are too many."""
        if len(self._open) >= self._most:  # guard: each is a thread
            raise ToolRefused("terminal", f"there are {self._most} already; release some")
        command = TerminalCommand(
            request.command,
            tuple(request.args or ()),
            tuple((variable.name, variable.value) for variable in request.env or ()),
            request.cwd,
        )
        limit = _MOST_BYTES if request.output_byte_limit is None else request.output_byte_limit
        name = f"terminal-{next(self._numbers)}"
        terminal = _Terminal(min(limit, _MOST_BYTES))
        self._open[name] = terminal
        loop = asyncio.get_running_loop()

        def hear(chunk: bytes) -> None:
            loop.call_soon_threadsafe(terminal.append, chunk)

        work = partial(self._client.run, command, terminal.ended, hear)
        terminal.task = asyncio.create_task(terminal.run(self._in_thread(work)), name=name)
        terminal.task.add_done_callback(seen)
        return name

    def output(self, name: str) -> TerminalOutputResponse:
        """What it has said so far."""
        from acp.schema import TerminalOutputResponse

        terminal = self._found(name)
        return TerminalOutputResponse(
            output=terminal.text, truncated=terminal.truncated, exit_status=terminal.status()
        )

    async def wait(self, name: str) -> WaitForTerminalExitResponse:
        """How it ended, when it has."""
        from acp.schema import WaitForTerminalExitResponse

        terminal = self._found(name)
        assert terminal.task is not None
        await asyncio.wait({terminal.task})
        status = terminal.status()
        if status is None:
            raise ToolRefused("terminal", "the session is being ended")
        return WaitForTerminalExitResponse(exit_code=status.exit_code, signal=status.signal)

    def kill(self, name: str) -> None:
        """Ends its command; its output is still there."""
        self._found(name).ended.cancel("the agent ended it")

    def release(self, name: str) -> None:
        """Ends its command and forgets it."""
        self.kill(name)
        del self._open[name]

    def close(self) -> None:
        """Ends all commands, without waiting for them."""
        for terminal in self._open.values():
            terminal.ended.cancel("the session is over")

    def _found(self, name: str) -> _Terminal:
        terminal = self._open.get(name)
        if terminal is None:
            raise ToolRefused("terminal", f"there is no terminal {name!r}")
        return terminal


class _Terminal:
    """One command and the end of what it says."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self._has_ended = False
        self._code: int | None = None
        self.ended = CancellationToken()
        self.truncated = False
        self.task: asyncio.Task[None] | None = None

    async def run(self, work: Awaitable[int | None]) -> None:
        try:
            self._code = await work
        except ToolRefused as refusal:
            self.append(f"{refusal.reason}\n".encode())
            self._code = _CANNOT_RUN
        self._has_ended = True

    def append(self, chunk: bytes) -> None:
        self._kept += chunk
        excess = len(self._kept) - self._limit
        if excess > 0:  # guard: memory stays bounded
            del self._kept[:excess]
            self.truncated = True

    @property
    def text(self) -> str:
        kept = bytes(self._kept)
        if self.truncated:
            kept = kept.lstrip(bytes(range(0x80, 0xC0)))  # the rest of a character that was cut
        return kept.decode("utf-8", "replace")

    def status(self) -> TerminalExitStatus | None:
        """None as long as it runs."""
        from acp.schema import TerminalExitStatus

        if not self._has_ended:
            return None
        if self._code is None:
            return TerminalExitStatus(signal="SIGTERM")
        return TerminalExitStatus(exit_code=self._code)


def seen(task: asyncio.Task[None]) -> None:
    """Its error was told to the session, where it matters; asyncio need not complain of it."""
    if not task.cancelled():
        task.exception()
