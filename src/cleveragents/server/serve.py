"""The server process: it listens, announces its address and stops in order.

This module binds the socket, not uvicorn. So a port in use raises an ordinary error, and for port 0 the
actual port is known before the address is announced.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import uvicorn

from cleveragents.api.format import counted, timestamp
from cleveragents.core.errors import ConfigurationError, PortTaken, Remedy
from cleveragents.server.app import create_app
from cleveragents.server.connections import ServingConfig
from cleveragents.server.first_token import any_token_exists
from cleveragents.server.middleware.origin import is_loopback
from cleveragents.server.server_file import announced, running_server
from cleveragents.server.service import Service
from cleveragents.server.webhook import webhook_notifications

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.app.worker_parts import SharedWorker

__all__ = ["DRAIN_SECONDS", "ensure_guarded", "listening", "places_of", "remedy_of", "serve", "url_of"]

DRAIN_SECONDS = 60.0
"""Default time in seconds for running jobs to end after a stop."""

_LOOK_SECONDS = 0.1
_BACKLOG = 512
_INTERRUPTED = 130


def ensure_guarded(container: Container) -> None:
    """Raise `ConfigurationError` if the server would be open to the network while no user has a token."""
    host = container.settings.server.host
    if not is_loopback(host) and not any_token_exists(container):  # guard: never open to a network
        remedies = (
            Remedy("user.add", options={"role": "admin", "name": None}, text="Add a user"),
            Remedy("user.token", options={"name": None}, text="Issue a token to the user"),
            Remedy("serve", options={"token_file": None}, text="Read a token from a file"),
        )
        problem = f"{host} is open to the network, but no user has a token yet"
        raise ConfigurationError("server.host", problem, remedies)


@contextmanager
def listening(host: str, port: int, state_directory: Path | None = None) -> Iterator[socket.socket]:
    """Yield a listening socket, closed afterwards.

    Raises `PortTaken` if another program or the server of this state directory has the port, and
    `ConfigurationError` if the host is invalid.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ConfigurationError(
            "server.host", f"{host} is not an address of this machine: {error}"
        ) from error
    with socket.socket(family, kind, protocol) as opened:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            opened.bind(address)
            opened.listen(_BACKLOG)
        except OSError as error:
            itself = _runs_there(state_directory, port) if error.errno == errno.EADDRINUSE else None
            taken = error.errno == errno.EADDRINUSE and itself is None
            other = Remedy("serve", options={"port": 0}, text="Use a free port")
            remedies = (other,) if taken else ()
            raise PortTaken(_place(host, port), itself or remedy_of(error), remedies) from error
        yield opened


def _runs_there(state_directory: Path | None, port: int) -> str | None:
    """Return a message if the server of this state directory has the port."""
    other = None if state_directory is None else running_server(state_directory)
    if other is None or urlsplit(other.url).port != port:
        return None
    return f"the server of this state directory already runs at {other.url} (pid {other.pid})"


def url_of(host: str, listens: socket.socket) -> str:
    """Return the URL for a browser on this machine."""
    if _is_everywhere(listens):
        host = "::1" if listens.family == socket.AF_INET6 else "127.0.0.1"
    return f"http://{_place(host, listens.getsockname()[1])}"


def places_of(host: str, listens: socket.socket) -> str:
    """Return the listening addresses as text."""
    others = " and all other addresses of this machine" if _is_everywhere(listens) else ""
    return f"{url_of(host, listens)}{others}"


def _is_everywhere(listens: socket.socket) -> bool:
    """Return whether the socket listens on all addresses of this machine."""
    return ipaddress.ip_address(listens.getsockname()[0].partition("%")[0]).is_unspecified


def serve(
    container: Container,
    listens: socket.socket,
    *,
    plans_at_once: int,
    say: Callable[[str], None],
    drain_seconds: float = DRAIN_SECONDS,
) -> int:
    """Serve until stopped, and return the exit code. Call it on the main thread.

    The server runs up to `plans_at_once` plans itself. On a stop, these plans have `drain_seconds` to end;
    unfinished plans are then requeued. Raises `EngineUnavailable`, `ConfigurationError`.
    """
    service = Service(container)
    url = url_of(container.settings.server.host, listens)
    _quieten()
    config = ServingConfig(create_app(service), container.settings.server)
    with ExitStack() as stack:
        server = _Server(config, service, say, drain_seconds)
        stack.enter_context(server.signals())
        server.worker = _worker(container, plans_at_once)
        if server.worker is not None:
            stack.enter_context(server.worker)
        started = timestamp(container.clock.now())
        if stack.enter_context(announced(container.state_directory, url, started)):
            stack.enter_context(webhook_notifications(container, url))
        else:
            other = running_server(container.state_directory)
            say(f"commands still use the server at {other.url if other else 'another address'}")
        if not is_loopback(container.settings.server.host):
            say("warning: http is not encrypted; use a reverse proxy with https")
        say(f"listening on {places_of(container.settings.server.host, listens)} (Ctrl-C to stop)")
        server.run(sockets=[listens])
    return _INTERRUPTED if server.interrupted else 0


def _worker(container: Container, plans_at_once: int) -> SharedWorker | None:
    if not plans_at_once:
        return None
    from cleveragents.app.worker_parts import WorkerParts

    name = f"server-{socket.gethostname()}-{os.getpid()}"
    return WorkerParts(container).start(name=name, concurrency=plans_at_once)


class _Server(uvicorn.Server):
    """Stops in order: refuse new requests and jobs, end streams, wait for the rest.

    Not thread-safe: use it on the main thread.
    """

    def __init__(
        self, config: uvicorn.Config, service: Service, say: Callable[[str], None], drain_seconds: float
    ) -> None:
        super().__init__(config)
        self._service = service
        self._say = say
        self._drain_seconds = drain_seconds
        self.worker: SharedWorker | None = None
        self.interrupted = False

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Stop on Ctrl-C and SIGTERM. A second Ctrl-C stops without waiting."""
        numbers = (signal.SIGINT, signal.SIGTERM)
        handlers = {number: signal.signal(number, self._on_signal) for number in numbers}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing, because our own handlers are installed. (uvicorn's handlers would raise the signals
        again at the end.)
        """
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._say(self._farewell())
        self._service.stopping.begin()
        draining = asyncio.create_task(asyncio.to_thread(self._drain))
        await super().shutdown(sockets)
        while not draining.done():
            if self.force_exit and self.worker is not None:
                await asyncio.to_thread(self.worker.close)
            await asyncio.wait([draining], timeout=_LOOK_SECONDS)

    def _drain(self) -> None:
        if self.worker is not None:
            self.worker.drain(self._drain_seconds)

    def _farewell(self) -> str:
        running = 0 if self.worker is None else self.worker.running
        if not running:
            return "stopping …"
        left = f"waiting up to {self._drain_seconds:g} s for {counted(running, 'job')}, then requeuing"
        return f"stopping: {left} (Ctrl-C again to stop now)"

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.should_exit:
            self.force_exit = self.force_exit or number == signal.SIGINT
        else:
            self.interrupted = number == signal.SIGINT
            self.should_exit = True


def _quieten() -> None:
    # uvicorn's output is not redacted. Requests and failures are in our own log.
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers = [logging.NullHandler()]
        logger.propagate = False


def _place(host: str, port: int) -> str:
    host = host.strip("[]")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def remedy_of(error: OSError) -> str:
    """Return a remedy for an address that cannot be used."""
    if error.errno == errno.EADDRINUSE:
        return "another program uses this port"
    if error.errno == errno.EACCES:
        return "ports below 1024 are reserved; use a higher port behind a reverse proxy"
    if error.errno == errno.EADDRNOTAVAIL:
        return "not an address of this machine; use 127.0.0.1 or one that `ip address` lists"
    return error.strerror or str(error)
