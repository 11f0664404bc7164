"""One session with one agent on its own loop: started, prompted, and always ended.

`agent_program` builds the agent's command with the variables and files that its node grants. `LineTransport`
carries the protocol's messages as lines on the agent's socket. This transport limits the output of the agent,
skips lines that are not messages without printing them, and drops messages that would break the library. The
library's own stream reader does none of this.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from cleveragents import __version__
from cleveragents.actors.external.acp.handler import AcpHandler
from cleveragents.actors.external.acp.updates import SessionBounds
from cleveragents.actors.ports import AgentClient, AgentOutcome, AgentRequest
from cleveragents.core.errors import Cancelled, InvalidToolCall, OutsideSandbox, ToolRefused
from cleveragents.core.json_value import is_deeper
from cleveragents.core.text.redaction import redact_text
from cleveragents.processes.guard import NOT_EXECUTED
from cleveragents.processes.guard_protocol import GuardProgram
from cleveragents.processes.passthrough import make_directory, mask_for, remove_directory, shown_by
from cleveragents.processes.ports import Command, CommandHome, StopSignal
from cleveragents.processes.program_lookup import check_command
from cleveragents.processes.stdio_process import (
    ProgramEnvironment,
    ProtocolFaults,
    StdioProcess,
    bubblewrap_for,
    next_message,
    stdio_program,
)

__all__ = ["AcpSession", "LineTransport", "agent_program", "message_in"]


if TYPE_CHECKING:
    from acp.connection import Connection
    from pydantic import BaseModel

    M = TypeVar("M", bound=BaseModel)

T = TypeVar("T")
_VERSION = 1
_LOOK_SECONDS = 0.05
_SAID = 500
_PRINTED = 300
_DEEPEST = 100


@dataclass(eq=False)
class _Broken(Exception):
    """The session cannot continue. Reported after the agent has ended, when its error output is complete."""

    what: str


class AcpSession:
    """A session with one agent. Not thread-safe: only its loop uses it."""

    def __init__(
        self, request: AgentRequest, client: AgentClient, place: ProgramEnvironment, bounds: SessionBounds
    ) -> None:
        self._request = request
        self._client = client
        self._place = place
        self._bounds = bounds
        self._faults = ProtocolFaults()
        # guard: secrets passed to the agent are masked in its output
        self._mask = mask_for(request.environment, os.environ, place.secrets)
        self._process: StdioProcess | None = None

    async def run(self, stop: StopSignal) -> AgentOutcome:
        """Run the session, as `Agents.run`. When this returns, the agent has ended."""
        workers = self._bounds.requests + self._bounds.terminals
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(workers, thread_name_prefix="acp"))
        self._process = StdioProcess(agent_program(self._request, self._place), self._mask)
        try:
            return await self._talked(self._process, stop)
        except _Broken as broken:
            await self._process.end()
            raise self._refusal(broken.what) from None
        finally:
            await self._process.end()  # guard: the agent's processes end in every case

    async def _talked(self, process: StdioProcess, stop: StopSignal) -> AgentOutcome:
        from acp.connection import Connection

        over: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

        def end(error: BaseException) -> None:
            if not over.done():
                over.set_result(error)

        answering = AcpHandler(self._client, self._bounds, self._faults, end, self._mask)
        transport = LineTransport(*await process.streams(), self._faults, self._bounds)
        connection = Connection(answering, transport)
        try:
            return await self._led(connection, answering, over, stop)
        finally:
            answering.terminals.close()
            answering.updates.finish()
            await connection.close()

    async def _led(
        self,
        connection: Connection,
        answering: AcpHandler,
        over: asyncio.Future[BaseException],
        stop: StopSignal,
    ) -> AgentOutcome:
        """Run the agent's turn until it ends or is stopped."""
        talk = asyncio.create_task(self._turn(connection, answering))
        told = asyncio.create_task(_told_to_stop(stop))
        try:
            waiting: set[asyncio.Future[Any]] = {talk, told, over}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if talk.done() and not over.done():
                return talk.result()
            await self._cancel(connection, answering, talk)
            raise over.result() if over.done() else Cancelled(stop.reason)
        finally:
            for task in (talk, told):
                task.cancel()
            await asyncio.wait({talk, told})
            if not talk.cancelled():
                talk.exception()  # already raised, or caused by the stop

    async def _turn(self, connection: Connection, answering: AcpHandler) -> AgentOutcome:
        from acp import schema

        capabilities = schema.ClientCapabilities(
            fs=schema.FileSystemCapabilities(read_text_file=True, write_text_file=True), terminal=True
        )
        hello = schema.InitializeRequest(
            protocol_version=_VERSION,
            client_capabilities=capabilities,
            client_info=schema.Implementation(name="cleveragents", version=__version__),
        )
        begin = schema.NewSessionRequest(cwd=str(self._client.directory), mcp_servers=[])
        try:
            async with asyncio.timeout(self._bounds.start_seconds):
                about = await self._asked(connection, "initialize", hello, schema.InitializeResponse)
                if about.protocol_version != _VERSION:
                    version = about.protocol_version
                    raise _Broken(
                        f"the agent speaks protocol version {version}; version {_VERSION} is required"
                    )
                session = await self._asked(connection, "session/new", begin, schema.NewSessionResponse)
        except TimeoutError:
            raise _Broken(f"the agent was not ready within {self._bounds.start_seconds:g} s") from None
        answering.session_id = session.session_id
        prompt = schema.PromptRequest(
            session_id=session.session_id,
            prompt=[schema.TextContentBlock(type="text", text=self._request.prompt)],
        )
        ended = await self._asked(connection, "session/prompt", prompt, schema.PromptResponse)
        return AgentOutcome(ended.stop_reason, answering.updates.text)

    async def _asked(self, connection: Connection, method: str, params: BaseModel, answer: type[M]) -> M:
        from acp import RequestError
        from acp.utils import request_model
        from pydantic import ValidationError

        try:
            return await request_model(connection, method, params, answer)
        except RequestError as error:
            said = f"{self._mask.text(str(error))[:_SAID]}{_details(self._mask.value(error.data))}"
            raise _Broken(f"{method} failed: {said}") from None
        except ValidationError:
            raise _Broken(f"the agent's response to {method} is invalid") from None
        except ConnectionError:
            raise _Broken(f"the agent exited before it answered {method}") from None

    async def _cancel(
        self, connection: Connection, answering: AcpHandler, talk: asyncio.Task[AgentOutcome]
    ) -> None:
        """Ask the agent to cancel, and wait a moment for its turn to end."""
        from acp.schema import CancelNotification
        from acp.utils import notify_model

        answering.terminals.close()
        if answering.session_id is None:
            return
        say = notify_model(connection, "session/cancel", CancelNotification(session_id=answering.session_id))
        telling = asyncio.create_task(_quiet(say))
        await asyncio.wait({telling}, timeout=self._bounds.cancel_seconds)
        await asyncio.wait({talk}, timeout=self._bounds.cancel_seconds)
        telling.cancel()
        await asyncio.wait({telling})

    def _refusal(self, what: str) -> ToolRefused:
        process, name = self._process, self._request.name
        assert process is not None
        report = process.report
        if report is not None and report["refused"] not in (None, NOT_EXECUTED):
            what = f"the agent cannot be started: {report['refused']}"
        elif report is not None and report["cause"] == "processes":
            what = f"the agent was stopped: it exceeded its limit of {self._request.processes} processes"
        elif self._faults.found:
            what = f"the agent was stopped: {self._faults.found}"
        complaint = process.complaint or redact_text(self._mask.text(self._faults.printed))[-_PRINTED:]
        said = f"; its output: {complaint}" if complaint else ""
        return ToolRefused(name, redact_text(f"{what[: 2 * _SAID]}{said}"))


async def _told_to_stop(stop: StopSignal) -> None:
    while not stop.is_cancelled:
        await asyncio.sleep(_LOOK_SECONDS)


async def _quiet(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except ConnectionError:
        return  # the agent is gone, as intended


def _details(data: Any) -> str:
    """Return the details that many agents add to an error."""
    if isinstance(data, dict) and isinstance(data.get("details"), str):
        return f" ({data['details'][:_SAID]})"
    return ""


def agent_program(request: AgentRequest, place: ProgramEnvironment) -> GuardProgram:
    """Return the program for the guard to run.

    Raises `ToolRefused` if it does not exist or cannot be isolated as required. The caller must remove the
    program's directory `private`.
    """
    bubblewrap = bubblewrap_for(place, request.name)
    command = Command(
        argv=request.argv,
        root=place.root,
        directory=place.directory,
        network=request.network,
        readable=(*place.readable, *shown_by(request.argv)),
        passed=request.environment,
        home=CommandHome(request.home),
        processes=request.processes,
        network_denied=place.network_denied,
    )
    private = make_directory()
    try:
        check_command(command)
        return stdio_program(command, place, private, bubblewrap)
    except (ToolRefused, InvalidToolCall, OutsideSandbox) as error:
        remove_directory(str(private))
        reason = error.reason if isinstance(error, ToolRefused) else str(error)
        remedy = f"; {request.install}" if request.install else ""
        raise ToolRefused(request.name, f"{reason}{remedy}") from error


class LineTransport:
    """The `acp` transport. Not thread-safe: only the session's loop uses it."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        faults: ProtocolFaults,
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
        """Send a message. Raises `ConnectionError` if the agent is gone."""
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        async with self._sending:
            self._writer.write(line)
            await self._writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None at the end of the stream, or after the agent exceeded a limit."""
        # Buffered messages arrive without waiting, and the tasks that answer them need a turn.
        await asyncio.sleep(0)
        return await next_message(self._reader, self._parsed, self._faults)

    async def close(self) -> None:
        """Do nothing: the owner of the process ends it."""

    def _parsed(self, line: bytes) -> dict[str, Any]:
        self._messages += 1
        self._bytes += len(line)
        if self._messages > self._bounds.messages or self._bytes > self._bounds.bytes_:  # guard: a bound
            self._faults.found = "it sent too much output"
        return message_in(line)


def message_in(line: bytes) -> dict[str, Any]:
    """Parse a request, a response or a notification. Raises `ValueError` for anything else."""
    try:
        message = json.loads(line)
    except RecursionError:
        raise ValueError("the message is nested too deeply") from None
    if is_deeper(message, _DEEPEST):  # guard: later code recurses into it
        raise ValueError("the message is nested too deeply")
    if not isinstance(message, dict):
        raise ValueError("the message is not an object")
    if "method" in message:
        fits = isinstance(message["method"], str)
    else:
        fits = "id" in message and isinstance(message.get("error") or {}, dict)
    if not fits or not isinstance(message.get("id"), int | str | None):
        raise ValueError("the line is not a message")
    return message
