"""What of the user's own a command is lent: copies of files of their home, and variables by name.

Copies, so that nothing that the command writes there reaches the user's own; as many as are needed to know
who the user is, not their whole home. The values of the variables are masked in all that the command says,
whatever they are called; those that may be secrets are never shown again by this process.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from cleveragents.core.errors import ToolRefused
from cleveragents.core.text.known_secrets import KnownSecrets, known_values
from cleveragents.core.text.redaction import MASK, redact
from cleveragents.processes.ports import CommandHome
from cleveragents.processes.program_lookup import TOOL
from cleveragents.processes.secret_mask import SecretMask

__all__ = ["MOST_BYTES", "MOST_FILES", "furnish", "keep_secrets_of", "mask_for", "shown_by"]

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
