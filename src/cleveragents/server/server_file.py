"""The file that announces the address of a state directory's server to commands.

A live server holds a lock on its file. A file without a lock is stale, because its server was killed. A pid
would not show this, because another process may have the same pid by now.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct

__all__ = ["RunningServer", "announced", "running_server", "server_file"]

_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW


class RunningServer(Struct, frozen=True):
    """A running server. `started` is a timestamp as text."""

    url: str
    pid: int
    started: str


def server_file(state_directory: Path) -> Path:
    """Return the path of the file that announces the server of a state directory."""
    return state_directory / "server.json"


def running_server(state_directory: Path) -> RunningServer | None:
    """Return the announced server of this state directory, or None."""
    try:
        descriptor = os.open(server_file(state_directory), os.O_RDONLY | _FLAGS)
    except OSError:
        return None
    with os.fdopen(descriptor, encoding="utf-8") as file:
        if not _is_held(file.fileno()):  # guard: a killed server does not respond
            return None
        said = json.load(file)
    return RunningServer(str(said["url"]), int(said["pid"]), str(said["started"]))


@contextmanager
def announced(state_directory: Path, url: str, started: str) -> Iterator[bool]:
    """Announce the server while the block runs; yield whether it is announced.

    If several servers use a state directory, only the first is announced, as long as it lives.
    """
    path = server_file(state_directory)
    with ExitStack() as holding:
        lock = os.open(path.with_name("server.lock"), os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)
        with os.fdopen(lock):
            fcntl.flock(lock, fcntl.LOCK_EX)  # guard: of two servers that start at once, one is first
            first = running_server(state_directory) is None
            if first:
                _write(holding, path, json.dumps({"url": url, "pid": os.getpid(), "started": started}))
        yield first


def _write(holding: ExitStack, path: Path, text: str) -> None:
    """Write and lock the file before it is visible. It is removed when `holding` ends."""
    draft = path.with_name(".server.json")
    draft.unlink(missing_ok=True)  # left by a killed server
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600)
    file = holding.enter_context(os.fdopen(descriptor, "w", encoding="utf-8"))
    file.write(text)
    file.flush()
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    draft.replace(path)
    holding.callback(path.unlink, missing_ok=True)


def _is_held(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
