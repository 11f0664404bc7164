"""Answers to an agent's requests. Each request is validated and carried out on a thread; a failure is an
answer, too.

Errors that end the session, such as a missing approval, are passed to the session instead.

A terminal is one recorded command on a thread. It is created immediately, and its command waits for its turn,
because calls in a sandbox run one after the other. The agent can read its output, wait for it and kill it, as
the protocol defines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from cleveragents.actors.external.acp.updates import SessionBounds, Updates
from cleveragents.actors.ports import AgentClient, TerminalCommand
from cleveragents.core.cancellation import CancellationToken
from cleveragents.core.errors import ToolRefused
from cleveragents.processes.passthrough import NO_SECRETS, SecretMask
from cleveragents.processes.stdio_process import ProtocolFaults

if TYPE_CHECKING:
    from acp.schema import (
        CreateTerminalRequest,
        PermissionOption,
        ReadTextFileRequest,
        RequestPermissionRequest,
        TerminalExitStatus,
        TerminalOutputResponse,
        WaitForTerminalExitResponse,
        WriteTextFileRequest,
    )
    from pydantic import BaseModel

__all__ = ["AcpHandler", "Terminals", "consume_error", "permission_response"]


T = TypeVar("T")
_FAILED = -32603
_MEANT = {True: ("allow_once", "allow_always"), False: ("reject_once", "reject_always")}

_MOST_BYTES = 1 << 20
_CANNOT_RUN = 126


class AcpHandler:
    """The `acp` handler for messages from the agent.

    `session_id` is set once the session exists; `end` receives the error that ends it. Not thread-safe: only
    the session's loop uses it.
    """

    def __init__(
        self,
        client: AgentClient,
        bounds: SessionBounds,
        faults: ProtocolFaults,
        end: Callable[[BaseException], None],
        mask: SecretMask = NO_SECRETS,
    ) -> None:
        from acp import schema

        self._client = client
        self._bounds = bounds
        self._faults = faults
        self._end = end
        self._under_way = 0
        self._filing: asyncio.Task[None] | None = None
        self._order = asyncio.Lock()
        self.session_id: str | None = None
        self.updates = Updates(client.told, self._did, bounds.shown, mask)
        self.terminals = Terminals(client, self._in_thread, bounds.terminals)
        named = Callable[[Any], Awaitable[Any]]
        self._methods: dict[str, tuple[type[BaseModel], named]] = {
            "fs/read_text_file": (schema.ReadTextFileRequest, self._read),
            "fs/write_text_file": (schema.WriteTextFileRequest, self._write),
            "session/request_permission": (schema.RequestPermissionRequest, self._permit),
            "terminal/create": (schema.CreateTerminalRequest, self._create_terminal),
            "terminal/output": (schema.TerminalOutputRequest, self._look_at_terminal),
            "terminal/wait_for_exit": (schema.WaitForTerminalExitRequest, self._wait_for_terminal),
            "terminal/kill": (schema.KillTerminalRequest, self._kill_terminal),
            "terminal/release": (schema.ReleaseTerminalRequest, self._release_terminal),
        }

    async def __call__(self, method: str, params: Any, is_notification: bool) -> Any:
        """Answer a request. Raises `RequestError` if it fails."""
        from acp import RequestError

        if is_notification:
            self._notified(method, params)
            return None
        if method not in self._methods:
            raise RequestError.method_not_found(method)
        if self._under_way >= self._bounds.requests:  # guard: each holds a thread
            raise RequestError(_FAILED, "too many concurrent requests; wait for some answers")
        model, answer = self._methods[method]
        asked = self._checked(model, params)
        self._under_way += 1
        try:
            return await self._answered(answer(asked))
        finally:
            self._under_way -= 1

    def _notified(self, method: str, params: Any) -> None:
        from acp.schema import SessionNotification
        from pydantic import ValidationError

        if method != "session/update":
            return
        try:
            told = SessionNotification.model_validate(params)
        except ValidationError:
            self._faults.pass_over(str(params).encode("utf-8", "replace"))
            return
        self.updates.take(told.update)

    def _checked(self, model: type[BaseModel], params: Any) -> Any:
        from acp import RequestError
        from pydantic import ValidationError

        try:
            asked = model.model_validate(params)
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, found['loc']))}: {found['msg']}" for found in error.errors()[:4]]
            raise RequestError.invalid_params({"details": "; ".join(problems)}) from None
        if getattr(asked, "session_id", None) != self.session_id:  # guard: only this session exists
            raise RequestError.invalid_params({"details": "there is no such session"})
        return asked

    async def _answered(self, work: Awaitable[Any]) -> Any:
        from acp import RequestError

        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
        error = task.exception()
        if error is None:
            return task.result()
        if isinstance(error, ToolRefused):
            raise RequestError(_FAILED, str(error))
        self._end(error)
        raise RequestError(_FAILED, "the session is ending")

    async def _read(self, asked: ReadTextFileRequest) -> Any:
        from acp.schema import ReadTextFileResponse

        read = partial(self._client.read, asked.path, asked.line, asked.limit)
        return ReadTextFileResponse(content=await self._in_turn(read))

    async def _write(self, asked: WriteTextFileRequest) -> Mapping[str, Any]:
        await self._in_turn(partial(self._client.write, asked.path, asked.content))
        return {}

    async def _permit(self, asked: RequestPermissionRequest) -> Any:
        wanted = self.updates.wanted(asked.tool_call)
        allowed = await self._in_thread(partial(self._client.permit, wanted))
        return permission_response(asked.options, allowed)

    async def _create_terminal(self, asked: CreateTerminalRequest) -> Any:
        from acp.schema import CreateTerminalResponse

        return CreateTerminalResponse(terminal_id=self.terminals.create(asked))

    async def _look_at_terminal(self, asked: Any) -> Any:
        return self.terminals.output(asked.terminal_id)

    async def _wait_for_terminal(self, asked: Any) -> Any:
        return await self.terminals.wait(asked.terminal_id)

    async def _kill_terminal(self, asked: Any) -> Mapping[str, Any]:
        self.terminals.kill(asked.terminal_id)
        return {}

    async def _release_terminal(self, asked: Any) -> Mapping[str, Any]:
        self.terminals.release(asked.terminal_id)
        return {}

    def _did(self, what: str) -> None:
        """Record changes that the agent made itself, one recording at a time.

        Changes that are reported meanwhile become part of the next recording.
        """
        if self._filing is None or self._filing.done():
            self._filing = asyncio.create_task(self._file(what))
            self._filing.add_done_callback(consume_error)

    async def _file(self, what: str) -> None:
        await self._in_thread(partial(self._client.did, what))

    async def _in_turn(self, work: Callable[[], T]) -> T:
        """Run `work` on a thread after all earlier requests.

        An agent may send requests without waiting for answers, and its last write must win. Raises
        `ToolRefused` if the turn does not come in time.
        """
        try:
            async with asyncio.timeout(self._bounds.turn_seconds):
                await self._order.acquire()  # guard: threads would take their turns in any order
        except TimeoutError:
            reason = "an earlier request is still running; wait for it, or kill it"
            raise ToolRefused("acp", reason) from None
        try:
            return await self._in_thread(work)
        finally:
            self._order.release()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run `work` on a thread and return its result.

        An error that must end the session ends it even if the result is not awaited.
        """
        call = asyncio.get_running_loop().run_in_executor(None, partial(copy_context().run, work))
        call.add_done_callback(self._look_at)
        return await call

    def _look_at(self, call: asyncio.Future[Any]) -> None:
        if call.cancelled():
            return
        error = call.exception()
        if error is not None and not isinstance(error, ToolRefused):
            self._end(error)


def permission_response(options: list[PermissionOption], allowed: bool) -> Any:
    """Return a response that selects the option for `allowed`, preferably the one-time variant, or
    `cancelled` if there is no such option.
    """
    from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse

    for kind in _MEANT[allowed]:
        for option in options:
            if option.kind == kind:
                outcome = AllowedOutcome(outcome="selected", option_id=option.option_id)
                return RequestPermissionResponse(outcome=outcome)
    return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))


class Terminals:
    """The terminals of one session. Not thread-safe: only the session's loop uses it."""

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
        """Create a terminal and return its name. Raises `ToolRefused` if there are too many."""
        if len(self._open) >= self._most:  # guard: each is a thread
            raise ToolRefused("terminal", f"all {self._most} terminals are in use; release one")
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
        terminal.task.add_done_callback(consume_error)
        return name

    def output(self, name: str) -> TerminalOutputResponse:
        """Return the output so far."""
        from acp.schema import TerminalOutputResponse

        terminal = self._found(name)
        return TerminalOutputResponse(
            output=terminal.text, truncated=terminal.truncated, exit_status=terminal.status()
        )

    async def wait(self, name: str) -> WaitForTerminalExitResponse:
        """Wait for the command to end and return its exit status."""
        from acp.schema import WaitForTerminalExitResponse

        terminal = self._found(name)
        assert terminal.task is not None
        await asyncio.wait({terminal.task})
        status = terminal.status()
        if status is None:
            raise ToolRefused("terminal", "the session is ending")
        return WaitForTerminalExitResponse(exit_code=status.exit_code, signal=status.signal)

    def kill(self, name: str) -> None:
        """Stop the command; its output remains available."""
        self._found(name).ended.cancel("killed by the agent")

    def release(self, name: str) -> None:
        """Stop the command and forget the terminal."""
        self.kill(name)
        del self._open[name]

    def close(self) -> None:
        """Stop all commands without waiting for them."""
        for terminal in self._open.values():
            terminal.ended.cancel("the session has ended")

    def _found(self, name: str) -> _Terminal:
        terminal = self._open.get(name)
        if terminal is None:
            raise ToolRefused("terminal", f"there is no terminal {name!r}")
        return terminal


class _Terminal:
    """One command and the end of its output."""

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
            kept = kept.lstrip(bytes(range(0x80, 0xC0)))  # the rest of a truncated character
        return kept.decode("utf-8", "replace")

    def status(self) -> TerminalExitStatus | None:
        """Return the exit status; None while the command runs."""
        from acp.schema import TerminalExitStatus

        if not self._has_ended:
            return None
        if self._code is None:
            return TerminalExitStatus(signal="SIGTERM")
        return TerminalExitStatus(exit_code=self._code)


def consume_error(task: asyncio.Task[None]) -> None:
    """Mark a task's error as retrieved, so that asyncio does not log it. Errors that end the session were
    already passed to the session.
    """
    if not task.cancelled():
        task.exception()
