"""The name of a state directory: what is kept in it, no other machine has.

Several machines, or several state directories of one, may share a database. Whatever refers from there to
files on a disk says whose disk is meant, by this name. It is no secret, and no machine's: who moves the
directory moves its name along.
"""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

from cleveragents.errors import ConfigurationError
from cleveragents.infrastructure.identifiers import UlidSource

__all__ = ["home_id"]

_ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")


def home_id(state_directory: Path) -> str:
    """The directory's name, given to it at first use. `ConfigurationError` if it holds none and cannot."""
    file = state_directory / "home"
    try:
        with suppress(FileNotFoundError):
            return _read(file)
        state_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _give_name(file)
        return _read(file)
    except OSError as error:
        raise ConfigurationError(str(file), f"{error.strerror}; it names this state directory") from error


def _read(file: Path) -> str:
    name = file.read_text(encoding="utf-8", errors="replace").strip()
    if not _ULID.fullmatch(name):  # guard: rows of the database would be nobody's
        raise ConfigurationError(str(file), "it should hold one ULID, the name of this state directory")
    return name


def _give_name(file: Path) -> None:
    """Whole, or not at all; of several who do it at once, the first has it."""
    draft = file.with_name(f"home.{secrets.token_hex(8)}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, f"{UlidSource().new()}\n".encode("ascii"))
        os.fsync(descriptor)
        with suppress(FileExistsError):
            os.link(draft, file)  # guard: never replaces a name that is in use
    finally:
        os.close(descriptor)
        draft.unlink()
