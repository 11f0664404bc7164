"""Which directories outside the system's own a command needs, in order to run the programs on its PATH.

A language's interpreter is often installed in a home directory (pyenv, nvm, conda, uv, a virtual
environment), and it is more than the directory its program is in. Its prefix is found by looking at what is
there; a home directory itself, or a place where secrets are kept, is never part of it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from cleveragents.infrastructure.commands.environment import is_directory, is_inside

__all__ = ["secret_places", "shebang", "tool_directories"]

_PROGRAM_DIRECTORIES = {"bin", "sbin", "shims"}
_SIGNS_OF_A_PREFIX = ("pyvenv.cfg", "conda-meta", "lib", "versions", "installs", "tools")
_INTERPRETERS = ("python", "python3", "node", "ruby")
_SECRETS = (".ssh", ".aws", ".azure", ".config", ".docker", ".gnupg", ".kube", ".mozilla", ".password-store")
_MOST_LINKS = 16
_SHEBANG_BYTES = 512
_CONFIGURATION_BYTES = 65536
_SHEBANG = re.compile(rb"#!\s*(/\S+)")


def secret_places(home: Path) -> tuple[Path, ...]:
    """Where a user's credentials are."""
    return tuple(home / name for name in _SECRETS)


def tool_directories(
    entries: Collection[Path], program: Path, *, root: Path, forbidden: Iterable[Path]
) -> list[Path]:
    """Directories to be shown, parents first, none below another.

    `entries` are PATH's; `program` is what will be run; `root` is the sandbox, which is shown anyway. Nothing
    at or below a `forbidden` place is among them, nor a directory that holds a home; what a forbidden place
    lies below is for the caller to cover.
    """
    home = Path(os.path.realpath(Path.home()))
    closed = (*forbidden, *secret_places(home))
    outside = [entry for entry in entries if not is_inside(entry, [root])]
    wanted: list[Path] = []
    for entry in entries:
        for name in _INTERPRETERS:
            wanted += _chain(entry / name, trusted=False)
    for entry in outside:
        wanted += _prefix(entry)
    wanted += _chain(program, trusted=program.parent in outside)
    shown: list[Path] = []
    for path in sorted(dict.fromkeys(wanted), key=lambda path: len(path.parts)):
        real = Path(os.path.realpath(path))
        # guard: a home directory is never shown as a whole
        if not is_directory(path) or home.is_relative_to(real) or is_inside(path, closed):
            continue
        if not any(path.is_relative_to(other) for other in shown):
            shown.append(path)
    return shown


def _prefix(entry: Path) -> Iterator[Path]:
    """The directory with the programs, where it really is, and the installation it belongs to."""
    for place in dict.fromkeys([entry, Path(os.path.realpath(entry))]):
        yield place
        parent = place.parent
        # ~/.local is where programs are, and also keyrings and the state of everything.
        if place.name not in _PROGRAM_DIRECTORIES or parent.name == ".local":
            continue
        if any(os.access(parent / sign, os.F_OK) for sign in _SIGNS_OF_A_PREFIX):
            yield parent


def _chain(program: Path, *, trusted: bool) -> Iterator[Path]:
    """The prefixes along a program's links, and of the interpreter that its first line names.

    What lies in the sandbox (a virtual environment of its own, say) is not to be trusted: a link there may
    lead anywhere. Of such only directories are shown in which there is an interpreter.
    """
    steps = [*_links(program)]
    interpreter = shebang(program)
    if interpreter is not None:
        steps += _links(interpreter)
    for step in steps:
        yield from _prefix(step.parent) if trusted else _interpreter_prefix(step.parent)
        yield from _interpreter_prefix(_home_of_environment(step.parent.parent))


def _interpreter_prefix(directory: Path | None) -> Iterator[Path]:
    # guard: links and files in the sandbox can name any directory
    if directory is not None and any(_is_file(directory / name) for name in _INTERPRETERS):
        yield from _prefix(directory)


def _home_of_environment(environment: Path) -> Path | None:
    """Where the interpreter of a virtual environment really is."""
    configuration = _beginning(environment / "pyvenv.cfg", _CONFIGURATION_BYTES)
    for line in configuration.decode("utf-8", "replace").splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "home":
            return Path(value.strip())
    return None


def _links(program: Path) -> Iterator[Path]:
    for _ in range(_MOST_LINKS):
        if not _is_file(program):
            return
        yield program
        if not program.is_symlink():
            return
        program = Path(os.path.normpath(program.parent / program.readlink()))


def shebang(program: Path) -> Path | None:
    """The interpreter that the file's first line names, if it is a script."""
    found = _SHEBANG.match(_beginning(program, _SHEBANG_BYTES))
    return Path(os.fsdecode(found.group(1))) if found else None


def _beginning(path: Path, most: int) -> bytes:
    """So many bytes of a regular file; none of anything else, or of what cannot be read.

    Whoever writes in the sandbox can put a pipe there at any time, which would hold us with no time-out.
    """
    if not _is_file(path):  # guard: to open a device can set it to work
        return b""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            return file.read(most) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    except OSError:
        return b""


def _is_file(path: Path) -> bool:
    # The first question takes no offence at a place that we may not look into.
    return os.access(path, os.F_OK) and path.is_file()


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)  # guard: it may be a pipe by now
