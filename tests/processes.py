"""Processes started by a test: their pids arrive through a named pipe."""

from __future__ import annotations

import os
import select
import time
from contextlib import suppress
from pathlib import Path

import psutil

from tests.fork_server import is_nursery

__all__ = ["PidPipe", "children", "lives", "wait_gone"]


class PidPipe:
    """A named pipe into which processes write their pids, a line each."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "pids"
        os.mkfifo(self.path)
        # Open for both, so that it never ends while writers come and go.
        self._descriptor = os.open(self.path, os.O_RDWR)
        self._buffer = b""

    def read(self, count: int, *, timeout: float = 100.0) -> list[int]:
        """Return the next pids, as soon as this many have arrived."""
        deadline = time.monotonic() + timeout
        while self._buffer.count(b"\n") < count:
            ready, _, _ = select.select([self._descriptor], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"only {self._buffer!r} came within {timeout} s"
            self._buffer += os.read(self._descriptor, 4096)
        *lines, rest = self._buffer.split(b"\n")
        self._buffer = b"\n".join([*lines[count:], rest])
        return [int(line) for line in lines[:count]]

    def close(self) -> None:
        os.close(self._descriptor)


def children(*, recursive: bool = False) -> list[psutil.Process]:
    """Return child processes, except a database server and a nursery shared with other tests."""
    found = psutil.Process().children(recursive=recursive)
    ours = [child for child in found if not is_nursery(child.pid)]
    return [child for child in ours if child.is_running() and child.name() != "postgres"]


def lives(pid: int) -> bool:
    """Return whether the process is running."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_gone(pids: list[int], *, timeout: float = 100.0) -> list[int]:
    """Return the survivors after the time limit; empty as soon as there are none."""
    deadline = time.monotonic() + timeout
    left = [pid for pid in pids if lives(pid)]
    while left and time.monotonic() < deadline:
        for pid in left:
            with suppress(psutil.Error):  # it may end between two checks
                psutil.Process(pid).wait(0.1)
        left = [pid for pid in left if lives(pid)]
    return left
