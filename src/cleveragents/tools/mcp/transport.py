"""What the MCP library talks through, both ways: messages as lines on a server's socket, or over HTTP.

The library has a stdio transport of its own. This one is here because ours has to bound what a server sends,
to pass over what is no message without printing it, and to leave the process to our guard.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from cleveragents.processes.talking_process import MESSAGE_BYTES, Faults, next_message

if TYPE_CHECKING:
    import httpx2
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage

    from cleveragents.processes.talking_process import TalkingProcess
    from cleveragents.tools.mcp.server_entry import McpServer

__all__ = ["http_streams", "stdio_streams"]


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

    def parse(line: bytes) -> SessionMessage:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))

    with heard:
        while (message := await next_message(reader, parse, faults)) is not None:
            try:
                await heard.send(message)
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
async def http_streams(server: McpServer, seconds: float, faults: Faults) -> AsyncIterator[TransportStreams]:
    """Messages to and from a server behind a URL; none is redirected, and none is longer than ours may be."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    async def bound(response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.DecodingError("it sent a compressed answer, which was not asked for")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        events = response.headers.get("content-type", "").startswith("text/event-stream")
        response.stream = _bounded(response.stream, faults, events=events)

    client = httpx2.AsyncClient(
        headers={**server.headers, "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(seconds),
        trust_env=True,
        event_hooks={"response": [bound]},
    )
    async with client, streamable_http_client(server.url, http_client=client) as streams:
        yield streams


def _bounded(stream: httpx2.AsyncByteStream, faults: Faults, *, events: bool) -> httpx2.AsyncByteStream:
    """The same bytes, until one message is too long. A message is the whole body, or one event of it."""
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for piece in stream:
                end = max(piece.rfind(b"\n\n"), piece.rfind(b"\n\r\n")) if events else -1
                size = len(piece) - end if end >= 0 else size + len(piece)
                if size > MESSAGE_BYTES:  # guard: memory stays bounded, whatever is sent
                    faults.found = "it sent a message that is too long to be one"
                    raise httpx2.RemoteProtocolError(faults.found)
                yield piece

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()
