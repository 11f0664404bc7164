"""A consistent copy of a state directory, made while other processes keep working.

The copy has three steps. First the head of the audit log: a log that is longer than its head is valid, as
after a crash, while a log that is shorter than its head would look truncated. Second the database, in one
snapshot. Third the sandboxes, which hold the results that are not applied yet: every sandbox in the copied
database exists by then.
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
    """The contents of a backup.

    `database` is None if the database is not in the state directory. `left_out` lists files that could not be
    copied, by their path below the state directory.
    """

    directory: Path
    database: Path | None
    sandboxes: int
    left_out: tuple[str, ...]


def back_up(state: Path, database_url: str, target: Path, told: Callable[[str], None]) -> Backup:
    """Copy `state` to the new directory `target`.

    The copy has a temporary name until it is complete; the incomplete copy of an earlier attempt is replaced.
    Raises `ConfigurationError` if `target` exists or is inside `state`.
    """
    target = target.absolute()
    if os.path.lexists(target):  # guard: no earlier backup is lost
        raise ConfigurationError(str(target), "already exists; name a new directory")
    if target.resolve().is_relative_to(state.resolve()):
        raise ConfigurationError(str(target), f"is inside {state}; name a directory outside it")
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
    """Copy one snapshot of the database, regardless of concurrent writers."""
    # The URI form allows any character in the path.
    address = f"{source.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True)) as reading, closing(sqlite3.connect(target)) as writing:
        reading.backup(writing)
    target.chmod(0o600)


def _copy_tree(state: Path, growing: Path, name: str) -> list[str]:
    """Copy a directory and return the paths that could not be copied.

    Files that disappear during the copy are skipped. No link is followed, because commands may be running in
    a sandbox.
    """
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
