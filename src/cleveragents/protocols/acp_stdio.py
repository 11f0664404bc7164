"""The Agent Client Protocol on stdin and stdout, for an editor that starts the agent.

This transport answers lines that are not messages with an error of JSON-RPC, and limits the length and depth
of lines. (The transport of the SDK skips such lines, and reads lines of any length.)
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any, cast

from cleveragents.core.errors import RequestRefused
from cleveragents.core.json_value import is_deeper

if TYPE_CHECKING:
    from acp.interfaces import Agent

    from cleveragents.protocols.acp_agent import PlanAgent

__all__ = ["BoundedLines", "message_in", "serve"]

LONGEST_LINE = 16 << 20
"""Room for the attachments of one prompt, which are encoded in base64."""
_DEEPEST = 100
_PARSE_ERROR, _INVALID_REQUEST = -32700, -32600


class BoundedLines:
    """A `Transport` of the SDK: one JSON object per line. Not thread-safe: use it on its loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._sending = asyncio.Lock()

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message. Raises `ConnectionError` if the editor is gone."""
        # Details of an error may contain values that JSON does not know.
        line = json.dumps(message, separators=(",", ":"), default=str).encode() + b"\n"
        async with self._sending:
            self._writer.write(line)
            await self._writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message, None at the end. A line that is not a message is answered
        with an error.
        """
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                return None  # a last line without an end was cut off
            except asyncio.LimitOverrunError:
                await self._skip_line()
                await self._refuse(_INVALID_REQUEST, f"a message is longer than {LONGEST_LINE:,} bytes")
                continue
            if not line.strip():
                continue
            try:
                return message_in(line)
            except RecursionError:
                await self._refuse(_PARSE_ERROR, "a message is nested too deeply")
            except json.JSONDecodeError:
                await self._refuse(_PARSE_ERROR, "a line is not JSON")
            except ValueError as error:
                await self._refuse(_INVALID_REQUEST, str(error))

    async def close(self) -> None:
        """Close the output."""
        self._writer.close()

    async def _skip_line(self) -> None:
        """Drop the rest of a line, in pieces."""
        while True:
            try:
                await self._reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as error:
                await self._reader.readexactly(error.consumed)
            except asyncio.IncompleteReadError:
                return
            else:
                return

    async def _refuse(self, code: int, problem: str) -> None:
        await self.send({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": problem}})


def message_in(line: bytes) -> dict[str, Any]:
    """Parse a request, a notification or a response. Raises `ValueError` for anything else."""
    message = json.loads(line)
    if is_deeper(message, _DEEPEST):  # guard: later code recurses into it
        raise ValueError("a message is nested too deeply")
    if not isinstance(message, dict):
        raise ValueError("a message is not an object")
    if not isinstance(message.get("id"), int | str | None):
        raise ValueError("the id of a message is neither a number nor a text")
    if "method" in message:
        fits = isinstance(message["method"], str)
    else:
        fits = "id" in message and isinstance(message.get("error") or {}, dict)
    if not fits:
        raise ValueError("a message is neither a request nor a response")
    return message


async def serve(agent: PlanAgent) -> None:
    """Serve the editor at stdin and stdout until it closes them. Raises `RequestRefused` if stdin or stdout
    is a file.
    """
    from acp.agent.connection import AgentSideConnection

    try:
        reader, writer = await _standard_streams()
    except ValueError:
        raise RequestRefused("stdin and stdout must be pipes: an editor starts this command") from None
    connection = AgentSideConnection(cast("Agent", agent), BoundedLines(reader, writer), listening=False)
    try:
        await connection.listen()
    finally:
        await asyncio.shield(connection.close())
        await asyncio.shield(agent.close())


async def _standard_streams() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return stdin and stdout. They are duplicated, because closing the streams closes their files."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=LONGEST_LINE)
    source, sink = (os.fdopen(os.dup(number), mode, 0) for number, mode in ((0, "rb"), (1, "wb")))
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sink)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
