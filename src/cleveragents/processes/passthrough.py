"""What of the user's own a command is lent: copies of files of their home, and variables by name.

Copies, so that nothing that the command writes there reaches the user's own; as many as are needed to know
who the user is, not their whole home. The values of the variables are masked in all that the command says,
whatever they are called; those that may be secrets are never shown again by this process.

Masks the values that a program was given in all that it says, as it says it.

What a program encodes or takes apart before it says it cannot be found.

The directory that stands for a command's home and temporary files where nothing hides the real ones.

Its name says who made it: a process of this machine that is dead cannot miss it.
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
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

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
from cleveragents.processes.ports import CommandHome
from cleveragents.processes.program_lookup import TOOL
from cleveragents.storage.files.paths import remove_all

if TYPE_CHECKING:
    from cleveragents.core.identifiers import WorkerIdentity

__all__ = [
    "MOST_BYTES",
    "MOST_FILES",
    "NO_SECRETS",
    "PREFIX",
    "SecretMask",
    "furnish",
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
"""Of all copies together: settings and credentials are small, histories and caches are not wanted."""
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
"""So begin the names of all of them."""
_OWNED = re.compile(re.escape(PREFIX) + r"(?P<pid>\d+)\.(?P<ticks>\d+)\.(?P<host>[0-9a-f]{8})-")


def furnish(home: Path, wanted: CommandHome, program: str) -> None:
    """Puts into the empty directory what the program is to find there. `ToolRefused`: it cannot be copied, or
    is too much."""
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
    """Masks what the variables of these names hold, and every secret that is known. Their values are added to
    `secrets`, but for those which only say where to go or what to use: these may stand in files, and are
    masked only in what the program says."""
    values = {name: inherited[name] for name in names if inherited.get(name) and not _is_everybodys(name)}
    for name, value in values.items():
        if not _NO_SECRET.search(name):
            secrets.add(value)
    keep_secrets_of(values, inherited, secrets)
    return SecretMask((*values.values(), *known_values()))


def keep_secrets_of(names: Iterable[str], inherited: Mapping[str, str], secrets: KnownSecrets) -> None:
    """Adds the values of those variables to `secrets` whose names say that they are secret."""
    for name in names:
        value = inherited.get(name, "")
        if redact({name: value}) == {name: MASK}:
            secrets.add(value)


def shown_by(argv: Sequence[str]) -> Iterator[Path]:
    """What the author names by its whole path: a program with what lies beside it, and other files."""
    home = Path(os.path.realpath(Path.home()))
    for number, word in enumerate(argv):
        path = Path(word)
        if path.is_absolute() and os.access(path, os.R_OK) and path.is_file():
            around = Path(os.path.realpath(path)).parent
            # guard: a home is never shown as a whole, nor what holds it
            yield path if number or home.is_relative_to(around) else path.parent


class _Copying:
    """One program's copies, and how much they are. Not thread-safe: one call's own."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._bytes = 0
        self._files = 0

    def copy(self, source: Path, target: Path) -> None:
        try:
            self._copy(source, target)
        except OSError as error:
            raise self._refused(source, f"cannot be copied ({error.strerror})") from error

    def _copy(self, source: Path, target: Path) -> None:
        """Links lead to copies of files, and nowhere else: one that was copied as a link would lead out."""
        found = source.stat()
        self._files += 1
        self._bytes += found.st_size if stat.S_ISREG(found.st_mode) else 0
        if self._files > MOST_FILES or self._bytes > MOST_BYTES:  # guard: a home is no settings file
            remedy = "name in `home` only the files that it needs"
            bounds = f"{MOST_FILES:,} files and {MOST_BYTES >> 20} MiB"
            raise self._refused(source, f"is among more than {bounds}; {remedy}")
        if stat.S_ISDIR(found.st_mode):
            target.mkdir(exist_ok=True, mode=0o700)
            for entry in sorted(source.iterdir()):
                # guard: a directory could be linked into itself
                if os.access(entry, os.F_OK) and not (entry.is_symlink() and entry.is_dir()):
                    self._copy(entry, target / entry.name)
        elif stat.S_ISREG(found.st_mode):  # guard: a pipe or a device may hold for ever whoever opens it
            shutil.copyfile(source, target)
            target.chmod(stat.S_IMODE(found.st_mode) | 0o600)

    def _refused(self, source: Path, problem: str) -> ToolRefused:
        return ToolRefused(TOOL, f"{source}, which {self._program!r} is to have a copy of, {problem}")


def _is_everybodys(name: str) -> bool:
    return name in _EVERYBODYS or name.startswith(("XDG_", "LC_"))


def _for_its_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class SecretMask:
    """Knows some values, as they are and as they stand in JSON. Immutable: any thread may share it.

    A value shorter than `SHORTEST_VALUE`, such as `1` or `true`, is ignored: ordinary words contain it.
    """

    def __init__(self, values: Iterable[str]) -> None:
        self._spellings = frozenset(spelling for value in values for spelling in _spellings(value))

    def text(self, text: str) -> str:
        """The same without them, and without any longer secret that one of them is a part of."""
        known = value_spans(text, self._spellings)
        if not known:
            return text
        return mask_spans(text, spans_around(known, [(start, end) for _, start, end in find_in_text(text)]))

    def value(self, value: object) -> object:
        """The same through mappings and sequences, in their keys, too."""
        return _each_text(value, self.text)

    def exact(self, value: object) -> object:
        """Return the value with the known values masked, and nothing else: a person approves what it says,
        and a longer secret around a known value may be code."""
        return _each_text(value, lambda text: mask_spans(text, value_spans(text, self._spellings)))

    def stream(self) -> PieceMask:
        """For one stream of text."""
        return PieceMask(lambda: self._spellings, only_known=True)

    def stream_of_bytes(self) -> PieceMask:
        """For one stream of bytes, each decoded as a character (Latin-1)."""
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
"""For programs that were given nothing."""


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
    from cleveragents.processes.identity import is_alive

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
    from cleveragents.processes.identity import own_identity

    return own_identity("")


def _short(host: str) -> str:
    return f"{zlib.crc32(host.encode()):08x}"
