"""A Temporal server of one's own, for tests: the development server, in memory, on ports of its own."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cleveragents.errors import EngineUnavailable

__all__ = ["settle_sdk", "temporal_program", "temporal_server"]

_SECONDS = 60.0
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
    """Has the SDK make what it keeps as long as the process lives, once: a pair of sockets for signals. So
    whoever counts descriptors begins with it."""
    from temporalio.runtime import Runtime, TelemetryConfig

    Runtime(telemetry=TelemetryConfig())


@contextmanager
def temporal_server() -> Iterator[str]:
    """The address of a server that answers; it is gone afterwards."""
    program = temporal_program()
    assert program is not None
    port, web, metrics = _free_ports(3)
    address = f"127.0.0.1:{port}"
    words = ["server", "start-dev", "--headless", "--ip", "127.0.0.1", "--log-level", "error"]
    ports = ["--port", str(port), "--http-port", str(web), "--metrics-port", str(metrics)]
    quiet = subprocess.DEVNULL
    server = subprocess.Popen([program, *words, *ports, *_ONE_LINE], stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        _wait_until_it_answers(address, server)
        yield address
    finally:
        server.kill()
        server.wait()


def _wait_until_it_answers(address: str, server: subprocess.Popen[bytes]) -> None:
    """An open socket is not enough: for a while it says there that it is not healthy yet."""
    from cleveragents.infrastructure.jobs.temporal.connection import TemporalConnection
    from cleveragents.infrastructure.jobs.temporal.worker import ensure_namespace

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


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
