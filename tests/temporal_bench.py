"""A Temporal development server for tests, in memory, on its own ports."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from cleveragents.core.errors import EngineUnavailable
from tests.reserved_ports import held_ports

__all__ = ["TemporalServer", "settle_sdk", "temporal_program", "temporal_server"]

_SECONDS = 100.0
# By default a queue has four partitions, and priorities apply within each of them.
_ONE_LINE = [
    *("--dynamic-config-value", "matching.numTaskqueueReadPartitions=1"),
    *("--dynamic-config-value", "matching.numTaskqueueWritePartitions=1"),
]


def temporal_program() -> str | None:
    """Return its path, if it is installed: beside the interpreter, or on the path."""
    beside = Path(sys.executable).parent / "temporal"
    return str(beside) if beside.exists() else shutil.which("temporal")


def settle_sdk() -> None:
    """Make the SDK create its permanent objects once, before descriptors are counted."""
    from temporalio.runtime import Runtime

    Runtime.default()


class TemporalServer:
    """A server on its own address that can be killed and restarted there.

    With a `database` it keeps its state. Leaving the block ends it.
    """

    def __init__(self, database: Path | None = None) -> None:
        self._stack = ExitStack()
        self._ports = self._stack.enter_context(held_ports(3))
        self._kept = [] if database is None else ["--db-filename", str(database)]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._stack.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._ports[0]}"

    def start(self) -> None:
        """Start the server; return when it answers."""
        program = temporal_program()
        assert program is not None
        port, web, metrics = map(str, self._ports)
        words = ["server", "start-dev", "--headless", "--ip", "127.0.0.1", "--log-level", "error"]
        ports = ["--port", port, "--http-port", web, "--metrics-port", metrics]
        quiet = subprocess.DEVNULL
        command = [program, *words, *ports, *_ONE_LINE, *self._kept]
        self._process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
        _wait_until_it_answers(self.address, self._process)

    def kill(self) -> None:
        """Kill it, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextmanager
def temporal_server() -> Iterator[str]:
    """Run a server and yield its address."""
    with TemporalServer() as server:
        server.start()
        yield server.address


def _wait_until_it_answers(address: str, server: subprocess.Popen[bytes]) -> None:
    """Wait until the server is healthy: an open socket is not enough."""
    from cleveragents.contrib.temporal.connection import TemporalConnection
    from cleveragents.contrib.temporal.worker import ensure_namespace

    deadline = time.monotonic() + _SECONDS
    connection = TemporalConnection(address, "default", lease_seconds=1)
    try:
        while True:
            assert server.poll() is None, "the Temporal server did not start"
            try:
                return connection.run(ensure_namespace)
            except EngineUnavailable:
                assert time.monotonic() < deadline, "the Temporal server does not answer"
                time.sleep(0.05)
    finally:
        connection.close()
