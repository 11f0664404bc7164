"""The name of a state directory: what is kept in it, no other machine has.

Several machines, or several state directories of one, may share a database. Whatever refers from there to
files on a disk says whose disk is meant, by this name. It is no secret, and no machine's: who moves the
directory moves its name along.

Who copies it copies the name, too, and then two would take the same sandboxes and plans for their own. So
beside the name is written down which directory has it. Where that is another one, which may still be used,
nothing is done before somebody has said which of the two keeps the name.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from cleveragents.core.errors import ConfigurationError
from cleveragents.core.identifiers import UlidSource

__all__ = ["home_id"]

_MACHINE = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
_ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")


def home_id(state_directory: Path) -> str:
    """The directory's name, given to it at first use. `ConfigurationError` if it holds none and cannot, or if
    another directory has the same."""
    file = state_directory / "home"
    try:
        name = _known_or_new(file)
        here = _Place.of(state_directory, name)
        place = file.with_name("home.place")
        found = _Place.read(place)
        if found != here:
            if found is not None and found.name == name:
                _ensure_alone(file, here, found)  # guard: nobody's plans have two owners
            here.write(place)
        return name
    except OSError as error:
        raise ConfigurationError(str(file), f"{error.strerror}; it names this state directory") from error


@dataclass(frozen=True, slots=True)
class _Place:
    """Which directory has a name: where it is, as what its file system knows it, and on which machine."""

    name: str
    path: str
    inode: int
    machine: str

    @classmethod
    def of(cls, directory: Path, name: str) -> _Place:
        return cls(name, os.path.realpath(directory), directory.stat().st_ino, _machine())

    @classmethod
    def read(cls, file: Path) -> _Place | None:
        """None where none is written down, or nothing that makes sense."""
        with suppress(FileNotFoundError, ValueError, TypeError):
            return cls(**json.loads(file.read_text(encoding="utf-8")))
        return None

    def write(self, file: Path) -> None:
        """Whole, or not at all: where it cannot be, the next one tries."""
        draft = file.with_name(f"{file.name}.{secrets.token_hex(8)}.new")
        try:
            draft.write_text(f"{json.dumps(asdict(self))}\n", encoding="utf-8")
            draft.replace(file)
        except OSError:
            with suppress(OSError):  # a file system that is read-only does not take away what is not there
                draft.unlink()


def _ensure_alone(file: Path, here: _Place, there: _Place) -> None:
    """`ConfigurationError` if this is a copy of a directory that is, or may be, still in use."""
    anew = f"delete {file}: it gets a name of its own, and leaves to the other what is there"
    # guard: before their numbers are looked at, which the tops of two file systems may have in common
    if here.path != there.path and _is_still(there, file):
        raise ConfigurationError(str(file), f"this state directory is a copy of {there.path}; {anew}")
    if here.inode == there.inode or here.machine == there.machine:
        return  # the same one, moved, or seen from another place or container
    kept = f"if that one is used no more, delete {file.with_name('home.place')}"
    problem = f"this state directory is a copy of {there.path} of another machine; {kept}; else {anew}"
    raise ConfigurationError(str(file), problem)


def _is_still(there: _Place, file: Path) -> bool:
    """Whether there is a directory where that one was, which is not this one, and has the name."""
    with suppress(OSError, ConfigurationError):
        other = Path(there.path) / file.name
        return _identity(other) != _identity(file) and _read(other) == there.name
    return False


def _identity(file: Path) -> tuple[int, int, int]:
    """The same for one directory, however many ways lead to it, and for no copy, in which it is younger."""
    found = file.stat()
    return file.parent.stat().st_ino, found.st_ino, found.st_ctime_ns


@cache
def _machine() -> str:
    """A name of this machine, from which nobody learns its own; empty where it has none."""
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
