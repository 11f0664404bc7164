"""Streams without a server: a log in memory, connections that are cut at any byte, a client that resumes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

from starlette.types import ASGIApp

from cleveragents.core.errors import StoreBusy

__all__ = ["Connection", "MemoryLog", "Reader", "parsed"]

SECONDS = 120.0


class MemoryLog:
    """A `Source` of numbered frames. `before_read` and `after_read` are called around each read."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.kept: list[bytes] = []
        self.printed: dict[str, list[tuple[int, bytes]]] = {}
        self.listeners: list[Callable[[], None]] = []
        self.before_read: Callable[[], None] = lambda: None
        self.after_read: Callable[[], None] = lambda: None
        self.broken = False

    def append(self, count: int = 1) -> None:
        """Append this many events."""
        with self.lock:
            for _ in range(count):
                number = len(self.kept) + 1
                self.kept.append(b"id: %d\nevent: e\ndata: %d\n\n" % (number, number))
        for listener in list(self.listeners):
            listener()

    def print(self, plan_id: str, count: int = 1) -> None:
        """Append this many pieces of output."""
        with self.lock:
            pieces = self.printed.setdefault(plan_id, [])
            for _ in range(count):
                number = len(pieces) + 1
                pieces.append((number, b"event: output\ndata: %s-%d\n\n" % (plan_id.encode(), number)))

    def on_commit(self, wake: Callable[[], None]) -> Callable[[], None]:
        self.listeners.append(wake)
        return lambda: self.listeners.remove(wake)

    def end(self) -> int:
        if self.broken:
            raise StoreBusy(1.0)
        return len(self.kept)

    def bring_up(self) -> None:
        """Give every event its position immediately."""

    def frames(self, after: int) -> Sequence[bytes]:
        self.before_read()
        with self.lock:
            found = self.kept[after : after + 500]
        self.after_read()
        return found

    def last_output(self, plan_id: str) -> int:
        return len(self.printed.get(plan_id, ()))

    def output(self, plan_id: str, after: int) -> Sequence[tuple[int, bytes]]:
        with self.lock:
            return self.printed.get(plan_id, [])[after : after + 500]


class Connection:
    """One request to a streaming application: a send blocks until its data is read."""

    def __init__(self, app: ASGIApp) -> None:
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue(1)
        self._gone = asyncio.Event()
        self.sent = 0
        self.task = asyncio.create_task(self._run(app))

    async def read(self) -> bytes | None:
        """Return the next chunk; None at the end of the stream."""
        return await asyncio.wait_for(self._chunks.get(), SECONDS)

    async def cut(self) -> None:
        """Disconnect the client; return when the server is done with it."""
        self._gone.set()
        while not self.task.done():
            while not self._chunks.empty():
                self._chunks.get_nowait()
            await asyncio.sleep(0)
        await self.task

    async def _run(self, app: ASGIApp) -> None:
        await app({"type": "http"}, self._receive, self._send)
        if not self._gone.is_set():
            await self._chunks.put(None)

    async def _receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.body" and message["body"] and not self._gone.is_set():
            self.sent += 1
            await self._chunks.put(message["body"])


class Reader:
    """A client like a browser: it takes complete frames, and resumes with the last id it has seen."""

    def __init__(self, last: int | None) -> None:
        self.last = last
        self.seen: list[int] = []
        self.other: list[str] = []
        self._rest = b""

    def opened(self) -> None:
        """Open a new connection: an incomplete frame of the previous one is dropped."""
        self._rest = b""

    def take(self, chunk: bytes) -> None:
        *frames, self._rest = (self._rest + chunk).split(b"\n\n")
        for frame in frames:
            fields = parsed(frame)
            if "id" in fields:
                self.last = int(fields["id"])
                if "data" in fields and fields.get("event") != "reset":
                    self.seen.append(self.last)
            if fields.get("event") in ("output", "reset"):
                self.other.append(fields["data"])


def parsed(frame: bytes) -> dict[str, str]:
    """Return the fields of one frame, without comments."""
    lines = [line.split(": ", 1) for line in frame.decode().split("\n")]
    return {line[0]: line[1] for line in lines if len(line) == 2 and line[0]}
