"""One server while it is connected: opened, asked, closed, all on the loop that owns it.

The library's client must be left by the task that entered it, so each connection has a task of its own, which
waits inside until it is told to leave. Whatever goes wrong becomes a `ToolRefused` that says what happened,
without anything that the server's configuration holds.

Fills the variables of a server's entry in, and keeps what they held out of everything that is printed.

A value that a variable gave is taken for a secret, unless the variable is one of the few that every user has;
so is one whose name says so in a file of the user's own. It is added to the known secrets, and masked
wherever this process redacts: in logs, errors, events and in what a tool answers.

What the MCP library talks through, both ways: messages as lines on a server's socket, or over HTTP.

The library has a stdio transport of its own. This one is here because ours has to bound what a server sends,
to pass over what is no message without printing it, and to leave the process to our guard.
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
from cleveragents.tools.mcp.tool_list import CallResult, ListedTool, call_result, listed

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
    """How long a server may take: to start (a first start may have to fetch it), to list its tools, to
    answer a call; and, told to leave, until it is made to."""

    start_seconds: float = 60.0
    list_seconds: float = 30.0
    call_seconds: float = 300.0
    leave_seconds: float = 10.0


class ServerConnection:
    """A started server. Not thread-safe: the loop on which it was made uses it."""

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
        """Whether another call may be made; it ends by itself, too."""
        if self._leave.is_set() or self._task is None or self._task.done():
            return False
        return not self._faults.found and not (self._process is not None and self._process.over.is_set())

    async def open(self) -> None:
        """`ToolRefused` if it cannot be started or does not speak MCP; then nothing of it is left."""
        self._task = asyncio.create_task(self._serve(), name=self._who)
        waiting: set[asyncio.Future[Any]] = {self._task, self._opened}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if self._opened.done():
            return
        error = self._task.exception()
        if isinstance(error, ToolRefused):
            raise error
        said = "it cannot be used" if error is None else _start_failure(error)
        raise self._refusal(said + self._hint)

    async def tools(self) -> tuple[ListedTool, ...]:
        """All that it offers. `ToolRefused`."""
        client, seconds = self._opened.result(), self._patience.list_seconds
        found: list[ListedTool] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):  # guard: a list whose pages never end is cut
            page = await self._answer(client.list_tools(cursor=cursor), seconds, "listing its tools")
            found += [listed(tool) for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None or len(found) >= _MOST_TOOLS:  # guard: no server fills the memory
                break
        return tuple(found[:_MOST_TOOLS])

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> CallResult:
        """What it answered. `ToolRefused`; after one that took too long the server is no longer usable,
        because it may still be at it."""
        client, seconds = self._opened.result(), self._patience.call_seconds
        answer = client.call_tool(tool, dict(arguments))
        return call_result(await self._answer(answer, seconds, f"the call of {tool!r}"))

    async def close(self) -> None:
        """Nothing of it is left afterwards. Twice is harmless."""
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
            self._task.exception()  # was told to whoever asked, or came of leaving

    async def _answer(self, question: Coroutine[Any, Any, T], seconds: float, what: str) -> T:
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED

        asked = asyncio.create_task(question)
        try:
            await asyncio.wait({asked}, timeout=seconds)
        finally:
            late = asked.cancel()  # True if there is no answer yet, also when we are cancelled ourselves
        if late:
            await self.close()  # guard: what it still does would be recorded as another call's doing
            raise self._refusal(f"{what} took longer than {seconds:g} s, so it was ended")
        error = asked.exception()
        if error is None:
            return asked.result()
        if not isinstance(error, MCPError):
            raise self._refusal(f"{what} failed: {_said(error)}")
        if error.code != CONNECTION_CLOSED and self.usable:
            raise self._refusal(f"{what} failed: {error.message}")
        await self.close()  # until then it may have more to say about it
        raise self._refusal(f"it ended during {what}")

    async def _serve(self) -> None:
        """The connection's life, in one task."""
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
            raise self._refusal(f"it did not get ready within {self._patience.start_seconds:g} s")

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
            with anyio.CancelScope(shield=True):  # guard: whoever gives up leaves no process behind
                await self._process.end()

    @property
    def _hint(self) -> str:
        server = self._server
        if self._process is None or not self._process.isolated or not server.own:
            return ""
        return "; it runs isolated: replace it with one that is not isolated if it needs more"

    def _refusal(self, what: str) -> ToolRefused:
        said = ""
        if self._process is not None:
            report = self._process.report
            if report is not None and report["refused"] not in (None, NOT_EXECUTED):
                what = f"it cannot be run: {report['refused']}"
            # Many programs tell of a mistake on the wrong stream.
            printed = "" if self._opened.done() else redact_text(self._faults.printed)[-_PRINTED:]
            complaint = self._process.complaint or printed
            said = f"; it said: {complaint}" if complaint else ""
        fault = f"; {self._faults.found}" if self._faults.found else ""
        return ToolRefused(self._who, redact_text(f"{what[:_SAID]}{fault}{said}"))


def _start_failure(error: BaseException) -> str:
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED

    first = _first(error)
    if isinstance(first, MCPError) and first.code == CONNECTION_CLOSED:
        return "it ended before it was ready"
    return f"it cannot be used: {_said(first)}"


def _said(error: BaseException) -> str:
    first = _first(error)
    lines = str(first).splitlines()
    return f"{type(first).__name__}: {lines[0]}" if lines else type(first).__name__


def _first(error: BaseException) -> BaseException:
    """Of a group of errors: the library raises groups within groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def filled(permit: ServerPermit, variables: Mapping[str, str], secrets: KnownSecrets) -> McpServer:
    """The permitted server with every variable's value in place; those that may be secret are added to
    `secrets`. `ToolRefused` names each that is not set."""
    server = permit.server
    missing: list[str] = []

    def value(match: re.Match[str]) -> str:
        name, otherwise = match.group(1), match.group(2)
        # guard: the token that opens our own server is among ours
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
        reason = f"{server.source} needs {names}, which the environment does not have; set it and try again"
        raise ToolRefused(f"MCP server {server.name}", reason)
    for name, text in (*made.environment.items(), *made.headers.items()):
        # guard: a repository does not choose which text is masked where a person approves it
        if server.own and redact({name: text}) == {name: MASK}:
            secrets.add(text)
            secrets.add(text.rpartition(" ")[2])  # without the scheme: `Bearer …`
    return made


def _filled(texts: Mapping[str, str], fill: Callable[[str], str]) -> Mapping[str, str]:
    return MappingProxyType({name: fill(text) for name, text in texts.items()})


@asynccontextmanager
async def stdio_streams(process: StdioProcess, faults: ProtocolFaults) -> AsyncIterator[TransportStreams]:
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
        heard.close()  # or whoever waits for an answer would wait for ever


@asynccontextmanager
async def http_streams(
    server: McpServer, seconds: float, faults: ProtocolFaults
) -> AsyncIterator[TransportStreams]:
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


def _bounded(
    stream: httpx2.AsyncByteStream, faults: ProtocolFaults, *, events: bool
) -> httpx2.AsyncByteStream:
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
