"""Migrated databases, for the many tests that are not about migrating.

Migrating takes longer than most of these tests. It is done once per process, by the production code, and
copied; opening a copy finds a database that was opened before.
"""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path

from cleveragents.storage.database import open_database

__all__ = ["ready_database"]


def ready_database(file: Path) -> str:
    """Return the URL of an empty, migrated database in this file, or of the existing one."""
    if not file.exists():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as copy:
            copy.write(_migrated())
    return f"sqlite:///{file}"


@cache
def _migrated() -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "state.db")
        open_database(f"sqlite:///{file}").close()
        return file.read_bytes()
