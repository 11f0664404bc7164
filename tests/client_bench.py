"""A listening server that can be restarted, and command lines of a remote user."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cleveragents.access.model.project import ResourceKind
from tests.cli_bench import paint_shop
from tests.conditions import wait_until
from tests.fork_server import Forked
from tests.reserved_ports import held_ports
from tests.server_bench import server_bench
from tests.unisolated import ALLOW_UNISOLATED

__all__ = ["Cutting", "Served", "interrupt", "served"]

SECONDS_LIMIT = 100.0
_QUICK = {
    "CLEVERAGENTS_WORKER_POLL_SECONDS": "0.05",
    "CLEVERAGENTS_WORKER_CANCEL_GRACE_SECONDS": "1.0",
    "CLEVERAGENTS_MODELS_RETRIES": "0",
}


@dataclass
class Served:
    """A server process and a worker process, the users' tokens, and the home of a remote user."""

    state: Path
    repository: Path
    home: Path
    tokens: Mapping[str, str]
    port: int
    options: tuple[str, ...] = ()
    """Options of `agents` for the next start of the server."""
    _server: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start at the previous address, if there is one; return when the server answers."""
        words = (*self.options, "serve", "--workers", "0", "--port", str(self.port))
        self._server = self.process(*words, on_server=True, output=subprocess.DEVNULL)
        server = self._server

        def answers() -> bool:
            assert server.poll() is None, "it has ended"
            return self._answers()

        wait_until(answers, what="an answer", seconds=SECONDS_LIMIT)

    def stop(self, number: int = signal.SIGKILL) -> None:
        """Stop abruptly, as a fault does, by default."""
        if self._server is not None:
            self._server.send_signal(number)
            self._server.wait(SECONDS_LIMIT)
            self._server = None

    def token(self, user: str) -> str:
        return self.tokens[user]

    def environment(self, *, on_server: bool = False) -> dict[str, str]:
        """Return the environment of the remote user, or of the user on the server's machine."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CLEVER", "XDG_"))}
        state = self.state if on_server else self.home / "state"
        if on_server:
            # Coverage of the server comes from one in the tests' own process; this one is killed.
            kept.pop("COVERAGE_PROCESS_CONFIG", None)
        kept |= ALLOW_UNISOLATED
        return {**kept, **_QUICK, "HOME": str(self.home), "CLEVERAGENTS_STATE_DIRECTORY": str(state)}

    def process(
        self, *arguments: str, on_server: bool = False, output: int = subprocess.PIPE
    ) -> subprocess.Popen[str]:
        """Start a command in the repository."""
        return Forked(
            [sys.executable, "-m", "cleveragents", *arguments],
            cwd=self.repository,
            env=self.environment(on_server=on_server),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            text=True,
        )

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    @contextmanager
    def begun(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Start a command that is killed at the end if it is still running."""
        process = self.process(*arguments)
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            process.communicate()


class Cutting:
    """A proxy that drops the answers to the first POSTs: they are executed, but the client gets no answer."""

    def __init__(self, port: int, cuts: int) -> None:
        self._target = port
        self.cuts = cuts
        self._listens = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listens.getsockname()[1]
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        with suppress(OSError):
            self._listens.shutdown(socket.SHUT_RDWR)
        self._listens.close()
        for thread in self._threads:
            thread.join(SECONDS_LIMIT)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                client, _ = self._listens.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._carry, args=(client,))
            self._threads.append(thread)
            thread.start()

    def _carry(self, client: socket.socket) -> None:
        """Forward one request at a time, as an HTTP/1.1 client sends them."""
        with client, socket.create_connection(("127.0.0.1", self._target)) as server:
            client.settimeout(0.2)
            server.settimeout(0.2)
            posted = False
            while not self._over.is_set():
                asked = _received(client)
                if asked == b"":
                    return
                if asked:
                    posted = posted or asked.startswith(b"POST")
                    server.sendall(asked)
                answer = _received(server)
                if answer == b"":
                    return
                if answer and posted and self.cuts:
                    self.cuts -= 1
                    return
                if answer:
                    posted = False
                    client.sendall(answer)


def _received(connection: socket.socket) -> bytes | None:
    """Return the received data; empty at the end, None if there is none yet."""
    try:
        return connection.recv(65536)
    except TimeoutError:
        return None
    except OSError:
        return b""


@contextmanager
def served(directory: Path) -> Iterator[Served]:
    """Run the server in this empty directory, and a worker; `shop` of the project `team` is its resource."""
    home, state = directory / "elsewhere", directory / "state"
    home.mkdir()
    repository = paint_shop(directory / "shop")
    with server_bench(directory) as bench:
        tokens = dict(bench.tokens)
        now, projects = bench.container.clock.now(), bench.container.projects
        bench.project("team")
        projects.add_resource("shop", "team", ResourceKind.DIRECTORY, str(repository), now=now)
    with held_ports() as [port]:
        made = Served(state, repository, home, tokens, port)
        worker = made.process(
            "worker", "--concurrency", "4", "--drain-seconds", "0", on_server=True, output=subprocess.DEVNULL
        )
        try:
            made.start()
            yield made
        finally:
            made.stop()
            worker.send_signal(signal.SIGTERM)
            worker.wait(SECONDS_LIMIT)


def interrupt(process: subprocess.Popen[str]) -> None:
    """Interrupt the process like Ctrl-C."""
    os.kill(process.pid, signal.SIGINT)
