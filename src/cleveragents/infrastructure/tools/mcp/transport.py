"""What the MCP library talks through, both ways: messages as lines on a server's socket, or over HTTP.

The library has a stdio transport of its own. This one is here because ours has to bound what a server sends,
to pass over what is no message without printing it, and to leave the process to our guard.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage

    from cleveragents.infrastructure.commands.talking_process import TalkingProcess
    from cleveragents.infrastructure.tools.mcp.server_entry import McpServer

__all__ = ["GARBAGE_BYTES", "Faults", "http_streams", "stdio_streams"]

GARBAGE_BYTES = 1 << 20
"""Of what is no message. Some servers greet or log on the wrong stream; one that goes on has lost its way."""

_PRINTED_BYTES = 4_000


class Faults:
    """Why we stopped listening to a server, if we did. Used by the loop that owns the connection."""

    def __init__(self) -> None:
        self.found = ""
        self.printed = ""
        """The last that it wrote where only messages belong."""


@asynccontextmanager
async def stdio_streams(process: TalkingProcess, faults: Faults) -> AsyncIterator[TransportStreams]:
    """Messages to and from the process, while it lives and keeps to the protocol."""
    import anyio
    from mcp.shared.message import SessionMessage

    heard_in, heard = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    told, told_out = anyio.create_memory_object_stream[SessionMessage](0)
    reader, writer = await process.streams()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_listen, reader, heard_in, faults)
        tasks.start_soon(_tell, writer, told_out, heard_in)
        try:
            yield heard, told
        finally:
            tasks.cancel_scope.cancel()
            for stream in (heard_in, heard, told, told_out):
                stream.close()


async def _listen(
    reader: asyncio.StreamReader, heard: MemoryObjectSendStream[SessionMessage | Exception], faults: Faults
) -> None:
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    garbage = 0
    with heard:
        while True:
            try:
                line = await reader.readuntil(b"\n")
            except asyncio.LimitOverrunError:  # memory stays bounded, whatever is sent
                faults.found = "it sent a message that is too long to be one"
                return
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                garbage += len(line)
                faults.printed = line[-_PRINTED_BYTES:].decode("utf-8", "replace").strip() or faults.printed
                if garbage > GARBAGE_BYTES:  # guard: or it would keep us busy for ever
                    faults.found = "it keeps writing what is no message"
                    return
                continue
            try:
                await heard.send(SessionMessage(message))
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                return


async def _tell(
    writer: asyncio.StreamWriter,
    told: MemoryObjectReceiveStream[SessionMessage],
    heard: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    try:
        async for message in told:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            writer.write(text.encode() + b"\n")
            await writer.drain()
    except ConnectionError:
        heard.close()  # or whoever waits for an answer would wait for ever


@asynccontextmanager
async def http_streams(server: McpServer, seconds: float) -> AsyncIterator[TransportStreams]:
    """Messages to and from a server behind a URL; none is redirected to another place."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    timeout = httpx2.Timeout(seconds)
    async with (
        httpx2.AsyncClient(headers=dict(server.headers), timeout=timeout, trust_env=True) as client,
        streamable_http_client(server.url, http_client=client) as streams,
    ):
        yield streams
