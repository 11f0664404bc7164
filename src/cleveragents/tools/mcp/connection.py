"""A connected server: opened, used and closed on the loop that owns it.

The context of the library's client must be exited by the task that entered it, so each connection has its own
task, which waits inside the context until the connection closes. Every failure becomes a `ToolRefused` with a
description, but without the content of the server's configuration.

This module fills in the variables of a server's entry, and keeps their values out of all output. The value of
a variable counts as a secret unless the variable is one of the few that every user has. A value in the user's
own file counts as a secret if it has a secret-looking name. Secrets are added to the known secrets and masked
wherever this process redacts: in logs, errors, events and in a tool's answers.

Messages pass as lines over a server's socket, or over HTTP. The library's own stdio transport is not used,
because the transport must limit the size of messages, skip other output without printing it, and leave the
process to our guard.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from cleveragents import __version__
from cleveragents.core.errors import ToolRefused
from cleveragents.core.text.redaction import MASK, KnownSecrets, redact, redact_text
from cleveragents.processes.environment import OWN_PREFIX
from cleveragents.processes.guard import NOT_EXECUTED
from cleveragents.processes.stdio_process import MESSAGE_BYTES, ProtocolFaults, StdioProcess, next_message
from cleveragents.tools.mcp.gate import ServerPermit
from cleveragents.tools.mcp.launch import ServerPlace, program_for
from cleveragents.tools.mcp.server_entry import VARIABLE, McpServer
from cleveragents.tools.mcp.tool_list import CallResult, ListedTool, call_result, listed_tool

if TYPE_CHECKING:
    import anyio
    import httpx2
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp import Client
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage

__all__ = ["ServerConnection", "ServerTimeouts", "filled", "http_streams", "stdio_streams"]


T = TypeVar("T")
_SAID = 500
_PRINTED = 300
_MOST_PAGES = 50
_MOST_TOOLS = 1000
_NO_SECRETS = frozenset({"HOME", "USER", "LOGNAME", "PATH", "PWD", "SHELL", "LANG", "TMPDIR", "HOSTNAME"})


@dataclass(frozen=True, slots=True)
class ServerTimeouts:
    """The time limits of a server: to start (a first start may download it), to list its tools, to answer a
    call, and to exit before it is ended by force.
    """

    start_seconds: float = 60.0
    list_seconds: float = 30.0
    call_seconds: float = 300.0
    leave_seconds: float = 10.0


class ServerConnection:
    """A started server. Not thread-safe: only the event loop that created it uses it."""

    def __init__(self, permit: ServerPermit, place: ServerPlace, patience: ServerTimeouts) -> None:
        self._permit = permit
        self._server = server = permit.server
        self._place = place
        self._patience = patience
        self._faults = ProtocolFaults()
        self._process: StdioProcess | None = None
        self._leave = asyncio.Event()
        self._opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None
        self._scope: anyio.CancelScope | None = None
        self._who = f"MCP server {server.name}"

    @property
    def usable(self) -> bool:
        """Whether another call is possible; a server may also end by itself."""
        if self._leave.is_set() or self._task is None or self._task.done():
            return False
        return not self._faults.found and not (self._process is not None and self._process.over.is_set())

    async def open(self) -> None:
        """Start the server. Raises `ToolRefused` if it cannot start or does not speak MCP, and then leaves
        nothing running.
        """
        self._task = asyncio.create_task(self._serve(), name=self._who)
        waiting: set[asyncio.Future[Any]] = {self._task, self._opened}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if self._opened.done():
            return
        error = self._task.exception()
        if isinstance(error, ToolRefused):
            raise error
        said = "the server could not be started" if error is None else _start_failure(error)
        raise self._refusal(said + self._hint)

    async def tools(self) -> tuple[ListedTool, ...]:
        """Return all tools of the server. Raises `ToolRefused`."""
        client, seconds = self._opened.result(), self._patience.list_seconds
        found: list[ListedTool] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):  # guard: a list with endless pages is cut
            page = await self._answer(client.list_tools(cursor=cursor), seconds, "listing its tools")
            found += [listed_tool(tool) for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None or len(found) >= _MOST_TOOLS:  # guard: no server may fill the memory
                break
        return tuple(found[:_MOST_TOOLS])

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> CallResult:
        """Return the answer of a call. Raises `ToolRefused`.

        After a timeout the server is no longer usable, because it may still be working on the call.
        """
        client, seconds = self._opened.result(), self._patience.call_seconds
        answer = client.call_tool(tool, dict(arguments))
        return call_result(await self._answer(answer, seconds, f"the call to {tool!r}"))

    async def close(self) -> None:
        """End the server completely. Idempotent."""
        self._leave.set()
        if self._task is None:
            return
        if not self._opened.done() and self._scope is not None:
            self._scope.cancel()
        await asyncio.wait({self._task}, timeout=self._patience.leave_seconds)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=self._patience.leave_seconds)
        if self._task.done() and not self._task.cancelled():
            self._task.exception()  # already reported to the caller, or caused by closing

    async def _answer(self, question: Coroutine[Any, Any, T], seconds: float, what: str) -> T:
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED

        asked = asyncio.create_task(question)
        try:
            await asyncio.wait({asked}, timeout=seconds)
        finally:
            late = asked.cancel()  # True without an answer, also if we are cancelled
        if late:
            await self.close()  # guard: its further changes would be recorded for another call
            raise self._refusal(f"{what} took longer than {seconds:g} s, so the server was ended")
        error = asked.exception()
        if error is None:
            return asked.result()
        if not isinstance(error, MCPError):
            raise self._refusal(f"{what} failed: {_said(error)}")
        if error.code != CONNECTION_CLOSED and self.usable:
            raise self._refusal(f"{what} failed: {error.message}")
        await self.close()  # until then more output about it may arrive
        raise self._refusal(f"the server ended during {what}")

    async def _serve(self) -> None:
        """Run the connection from start to end, in one task."""
        import anyio
        from mcp import Client
        from mcp_types import Implementation

        self._scope = scope = anyio.CancelScope(deadline=anyio.current_time() + self._patience.start_seconds)
        with scope:
            async with Client(
                self._streams(),
                client_info=Implementation(name="cleveragents", version=__version__),
                cache=None,
            ) as client:
                scope.deadline = math.inf
                self._opened.set_result(client)
                await self._leave.wait()
        if scope.cancelled_caught:
            raise self._refusal(f"the server was not ready within {self._patience.start_seconds:g} s")

    @asynccontextmanager
    async def _streams(self) -> AsyncIterator[TransportStreams]:
        import anyio

        server = filled(self._permit, os.environ, self._place.secrets)
        if server.url:
            async with http_streams(server, self._patience.call_seconds, self._faults) as streams:
                yield streams
            return
        self._process = StdioProcess(program_for(server, self._place))
        try:
            async with stdio_streams(self._process, self._faults) as streams:
                yield streams
        finally:
            with anyio.CancelScope(
                shield=True
            ):  # guard: a caller that gives up must not leave a process behind
                await self._process.end()

    @property
    def _hint(self) -> str:
        server = self._server
        if self._process is None or not self._process.isolated or not server.own:
            return ""
        return "; the server runs isolated; add it with `isolated`: false if it needs more access"

    def _refusal(self, what: str) -> ToolRefused:
        said = ""
        if self._process is not None:
            report = self._process.report
            if report is not None and report["refused"] not in (None, NOT_EXECUTED):
                what = f"the server cannot be run: {report['refused']}"
            # Many programs report errors on the wrong stream.
            printed = "" if self._opened.done() else redact_text(self._faults.printed)[-_PRINTED:]
            complaint = self._process.complaint or printed
            said = f"; its output: {complaint}" if complaint else ""
        fault = f"; {self._faults.found}" if self._faults.found else ""
        return ToolRefused(self._who, redact_text(f"{what[:_SAID]}{fault}{said}"))


def _start_failure(error: BaseException) -> str:
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED

    first = _first(error)
    if isinstance(first, MCPError) and first.code == CONNECTION_CLOSED:
        return "the server ended before it was ready"
    return f"the server cannot be used: {_said(first)}"


def _said(error: BaseException) -> str:
    first = _first(error)
    lines = str(first).splitlines()
    return f"{type(first).__name__}: {lines[0]}" if lines else type(first).__name__


def _first(error: BaseException) -> BaseException:
    """Return the first error of a group: the library raises nested groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def filled(permit: ServerPermit, variables: Mapping[str, str], secrets: KnownSecrets) -> McpServer:
    """Return the permitted server with all variables filled in; possible secrets are added to `secrets`.

    Raises `ToolRefused` with the names of unset variables.
    """
    server = permit.server
    missing: list[str] = []

    def value(match: re.Match[str]) -> str:
        name, otherwise = match.group(1), match.group(2)
        # guard: our variables include the token of our own server
        found = None if name.startswith(OWN_PREFIX) else variables.get(name)
        if not found and otherwise is not None:
            return otherwise
        if found is None:
            missing.append(name)
            return ""
        if name not in _NO_SECRETS and not name.startswith("XDG_"):
            secrets.add(found)
        return found

    def fill(text: str) -> str:
        return VARIABLE.sub(value, text)

    made = replace(
        server,
        command=tuple(fill(word) for word in server.command),
        environment=_filled(server.environment, fill),
        directory=fill(server.directory),
        url=fill(server.url),
        headers=_filled(server.headers, fill),
    )
    if missing:
        names = ", ".join(dict.fromkeys(missing))
        reason = f"{server.source} needs the environment variable {names}; set it and try again"
        raise ToolRefused(f"MCP server {server.name}", reason)
    for name, text in (*made.environment.items(), *made.headers.items()):
        # guard: a repository must not choose which text is masked where a person approves it
        if server.own and redact({name: text}) == {name: MASK}:
            secrets.add(text)
            secrets.add(text.rpartition(" ")[2])  # without the scheme: `Bearer …`
    return made


def _filled(texts: Mapping[str, str], fill: Callable[[str], str]) -> Mapping[str, str]:
    return MappingProxyType({name: fill(text) for name, text in texts.items()})


@asynccontextmanager
async def stdio_streams(process: StdioProcess, faults: ProtocolFaults) -> AsyncIterator[TransportStreams]:
    """Yield the message streams of the process, while it lives and follows the protocol."""
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
    reader: asyncio.StreamReader,
    heard: MemoryObjectSendStream[SessionMessage | Exception],
    faults: ProtocolFaults,
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
        heard.close()  # otherwise the caller would wait forever for an answer


@asynccontextmanager
async def http_streams(
    server: McpServer, seconds: float, faults: ProtocolFaults
) -> AsyncIterator[TransportStreams]:
    """Yield the message streams of a server behind a URL; redirects are not followed, and messages are
    limited in size.
    """
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    async def bound(response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.DecodingError("the server sent an unexpected compressed answer")
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


def _bounded(
    stream: httpx2.AsyncByteStream, faults: ProtocolFaults, *, events: bool
) -> httpx2.AsyncByteStream:
    """Pass the bytes through until a message is too long. A message is the whole body, or one event of it."""
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for piece in stream:
                end = max(piece.rfind(b"\n\n"), piece.rfind(b"\n\r\n")) if events else -1
                size = len(piece) - end if end >= 0 else size + len(piece)
                if size > MESSAGE_BYTES:  # guard: bounds memory for any input
                    faults.found = "the server sent a message that is too long"
                    raise httpx2.RemoteProtocolError(faults.found)
                yield piece

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()
