"""What the protocol's library talks through: messages as lines on the agent's socket, bounded.

The library can read a stream itself. This one is here because ours has to bound what an agent sends, to pass
over what is no message without printing it, and to let nothing through that the library would stumble over.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from cleveragents.actors.external.acp.bounds import SessionBounds
from cleveragents.processes.talking_lines import Faults, next_message

__all__ = ["LineTransport", "message_in"]


class LineTransport:
    """`acp`'s `Transport`. Not thread-safe: the session's loop uses it."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        faults: Faults,
        bounds: SessionBounds,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._faults = faults
        self._bounds = bounds
        self._sending = asyncio.Lock()
        self._messages = 0
        self._bytes = 0

    async def send(self, message: dict[str, Any]) -> None:
        """`ConnectionError` when nobody is there any more."""
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        async with self._sending:
            self._writer.write(line)
            await self._writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None when there is none, or the agent is no longer listened to."""
        # What is in the buffer comes without waiting, and whoever answers has to get a turn.
        await asyncio.sleep(0)
        return await next_message(self._reader, self._parsed, self._faults)

    async def close(self) -> None:
        """Whoever owns the process ends it."""

    def _parsed(self, line: bytes) -> dict[str, Any]:
        self._messages += 1
        self._bytes += len(line)
        if self._messages > self._bounds.messages or self._bytes > self._bounds.bytes_:  # guard: a flood ends
            self._faults.found = "it said more than anybody reads"
        return message_in(line)


def message_in(line: bytes) -> dict[str, Any]:
    """A request, an answer or a notification. `ValueError` for anything else."""
    try:
        message = json.loads(line)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(message, dict):
        raise ValueError("it is no object")
    if "method" in message:
        fits = isinstance(message["method"], str)
    else:
        fits = "id" in message and isinstance(message.get("error") or {}, dict)
    if not fits or not isinstance(message.get("id"), int | str | None):
        raise ValueError("it is no message")
    return message
