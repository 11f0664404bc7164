"""Event streams: their latency by number of clients, and their cost compared with bare writing.

    python -m benchmarks.bench_streams

prints every result once, in three minutes at most; `asv run` stores the first two. The server and the clients
are separate processes; a third one writes the events, ten per transaction. The floor is a bare asyncio server
that writes ready frames of the same size to the same number of sockets at the same rate. If the writer or the
server does not reach a rate, this is reported, and no higher rate is tried.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import re
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from cleveragents.core.event import DomainEvent
    from cleveragents.storage.database import Database

SECONDS = 5.0
RUNG_SECONDS = 3.0
LADDER_SECONDS = 150.0
GRACE_SECONDS = 3.0
BATCH = 10
LIMIT_SECONDS = 0.25
_MARK = b'"at":'
_AT = re.compile(rb'"at":([0-9.]+)[^0-9.]')
_START = 1.0
_BEGINS_SECONDS = 60.0

Serving = Callable[[socket.socket, str, Connection], None]


@dataclass(frozen=True)
class Measured:
    """The results of one run: the events each client received, the delay of the oldest event of each chunk,
    and the CPU time of the server.

    `fewest` is the smallest number of events, out of `total`, that any client received in time.
    """

    total: int
    fewest: int
    seconds: float
    median_seconds: float
    p99_seconds: float
    server_cpu_seconds: float

    @property
    def complete(self) -> bool:
        return self.fewest == self.total

    def sentence(self) -> str:
        if not self.complete:
            return f"not reached: {self.fewest:,} of {self.total:,} events arrived in {self.seconds:.1f} s"
        return f"p99 {self.p99_seconds * 1000:,.0f} ms, CPU {self.server_cpu_seconds / self.seconds:.2f}"


class Count:
    """A counter of the events that a client received, however they were split into chunks, and the time of
    the oldest.
    """

    def __init__(self) -> None:
        self.events = 0
        self._rest = b""

    def take(self, chunk: bytes) -> float | None:
        text = self._rest + chunk
        self.events += text.count(_MARK)
        self._rest = text[-len(_MARK) + 1 :]  # too short to be counted again
        oldest = _AT.search(text)
        return float(oldest.group(1)) if oldest else None


class Streams:
    """1,000 events per second for 100 clients."""

    timeout = 600

    def track_p99_milliseconds(self) -> float:
        return measure(_serve_ours, clients=100, rate=1000).p99_seconds * 1000

    def track_cpu_ratio(self) -> float:
        """CPU time of the server compared with bare writing; ours includes everything after the commit."""
        return cpu_ratio(100, 1000)

    track_p99_milliseconds.unit = "ms"
    track_cpu_ratio.unit = "ratio"


def cpu_ratio(clients: int, rate: int) -> float:
    ours = measure(_serve_ours, clients, rate)
    floor = measure(_serve_bare, clients, rate)
    assert ours.complete
    assert floor.complete
    return ours.server_cpu_seconds / floor.server_cpu_seconds


def measure(serving: Serving, clients: int, rate: int, seconds: float = SECONDS) -> Measured:
    """Run server, writer and clients once, for `seconds` and a few more at most."""
    context = multiprocessing.get_context("spawn")
    total = int(rate * seconds) // BATCH * BATCH
    with TemporaryDirectory() as directory, socket.create_server(("127.0.0.1", 0), backlog=1024) as listens:
        here, there = context.Pipe()
        server = context.Process(target=serving, args=(listens, directory, there))
        server.start()
        token = here.recv()
        ours, theirs = context.Pipe()
        address = listens.getsockname()
        crowd = context.Process(target=_crowd, args=(address, token, clients, (total, seconds), theirs))
        crowd.start()
        assert ours.recv() == "connected"
        used = psutil.Process(server.pid).cpu_times()
        here.send((rate, total))
        fewest, took, late = ours.recv()
        after = psutil.Process(server.pid).cpu_times()
        here.send(None)
        crowd.join(30)
        server.join(30)
        if server.is_alive():
            server.kill()
    late.sort()
    cpu = after.user + after.system - used.user - used.system
    return Measured(total, fewest, took, late[len(late) // 2], late[int(len(late) * 0.99)], cpu)


# The server under test, with all its middleware, on SQLite; the writer is another process, as plans are.


def _serve_ours(listens: socket.socket, directory: str, control: Connection) -> None:
    import logging
    import threading

    import structlog
    import uvicorn

    from cleveragents.access.model.user import Role, TokenKind
    from cleveragents.app.container import Container
    from cleveragents.config.loader import load_configuration
    from cleveragents.server.app import create_app
    from cleveragents.server.service import Service

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    environment = {"HOME": directory, "CLEVERAGENTS_STATE_DIRECTORY": directory}
    with Container(load_configuration(environment, Path(directory), []).settings) as container:
        now = container.clock.now()
        container.users.add("bench", Role.VIEWER, now=now)
        _, token = container.users.issue("bench", TokenKind.PROGRAM, "bench", now=now)
        service = Service(container)
        server = uvicorn.Server(uvicorn.Config(create_app(service), log_config=None, lifespan="off"))
        thread = threading.Thread(target=lambda: server.run(sockets=[listens]))
        thread.start()
        control.send(token)
        rate, total = control.recv()
        context = multiprocessing.get_context("spawn")
        writer = context.Process(target=_write_events, args=(directory, rate, total))
        writer.start()
        control.recv()
        writer.kill()  # done, or too slow
        writer.join(30)
        server.should_exit = True
        server.force_exit = True
        service.stopping.begin()
        thread.join(10)


def _write_events(directory: str, rate: int, total: int) -> None:
    from cleveragents.app.container import Container
    from cleveragents.config.loader import load_configuration
    from cleveragents.core.event import DomainEvent, EventType

    environment = {"HOME": directory, "CLEVERAGENTS_STATE_DIRECTORY": directory}
    with Container(load_configuration(environment, Path(directory), []).settings) as container:
        container.database.read().__enter__()
        began = time.monotonic() + _START
        for first in range(0, total, BATCH):
            time.sleep(max(0.0, began + first / rate - time.monotonic()))
            now, at = container.clock.now(), time.monotonic()
            events = [
                DomainEvent(
                    EventType.PLAN_MOVED,
                    "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1C",
                    container.identifiers.new(),
                    now,
                    {"at": at, "phase": "execute", "state": "processing", "was": "execute/queued"},
                )
                for _ in range(BATCH)
            ]
            _keep(container.database, events)


def _keep(database: Database, events: list[DomainEvent]) -> None:
    from cleveragents.storage.outbox import append_many_to_outbox

    database.write(lambda connection: append_many_to_outbox(connection, events))


# The floor.


def _serve_bare(listens: socket.socket, directory: str, control: Connection) -> None:
    control.send("")
    asyncio.run(_bare(listens, control))


async def _bare(listens: socket.socket, control: Connection) -> None:
    writers: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nid: 0\n\n")
        writers.append(writer)

    server = await asyncio.start_server(accept, sock=listens)
    rate, total = await asyncio.to_thread(control.recv)
    began = time.monotonic() + _START
    frame = b'id: 1\nevent: plan.moved\ndata: {"at":%.6f, "padding": "' + b"x" * 320 + b'"}\n\n'
    for first in range(0, total, BATCH):
        await asyncio.sleep(max(0.0, began + first / rate - time.monotonic()))
        ready = frame % time.monotonic() * BATCH
        for writer in writers:
            writer.write(ready)
    await asyncio.to_thread(control.recv)
    server.close()


# The clients.


def _crowd(address: Any, token: str, clients: int, wanted: tuple[int, float], report: Connection) -> None:
    asyncio.run(_read_all(address, token, clients, wanted, report))


async def _read_all(
    address: Any, token: str, clients: int, wanted: tuple[int, float], report: Connection
) -> None:
    total, seconds = wanted
    late: list[float] = []
    counts: list[Count] = []
    began: list[float] = []
    limit = asyncio.timeout(_BEGINS_SECONDS)

    async def read() -> None:
        reader, writer = await asyncio.open_connection(*address, limit=1 << 20)
        said = f"GET /api/events/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
        writer.write(said.encode())
        await reader.readuntil(b"id: ")
        count = Count()
        counts.append(count)
        if len(counts) == clients:
            report.send("connected")
        while count.events < total and (chunk := await reader.read(1 << 18)):
            oldest = count.take(chunk)
            if oldest is not None:
                late.append(time.monotonic() - oldest)
            if not began and count.events:
                began.append(time.monotonic())
                limit.reschedule(asyncio.get_running_loop().time() + seconds + GRACE_SECONDS)
        writer.close()

    with suppress(TimeoutError):
        async with limit:
            await asyncio.gather(*(read() for _ in range(clients)))
    took = time.monotonic() - began[0] if began else _BEGINS_SECONDS
    report.send((min((count.events for count in counts), default=0), took, late or [0.0]))


def _print_all() -> None:
    ours = measure(_serve_ours, 100, 1000)
    floor = measure(_serve_bare, 100, 1000)
    for name, one in (("ours", ours), ("bare", floor)):
        print(
            f"{name}, 1,000 events/s, 100 clients: median {one.median_seconds * 1000:.0f} ms, "
            f"p99 {one.p99_seconds * 1000:.0f} ms, CPU {one.server_cpu_seconds / one.seconds:.2f} of one"
        )
    print(f"CPU / bare writing: {ours.server_cpu_seconds / floor.server_cpu_seconds:.2f}")
    over_at = time.monotonic() + LADDER_SECONDS
    for clients in (10, 100, 300):
        _climb(clients, over_at)


def _climb(clients: int, over_at: float) -> None:
    """Print increasing rates until the events are too late or missing."""
    for rate in (1000, 2000, 4000, 8000, 16000):
        if time.monotonic() > over_at:
            print(f"{clients} clients, {rate:,} events/s: not tried, no time left", flush=True)
            return
        one = measure(_serve_ours, clients, rate, RUNG_SECONDS)
        print(f"{clients} clients, {rate:,} events/s: {one.sentence()}", flush=True)
        if not one.complete or one.p99_seconds > LIMIT_SECONDS:
            return


if __name__ == "__main__":
    _print_all()
