"""Passthrough: the user's files and variables that a command may see.

Files are copied, so that nothing the command writes reaches the originals. Only the named files are copied,
such as settings and logins, not the whole home. The values of passed variables are masked in all output of
the command, whatever their names; values that may be secrets are masked in everything that this process shows
from then on. A value that a program encodes or splits before printing is not masked.

Without isolation, a private directory takes the place of the command's home and temporary files. Its name
identifies the process that created it, so it can be removed once that process is dead.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cleveragents.core.errors import ToolRefused
from cleveragents.core.text.redaction import (
    MASK,
    SHORTEST_VALUE,
    KnownSecrets,
    PieceMask,
    known_values,
    mask_spans,
    redact,
    spans_around,
    value_spans,
)
from cleveragents.core.text.secret_patterns import find_in_text
from cleveragents.processes.program_lookup import TOOL
from cleveragents.storage.files.paths import remove_all

if TYPE_CHECKING:
    from cleveragents.core.identifiers import WorkerIdentity
    from cleveragents.processes.ports import CommandHome

__all__ = [
    "MOST_BYTES",
    "MOST_FILES",
    "NO_SECRETS",
    "PREFIX",
    "SecretMask",
    "copy_home",
    "keep_secrets_of",
    "make_directory",
    "mask_for",
    "owner_lives",
    "owner_prefix",
    "remove_directory",
    "shown_by",
]


MOST_BYTES = 64 << 20

MOST_FILES = 5_000
"""The limits for all copies together. Settings and credentials are small; histories and caches do not belong
here.
"""
_EVERYBODYS = frozenset(
    {
        "HOME",
        "USER",
        "LOGNAME",
        "PATH",
        "PWD",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TERM",
        "TMPDIR",
        "HOSTNAME",
    }
)
_NO_SECRET = re.compile(
    r"(?:^|_)(?:MODEL|PROVIDER|MODE|LEVEL|HOST|PORT|REGION|LOCATION|PROJECT|VERSION|(?:BASE_)?URL|ENDPOINT)$"
)

_SHORTEST_LINE = 16

PREFIX = "cleveragents-command-"
"""The prefix of all private directories and cgroups of commands."""
_OWNED = re.compile(re.escape(PREFIX) + r"(?P<pid>\d+)\.(?P<ticks>\d+)\.(?P<host>[0-9a-f]{8})-")


def copy_home(home: Path, wanted: CommandHome, program: str) -> None:
    """Fill the empty directory `home` for the program. Raises `ToolRefused` if a file cannot be copied or the
    copies are too large.
    """
    copying = _Copying(program)
    for name in wanted.copied:
        source = Path(os.path.realpath(Path.home() / name))
        if os.access(source, os.F_OK):
            (home / name).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            copying.copy(source, home / name)
    for name, content in wanted.files.items():
        with open(home / name, "xb", opener=_for_its_owner) as file:
            file.write(content)


def mask_for(names: Iterable[str], inherited: Mapping[str, str], secrets: KnownSecrets) -> SecretMask:
    """Return a mask for the values of these variables and all known secrets.

    The values are added to `secrets`, except those of variables for a place or an option (such as `…_URL`).
    Such values may legitimately occur in files, so they are masked only in the program's output.
    """
    values = {name: inherited[name] for name in names if inherited.get(name) and not _is_everybodys(name)}
    for name, value in values.items():
        if not _NO_SECRET.search(name):
            secrets.add(value)
    keep_secrets_of(values, inherited, secrets)
    return SecretMask((*values.values(), *known_values()))


def keep_secrets_of(names: Iterable[str], inherited: Mapping[str, str], secrets: KnownSecrets) -> None:
    """Add the values of variables with a secret's name to `secrets`."""
    for name in names:
        value = inherited.get(name, "")
        if redact({name: value}) == {name: MASK}:
            secrets.add(value)


def shown_by(argv: Sequence[str]) -> Iterator[Path]:
    """Yield the paths that a command must see because `argv` names them: the directory of the program, and
    the other files with an absolute path.
    """
    home = Path(os.path.realpath(Path.home()))
    for number, word in enumerate(argv):
        path = Path(word)
        if path.is_absolute() and os.access(path, os.R_OK) and path.is_file():
            around = Path(os.path.realpath(path)).parent
            # guard: never expose a whole home directory or a parent of it
            yield path if number or home.is_relative_to(around) else path.parent


class _Copying:
    """The copies for one program, and their total size. Not thread-safe: each call has its own."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._bytes = 0
        self._files = 0

    def copy(self, source: Path, target: Path) -> None:
        try:
            self._copy(source, target)
        except OSError as error:
            raise self._refused(source, str(error.strerror)) from error

    def _copy(self, source: Path, target: Path) -> None:
        """Copy a file or directory tree. A link to a file becomes a copy of the file, because the link would
        point outside the private directory.
        """
        found = source.stat()
        self._files += 1
        self._bytes += found.st_size if stat.S_ISREG(found.st_mode) else 0
        if self._files > MOST_FILES or self._bytes > MOST_BYTES:  # guard: a whole home is not a settings file
            remedy = "list only the files that the program needs in `home`"
            bounds = f"{MOST_FILES:,} files and {MOST_BYTES >> 20} MiB"
            raise self._refused(source, f"more than {bounds}; {remedy}")
        if stat.S_ISDIR(found.st_mode):
            target.mkdir(exist_ok=True, mode=0o700)
            for entry in sorted(source.iterdir()):
                # guard: a directory could be linked into itself
                if os.access(entry, os.F_OK) and not (entry.is_symlink() and entry.is_dir()):
                    self._copy(entry, target / entry.name)
        elif stat.S_ISREG(found.st_mode):  # guard: opening a pipe or a device could block forever
            shutil.copyfile(source, target)
            target.chmod(stat.S_IMODE(found.st_mode) | 0o600)

    def _refused(self, source: Path, problem: str) -> ToolRefused:
        return ToolRefused(TOOL, f"cannot copy {source} for {self._program!r}: {problem}")


def _is_everybodys(name: str) -> bool:
    return name in _EVERYBODYS or name.startswith(("XDG_", "LC_"))


def _for_its_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class SecretMask:
    """A set of values to mask, as plain text and as JSON. Immutable: any thread may share it.

    A value shorter than `SHORTEST_VALUE`, such as `1` or `true`, is ignored: ordinary words contain it.
    """

    def __init__(self, values: Iterable[str]) -> None:
        self._spellings = frozenset(spelling for value in values for spelling in _spellings(value))

    def text(self, text: str) -> str:
        """Mask the known values, and any longer secret that contains one of them."""
        known = value_spans(text, self._spellings)
        if not known:
            return text
        return mask_spans(text, spans_around(known, [(start, end) for _, start, end in find_in_text(text)]))

    def value(self, value: object) -> object:
        """Mask texts in mappings and sequences, including keys."""
        return _each_text(value, self.text)

    def exact(self, value: object) -> object:
        """Mask only the known values, for a text that a person approves: a longer match around a value might
        hide code.
        """
        return _each_text(value, lambda text: mask_spans(text, value_spans(text, self._spellings)))

    def stream(self) -> PieceMask:
        """Return a mask for one stream of text."""
        return PieceMask(lambda: self._spellings, only_known=True)

    def stream_of_bytes(self) -> PieceMask:
        """Return a mask for one stream of bytes, each decoded as a character (Latin-1)."""
        spellings = frozenset(map(_a_character_a_byte, self._spellings))
        return PieceMask(lambda: spellings, only_known=True)


def _each_text(value: object, masked: Callable[[str], str]) -> object:
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, Mapping):
        return {_each_text(key, masked): _each_text(item, masked) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_each_text(item, masked) for item in value]
    return value


def _spellings(value: str) -> set[str]:
    stripped = value.strip()
    lines = [line.strip() for line in stripped.splitlines()]
    whole = [value, stripped] if len(stripped) >= SHORTEST_VALUE else []
    plain = {*whole, *(line for line in lines if len(line) >= _SHORTEST_LINE)}
    quoted = {json.dumps(one, ensure_ascii=plainly)[1:-1] for one in plain for plainly in (True, False)}
    return plain | quoted


def _a_character_a_byte(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


NO_SECRETS = SecretMask(())
"""The mask for programs without passed values."""


def make_directory() -> Path:
    """Create a private directory with `home` and `tmp`, readable by its owner only."""
    directory = Path(tempfile.mkdtemp(prefix=owner_prefix()))
    (directory / "home").mkdir(mode=0o700)
    (directory / "tmp").mkdir(mode=0o700)
    return directory


def owner_prefix() -> str:
    """Return the prefix of a directory name that identifies this process as the creator."""
    me = _me()
    return f"{PREFIX}{me.pid}.{me.started_ticks}.{_short(me.host)}-"


def owner_lives(directory: Path) -> bool | None:
    """Return whether the process that created the directory runs.

    None if the name does not identify a process, or the process belongs to another machine or an earlier
    boot, or is hidden from us.
    """
    from cleveragents.processes.identity import is_alive

    named, me = _OWNED.match(directory.name), _me()
    if named is None or named["host"] != _short(me.host):
        return None
    owner = replace(me, pid=int(named["pid"]), started_ticks=int(named["ticks"]))
    try:
        return is_alive(owner)
    except PermissionError:  # a process of another user, with /proc mounted as hidepid
        return None


def remove_directory(directory: str) -> None:
    """Remove the directory, read-only subdirectories (as in some package caches) included. Idempotent."""
    with suppress(OSError):  # a process that is being killed may still write there
        remove_all(Path(directory))


def _me() -> WorkerIdentity:
    # Imported here, because the guard only removes directories.
    from cleveragents.processes.identity import own_identity

    return own_identity("")


def _short(host: str) -> str:
    return f"{zlib.crc32(host.encode()):08x}"
