"""Where the server of a state directory answers, for the commands that go through it.

As long as a server lives it holds a lock on the file that says so. A file without a lock was left by one that
was killed: whoever finds it knows, whatever process has its number by now.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["RunningServer", "announced", "running_server", "server_file"]

_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that lives; `started` is as people read it."""

    url: str
    pid: int
    started: str


def server_file(state_directory: Path) -> Path:
    """Where it is said."""
    return state_directory / "server.json"


def running_server(state_directory: Path) -> RunningServer | None:
    """The server on this state that commands go through; None if there is none."""
    try:
        descriptor = os.open(server_file(state_directory), os.O_RDONLY | _FLAGS)
    except OSError:
        return None
    with os.fdopen(descriptor, encoding="utf-8") as file:
        if not _is_held(file.fileno()):  # guard: one that was killed answers nobody
            return None
        said = json.load(file)
    return RunningServer(str(said["url"]), int(said["pid"]), str(said["started"]))


@contextmanager
def announced(state_directory: Path, url: str, started: str) -> Iterator[bool]:
    """Says it while the block runs; yields whether it does: the first server of a state is the one that
    commands go through, and keeps being so while it lives."""
    path = server_file(state_directory)
    draft = path.with_name(".server.json")
    lock = os.open(path.with_name("server.lock"), os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # guard: of two that start at once, one is first
        first = running_server(state_directory) is None
        held = _write(draft, url, started) if first else None
        if first:
            draft.replace(path)
    finally:
        os.close(lock)
    try:
        yield first
    finally:
        if held is not None:
            path.unlink(missing_ok=True)
            os.close(held)


def _write(draft: Path, url: str, started: str) -> int:
    """The descriptor that holds the lock: the file is locked before anybody finds it."""
    draft.unlink(missing_ok=True)  # of one that was killed
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600)
    try:
        os.write(descriptor, json.dumps({"url": url, "pid": os.getpid(), "started": started}).encode())
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _is_held(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
