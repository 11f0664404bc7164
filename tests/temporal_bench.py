"""A Temporal server of one's own, for tests: the development server, in memory, on ports of its own."""

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
from tests.held_ports import held_ports

__all__ = ["TemporalServer", "settle_sdk", "temporal_program", "temporal_server"]

_SECONDS = 100.0
# A queue is in four partitions otherwise, and priorities hold in each of them.
_ONE_LINE = [
    *("--dynamic-config-value", "matching.numTaskqueueReadPartitions=1"),
    *("--dynamic-config-value", "matching.numTaskqueueWritePartitions=1"),
]


def temporal_program() -> str | None:
    """Where it is, if it is installed: beside the interpreter, or on the path."""
    beside = Path(sys.executable).parent / "temporal"
    return str(beside) if beside.exists() else shutil.which("temporal")


def settle_sdk() -> None:
    """Has the SDK make what it keeps as long as the process lives, once. So whoever counts descriptors begins
    with it."""
    from temporalio.runtime import Runtime

    Runtime.default()


class TemporalServer:
    """A server on an address of its own, that can be killed and begun again there. It remembers what it was
    told if it has a `database`. Leaving its block ends it."""

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
        """Returns when it answers."""
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
        """Ends it without a word, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextmanager
def temporal_server() -> Iterator[str]:
    """The address of a server that answers; it is gone afterwards."""
    with TemporalServer() as server:
        server.start()
        yield server.address


def _wait_until_it_answers(address: str, server: subprocess.Popen[bytes]) -> None:
    """An open socket is not enough: for a while it says there that it is not healthy yet."""
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
