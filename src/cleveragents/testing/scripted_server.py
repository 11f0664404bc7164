"""A local server that speaks OpenAI's protocol and answers from a script, including scripted faults.

    with ScriptedServer(script) as server:
        … models.base_url = server.base_url …

or `python -m cleveragents.testing.scripted_server SCRIPT --port 0`, which prints its address. It listens only
on the loopback interface, on its own event loop, and counts its connections, so that a test can check that a
cancelled call closed its connection. The script has the same format as for `scripted/…` models; see
docs/reference.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cleveragents.core.errors import CleverAgentsError
from cleveragents.models.script import ScriptRunner
from cleveragents.models.script_document import load_script
from cleveragents.testing.scripted_wire import (
    Exchange,
    HttpRequest,
    NotHttp,
    PromptCache,
    Responder,
    read_request,
)

if TYPE_CHECKING:
    from cleveragents.models.script import Script

__all__ = ["ScriptedServer", "ServerStatistics", "main"]

_START_SECONDS = 30.0
_POLL_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class ServerStatistics:
    """Counts of connections, requests and answers since the start.

    `abandoned` answers are those whose client left early.
    """

    opened: int = 0
    closed: int = 0
    requests: int = 0
    answered: int = 0
    abandoned: int = 0

    @property
    def open(self) -> int:
        return self.opened - self.closed


class ScriptedServer:
    """The server. Use it as a context manager; leaving the block ends it and its thread.

    With `prompt_cache`, it counts input and cached tokens like a provider that caches prompts, instead of the
    tokens of the script.

    Thread safety:
        Owner: the code that made it starts and closes it; any thread may read what it recorded.
        Lock: `_lock` guards the counts and the recorded requests, for arithmetic only.
        Guarantee: every connection is counted once when it opens and once when it is closed.
    Cancel safety: `close` aborts running answers; an aborted connection is counted as closed.
    """

    def __init__(
        self,
        script: Script,
        *,
        port: int = 0,
        latency_seconds: float = 0.0,
        key: str | None = None,
        models: Sequence[str] = ("scripted",),
        prompt_cache: bool = False,
    ) -> None:
        self._scripting = ScriptRunner(script)
        self._wanted_port = port
        self._responder = Responder(
            self._scripting,
            latency_seconds=latency_seconds,
            key=key,
            models=tuple(models),
            cache=PromptCache() if prompt_cache else None,
        )
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(("opened", "closed", "requests", "answered", "abandoned"), 0)
        self._bodies: list[Mapping[str, Any]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._started = threading.Event()
        self._problem: OSError | None = None
        self.port = 0

    @classmethod
    def from_file(cls, path: Path, **options: Any) -> ScriptedServer:
        """Return a server for the script in this file."""
        return cls(load_script(path), **options)

    @property
    def base_url(self) -> str:
        """The base URL for clients: `http://127.0.0.1:PORT/v1`."""
        return f"http://127.0.0.1:{self.port}/v1"

    def statistics(self) -> ServerStatistics:
        """Return the current counts."""
        with self._lock:
            return ServerStatistics(**self._counts)

    def bodies(self) -> list[Mapping[str, Any]]:
        """Return the bodies sent to /v1/chat/completions, in order."""
        with self._lock:
            return list(self._bodies)

    def forget(self) -> None:
        """Reset the script's request count."""
        self._scripting.forget()

    def wait_until(
        self, condition: Callable[[ServerStatistics], bool], timeout_seconds: float = 30.0
    ) -> ServerStatistics:
        """Return the first statistics that satisfy the condition. Raises `TimeoutError` after the timeout."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            statistics = self.statistics()
            if condition(statistics):
                return statistics
            if time.monotonic() > deadline:
                raise TimeoutError(f"still {statistics}")
            time.sleep(_POLL_SECONDS)

    def start(self) -> None:
        """Start listening. Raises `OSError` if the port is taken."""
        thread = threading.Thread(target=self._run, name="scripted-server", daemon=True)
        self._thread = thread
        thread.start()
        if not self._started.wait(_START_SECONDS):
            raise TimeoutError("the server did not start")
        if self._problem is not None:
            thread.join()
            raise self._problem

    def close(self) -> None:
        """Abort open connections and end the thread."""
        loop, stop, thread = self._loop, self._stop, self._thread
        if loop is not None and stop is not None:
            with suppress(RuntimeError):  # it has already ended
                loop.call_soon_threadsafe(stop.set)
        if thread is not None:
            thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ── on the loop ───────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()

        def watched() -> _Watched:
            return _Watched(begin)

        def begin(client: _Client) -> None:
            task = asyncio.ensure_future(self._converse(client))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        try:
            server = await self._loop.create_server(watched, "127.0.0.1", self._wanted_port, backlog=1024)
        except OSError as error:
            self._problem = error
            self._started.set()
            return
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stop.wait()
        server.close()
        for task in [*tasks]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _converse(self, client: _Client) -> None:
        self._count("opened")
        try:
            while True:
                request = await read_request(client.reader)
                if request is None or not await self._answer(request, client):
                    return
        except (NotHttp, ConnectionError):
            return
        finally:
            # Aborted, not closed: a client that still reads must not take it for the end of an answer.
            client.writer.transport.abort()
            self._count("closed")

    async def _answer(self, request: HttpRequest, client: _Client) -> bool:
        """Answer a request; return whether the connection continues. Aborts when the client leaves."""
        with self._lock:
            self._counts["requests"] += 1
            if isinstance(request.body, dict):
                self._bodies.append(request.body)
        exchange = Exchange(client.writer)
        answering = asyncio.ensure_future(self._responder.answer(request, exchange))
        gone = asyncio.ensure_future(client.gone.wait())
        try:
            await asyncio.wait({answering, gone}, return_when=asyncio.FIRST_COMPLETED)
            done = answering.done() and not answering.cancelled() and answering.exception() is None
            whole = done and answering.result()
            self._count("answered" if done else "abandoned")
        finally:
            for task in (answering, gone):
                task.cancel()
            await asyncio.gather(answering, gone, return_exceptions=True)
        if whole and not request.keeps_alive:
            await _finish(client.writer)
        return whole and request.keeps_alive

    def _count(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1


@dataclass(frozen=True, slots=True)
class _Client:
    """One connection; `gone` once the client has closed it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    gone: asyncio.Event


class _Watched(asyncio.StreamReaderProtocol):
    """Streams that detect a closed connection immediately, even if no task reads."""

    def __init__(self, begin: Callable[[_Client], None]) -> None:
        self._gone = asyncio.Event()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            begin(_Client(reader, writer, self._gone))

        super().__init__(asyncio.StreamReader(), connected)

    def eof_received(self) -> bool | None:
        self._gone.set()
        return super().eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._gone.set()
        super().connection_lost(error)


async def _finish(writer: asyncio.StreamWriter) -> None:
    """Return after all buffered bytes are sent."""
    with suppress(ConnectionError):
        writer.close()
        await writer.wait_closed()


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until interrupted or until standard input ends."""
    parser = argparse.ArgumentParser(
        prog="python -m cleveragents.testing.scripted_server",
        description="Serve OpenAI's protocol on the loopback interface from a script.",
    )
    parser.add_argument("script", type=Path)
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0: any free port (default)")
    parser.add_argument(
        "--latency", type=float, default=0.0, metavar="SECONDS", help="delay before every answer"
    )
    options = parser.parse_args(arguments)
    try:
        server = ScriptedServer.from_file(options.script, port=options.port, latency_seconds=options.latency)
    except CleverAgentsError as error:
        parser.error(str(error))
    with server:
        sys.stdout.write(f"{server.base_url}\n")
        sys.stdout.flush()
        with suppress(KeyboardInterrupt):
            sys.stdin.read()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
