"""A copy of a state directory that is whole, made while others go on working.

The head of the audit log is copied before the database: a log that has grown since its head was written is
what a crash leaves, and goes on; one that is shorter than its head says would be a log that was cut off. Then
comes the database, in one snapshot, and last the sandboxes, where the work is that nobody applied yet: a
sandbox that the database names was there before.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from cleveragents.core.errors import ConfigurationError
from cleveragents.storage.files.file_copy import copy_content
from cleveragents.storage.files.paths import remove_all

__all__ = ["Backup", "back_up"]

_SECRETS = ("anchor.key", "audit.head", "audit.key", "home", "server-token")
_SQLITE = "sqlite:///"


@dataclass(frozen=True, slots=True)
class Backup:
    """What was copied. `database` is None for one that is kept elsewhere. `left_out` names what could not be
    copied, by its path below the state directory."""

    directory: Path
    database: Path | None
    sandboxes: int
    left_out: tuple[str, ...]


def back_up(state: Path, database_url: str, target: Path, told: Callable[[str], None]) -> Backup:
    """A copy of `state` in `target`, which is made; until it is whole it has another name, and what is there
    of an earlier attempt is replaced. `ConfigurationError` if `target` exists, or lies in `state`."""
    target = target.absolute()
    if os.path.lexists(target):  # guard: no earlier backup is lost
        raise ConfigurationError(str(target), "exists; name a directory that does not")
    if target.resolve().is_relative_to(state.resolve()):
        raise ConfigurationError(str(target), f"lies in {state}, of which it would be a copy")
    growing = target.with_name(f"{target.name}.partial")
    remove_all(growing)
    growing.mkdir(mode=0o700, parents=True)
    for name in _SECRETS:
        with suppress(FileNotFoundError):
            shutil.copy2(state / name, growing / name)
    left_out = _copy_tree(state, growing, "audit")
    database = None
    if database_url.startswith(_SQLITE):
        told("copying the database")
        database = growing / "state.db"
        _copy_database(Path(database_url.removeprefix(_SQLITE)), database)
    told("copying the sandboxes")
    left_out += _copy_tree(state, growing, "sandboxes")
    left_out += _copy_tree(state, growing, "logs")
    growing.rename(target)
    kept = target / "sandboxes"
    count = sum(1 for _ in kept.iterdir()) if kept.is_dir() else 0
    copied = None if database is None else target / database.name
    return Backup(target, copied, count, tuple(sorted(left_out)))


def _copy_database(source: Path, target: Path) -> None:
    """One snapshot of it, whoever writes meanwhile."""
    # By its URI, with all that a path may hold.
    address = f"{source.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True)) as reading, closing(sqlite3.connect(target)) as writing:
        reading.backup(writing)
    target.chmod(0o600)


def _copy_tree(state: Path, growing: Path, name: str) -> list[str]:
    """Copies a directory. What goes while it is copied is left out, as it would be a moment later. No link is
    followed: commands may be working in a sandbox. Returns what could not be copied."""
    source, target = state / name, growing / name
    if not source.is_dir():
        return []
    target.mkdir(mode=0o700, parents=True)
    reading, writing = (os.open(path, os.O_RDONLY | os.O_DIRECTORY) for path in (source, target))
    try:
        return [f"{name}/{path}" for path in copy_content(reading, writing)]
    finally:
        os.close(writing)
        os.close(reading)
