"""The unique name of a state directory.

Several machines, or several state directories on one machine, may share a database. Every row that refers to
files on a disk uses this name to identify the disk. The name is not secret and not bound to a machine: it
moves with the directory.

A copy of the directory would copy the name, too, and both would claim the same sandboxes and plans. The
location of the directory is therefore stored beside its name. If the directory is now at another location,
and the directory at the stored location may still be in use, `home_id` raises an error until a person decides
which of the two keeps the name.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

from cleveragents.core.errors import ConfigurationError
from cleveragents.core.identifiers import UlidSource

__all__ = ["home_id"]

_MACHINE = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
_ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")


def home_id(state_directory: Path) -> str:
    """Return the name of the directory, creating it at first use.

    Raises `ConfigurationError` if it has no name and cannot be written, or if another directory has the same
    name.
    """
    file = state_directory / "home"
    try:
        name = _known_or_new(file)
        here = _Place.of(state_directory, name)
        place = file.with_name("home.place")
        found = _Place.read(place)
        if found != here:
            if found is not None and found.name == name:
                _ensure_alone(file, here, found)  # guard: no plan has two owners
            here.write(place)
        return name
    except OSError as error:
        raise ConfigurationError(
            str(file), f"cannot read or write the name of this state directory: {error.strerror}"
        ) from error


class _Place(Struct, frozen=True):
    """The identity of a directory: its path, its inode number, and its machine."""

    name: str
    path: str
    inode: int
    machine: str

    @classmethod
    def of(cls, directory: Path, name: str) -> _Place:
        return cls(name, os.path.realpath(directory), directory.stat().st_ino, _machine())

    @classmethod
    def read(cls, file: Path) -> _Place | None:
        """Return the stored place, or None if there is none or it is malformed."""
        with suppress(FileNotFoundError, ValueError, TypeError):
            return cls(**json.loads(file.read_text(encoding="utf-8")))
        return None

    def write(self, file: Path) -> None:
        """Write the place atomically; on failure the next process tries again."""
        draft = file.with_name(f"{file.name}.{secrets.token_hex(8)}.new")
        try:
            draft.write_text(f"{json.dumps(asdict(self))}\n", encoding="utf-8")
            draft.replace(file)
        except OSError:
            with suppress(OSError):  # on a read-only file system there is nothing to remove
                draft.unlink()


def _ensure_alone(file: Path, here: _Place, there: _Place) -> None:
    """Raise `ConfigurationError` if this is a copy of a directory that is, or may be, still in use."""
    rename = (
        f"delete {file} to give this directory a new name; existing plans and sandboxes stay with "
        "the original"
    )
    # guard: checked before inode numbers, which the roots of two file systems may share
    if here.path != there.path and _is_still(there, file):
        raise ConfigurationError(str(file), f"this state directory is a copy of {there.path}; {rename}")
    if here.inode == there.inode or here.machine == there.machine:
        return  # the same directory: moved, or seen through another mount or container
    keep = f"if the original is no longer used, delete {file.with_name('home.place')}"
    problem = f"this state directory is a copy of {there.path} on another machine; {keep}; otherwise {rename}"
    raise ConfigurationError(str(file), problem)


def _is_still(there: _Place, file: Path) -> bool:
    """Return whether another directory with the same name still exists at the place `there`."""
    with suppress(OSError, ConfigurationError):
        other = Path(there.path) / file.name
        return _identity(other) != _identity(file) and _read(other) == there.name
    return False


def _identity(file: Path) -> tuple[int, int, int]:
    """Return an identity that is the same for every path to the directory, but different for a copy of it."""
    found = file.stat()
    return file.parent.stat().st_ino, found.st_ino, found.st_ctime_ns


@cache
def _machine() -> str:
    """Return an opaque name for this machine, which does not reveal the machine's id; empty without an id."""
    for file in _MACHINE:
        with suppress(OSError):
            return sha256(b"cleveragents" + file.read_bytes().strip()).hexdigest()[:16]
    return ""


def _known_or_new(file: Path) -> str:
    with suppress(FileNotFoundError):
        return _read(file)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _give_name(file)
    return _read(file)


def _read(file: Path) -> str:
    name = file.read_text(encoding="utf-8", errors="replace").strip()
    if not _ULID.fullmatch(name):  # guard: rows of the database would have no owner
        raise ConfigurationError(str(file), "should contain one ULID, the name of this state directory")
    return name


def _give_name(file: Path) -> None:
    """Write the name atomically; of several concurrent writers the first wins."""
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
