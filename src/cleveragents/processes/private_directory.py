"""The directory that stands for a command's home and temporary files where nothing hides the real ones.

Its name says who made it: a process of this machine that is dead cannot miss it.
"""

from __future__ import annotations

import re
import tempfile
import zlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.storage.files.paths import remove_all

if TYPE_CHECKING:
    from cleveragents.core.worker_identity import WorkerIdentity

__all__ = ["PREFIX", "make_directory", "owner_lives", "owner_prefix", "remove_directory"]

PREFIX = "cleveragents-command-"
"""So begin the names of all of them."""

_OWNED = re.compile(re.escape(PREFIX) + r"(?P<pid>\d+)\.(?P<ticks>\d+)\.(?P<host>[0-9a-f]{8})-")


def make_directory() -> Path:
    """A new one, with `home` and `tmp` in it, readable by its owner only."""
    directory = Path(tempfile.mkdtemp(prefix=owner_prefix()))
    (directory / "home").mkdir(mode=0o700)
    (directory / "tmp").mkdir(mode=0o700)
    return directory


def owner_prefix() -> str:
    """The beginning of a name that says which process made it."""
    me = _me()
    return f"{PREFIX}{me.pid}.{me.started_ticks}.{_short(me.host)}-"


def owner_lives(directory: Path) -> bool | None:
    """Whether the process that made it runs; None where its name does not say who that is, or where that is
    another machine's, or this one's from before it was started, to say, or hidden from us."""
    from cleveragents.processes.process_identity import is_alive

    named, me = _OWNED.match(directory.name), _me()
    if named is None or named["host"] != _short(me.host):
        return None
    owner = replace(me, pid=int(named["pid"]), started_ticks=int(named["ticks"]))
    try:
        return is_alive(owner)
    except PermissionError:  # another user's, where /proc is mounted with hidepid
        return None


def remove_directory(directory: str) -> None:
    """Takes it away, read-only directories (some package caches are) included. Twice is harmless."""
    with suppress(OSError):  # a process that is being killed may still write there
        remove_all(Path(directory))


def _me() -> WorkerIdentity:
    # Imported here, because the guard removes directories and makes none.
    from cleveragents.processes.process_identity import own_identity

    return own_identity("")


def _short(host: str) -> str:
    return f"{zlib.crc32(host.encode()):08x}"
