"""Changing the user's `mcp.json`: never half-written, readable by its owner only, two at once lose nothing.

What is in the file besides our servers stays as it is. The new content is complete and valid before anything
is touched; it goes to a file beside the old one, to the disk, and then takes its name.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cleveragents.config.document import read_bounded
from cleveragents.core.errors import ConfigurationError, StoreBusy, StoreFull
from cleveragents.tools.mcp.configuration import SECTION, parse_object, parse_servers

__all__ = ["add_server", "remove_server"]

_LOCK_SECONDS = 10.0
_LOCK_PAUSE_SECONDS = 0.01


def add_server(path: Path, name: str, entry: Mapping[str, object], *, replace: bool = False) -> None:
    """Puts the entry in. `ConfigurationError` if it is wrong, or there is one of that name already."""

    def added(servers: dict[str, object]) -> dict[str, object]:
        if name in servers and not replace:  # guard: nobody's server is lost by a slip
            problem = f"there is a server {name!r} already; remove it first, or replace it"
            raise ConfigurationError(str(path), problem)
        return {**servers, name: dict(entry)}

    _edit(path, added)


def remove_server(path: Path, name: str) -> None:
    """Takes it out. `ConfigurationError` if there is none."""

    def without(servers: dict[str, object]) -> dict[str, object]:
        if name not in servers:
            known = ", ".join(servers) or "none"
            raise ConfigurationError(str(path), f"there is no server {name!r} (there are: {known})")
        return {other: entry for other, entry in servers.items() if other != name}

    _edit(path, without)


def _edit(path: Path, change: Callable[[dict[str, object]], dict[str, object]]) -> None:
    target = path.resolve()  # a link into somebody's collection of dotfiles stays a link
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _turn(target.parent / ".mcp.lock"):
            document = parse_object(read_bounded(target) or "{}", str(path))
            servers = document.get(SECTION, {})
            if not isinstance(servers, dict):
                raise ConfigurationError(str(path), f'"{SECTION}" must be an object of servers by name')
            text = json.dumps({**document, SECTION: change(servers)}, indent=2, ensure_ascii=False) + "\n"
            parse_servers(text, str(path), own=True)  # guard: nothing is written that cannot be read again
            _replace(target, text.encode())
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(str(path)) from None
        raise ConfigurationError(str(path), f"cannot be written: {error.strerror}") from None


@contextmanager
def _turn(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    give_up = time.monotonic() + _LOCK_SECONDS
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= give_up:
                    raise StoreBusy(_LOCK_SECONDS) from None
            time.sleep(_LOCK_PAUSE_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, content: bytes) -> None:
    # One name for all: the lock is held, so whatever bears it was left by an editor that was killed.
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
