"""Find the program of a command, and the directories that it needs.

A program is an executable regular file in an absolute directory of the command's PATH. No file is opened to
find it: opening a named pipe would block until another process writes to it.

The module also finds the directories outside the system that a command needs to run the programs on PATH.
Interpreters are often installed in a home directory (pyenv, nvm, conda, uv, a virtual environment), and need
more than the directory of their program. The prefix is recognized by its content; it never includes a home
directory itself or a place for secrets.

Only the PATH of this process and the content of its directories determine which directories are visible.
Links, shebangs and `pyvenv.cfg` files in a sandbox do not count, and neither does the PATH of a command.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from cleveragents.config.entry_points import install_command
from cleveragents.core.errors import InvalidToolCall, OutsideSandbox, ToolRefused
from cleveragents.processes.environment import (
    absolute_entries,
    is_directory,
    is_inside_spelled,
    real_path,
    spellings,
)
from cleveragents.processes.ports import NETWORK_NOT_DENIED, Command

__all__ = [
    "TOOL",
    "absence_of",
    "absence_of_acp",
    "check_command",
    "ensure_network_denied",
    "find_program",
    "interpreter_homes",
    "look_up",
    "secret_places",
    "shebang",
    "tool_directories",
]


TOOL = "command"
_MOST_SUGGESTIONS = 3
_SIMILAR = 0.75
"""Minimum similarity of a suggested program. A PATH has thousands of programs: with the default of `difflib`,
`ruff` would suggest `troff`.
"""
_SYSTEM = frozenset(
    map(Path, ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"))
)

_PROGRAM_DIRECTORIES = {"bin", "sbin", "shims"}
_SIGNS_OF_A_PREFIX = ("pyvenv.cfg", "conda-meta", "lib", "versions", "installs", "tools")
_INTERPRETERS = ("python", "python3", "node", "ruby")
_SECRETS = (".ssh", ".aws", ".azure", ".config", ".docker", ".gnupg", ".kube", ".mozilla", ".password-store")
_INTERPRETER_HOMES = (".local/share/uv/python",)
_MOST_LINKS = 16
_SHEBANG_BYTES = 512
_CONFIGURATION_BYTES = 65536
_SHEBANG = re.compile(rb"#!\s*(/\S+)")


def check_command(command: Command) -> None:
    """Raise an error if the command is invalid, before anything starts."""
    if not command.argv or not command.argv[0]:
        raise InvalidToolCall(TOOL, "no program to run")
    named = (*command.environment.items(), *command.markers.items())
    for word in (*command.argv, *(word for pair in named for word in pair)):
        if "\0" in word:
            raise InvalidToolCall(TOOL, f"{word!r} contains a NUL character")
    if any("=" in name or not name for name, _ in named):
        raise InvalidToolCall(TOOL, "the name of a variable is empty or contains '='")
    if not command.timeout_seconds > 0:
        raise InvalidToolCall(TOOL, f"timeout_seconds={command.timeout_seconds}: must be greater than 0")
    if not command.root.is_dir():
        raise ToolRefused(TOOL, f"the sandbox {command.root} does not exist")
    if not command.directory.is_dir():
        raise ToolRefused(TOOL, f"the directory {command.directory} does not exist")
    if not real_path(command.directory).is_relative_to(real_path(command.root)):
        raise OutsideSandbox(str(command.directory), "is not in the sandbox")


def ensure_network_denied(command: Command, *, isolated: bool) -> None:
    """Raise `ToolRefused` if the command must not use the network and is not isolated."""
    if command.network_denied and not isolated:  # guard: a profile that denies the network must be enforced
        raise ToolRefused(TOOL, NETWORK_NOT_DENIED)


def find_program(command: Command, path: str, user_path: str, *, isolated: bool = False) -> Path:
    """Return the file that will run. Raises `ToolRefused` if it is missing, not executable or not a regular
    file.

    `path` is the command's PATH. If the program is only on the user's own PATH, the error says where. For an
    `isolated` command, only the sandbox and the directories of our own PATH are examined; for other places,
    bubblewrap finds out whether the program exists.
    """
    name = command.argv[0]
    if "/" in name:
        program = command.directory / name
        if isolated and not _is_in(program, command.root):  # guard: a refusal would reveal if it exists
            return program
        return _checked(program, name)
    named = absolute_entries(path)
    ours = {*absolute_entries(user_path), *_SYSTEM}
    known = [entry for entry in named if not isolated or entry in ours or _is_in(entry, command.root)]
    path = os.pathsep.join(map(str, known))
    found = look_up(name, path)
    if found is not None:
        return found
    if len(known) < len(named):  # it may be in a directory that we skipped and the command sees
        return Path(name)
    elsewhere = look_up(name, user_path)
    if elsewhere is not None:
        raise ToolRefused(TOOL, f"{name!r} is only at {elsewhere}, which is not visible in a sandbox")
    near = difflib.get_close_matches(name, _programs(path), n=_MOST_SUGGESTIONS, cutoff=_SIMILAR)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise ToolRefused(TOOL, f"program {name!r} not found on the command's PATH ({path}){hint}")


def look_up(name: str, path: str) -> Path | None:
    """Return the first program with that name in the absolute directories of `path`, or None."""
    for entry in absolute_entries(path):
        program = entry / name
        if os.access(program, os.X_OK) and program.is_file():
            return program
    return None


def _is_in(path: Path, root: Path) -> bool:
    return real_path(path).is_relative_to(real_path(root))


def _checked(program: Path, name: str) -> Path:
    try:
        mode = program.stat().st_mode
    except OSError as error:
        raise ToolRefused(TOOL, f"program {name!r} not found ({error.strerror})") from error
    if stat.S_ISDIR(mode):
        raise ToolRefused(TOOL, f"{name!r} is a directory")
    if not stat.S_ISREG(mode):  # guard: opening a pipe or a device could block forever
        raise ToolRefused(TOOL, f"{name!r} is a pipe, a socket or a device, not a program")
    if not os.access(program, os.X_OK):
        raise ToolRefused(TOOL, f"{name!r} is not executable; run `chmod +x` on it")
    return program


def _programs(path: str) -> list[str]:
    names: set[str] = set()
    for directory in absolute_entries(path):
        try:
            names |= {entry.name for entry in directory.iterdir()}
        except OSError:
            continue
    return sorted(names)


def absence_of(program: str, install: str = "") -> str | None:
    """Return why the program cannot run and how to install it; None if it is available.

    A relative path inside the sandbox is not checked: the file may be created later.
    """
    if program.startswith("/"):
        missing, where = not os.access(program, os.X_OK), ""
    else:
        missing = "/" not in program and look_up(program, os.environ.get("PATH", os.defpath)) is None
        where = " on your PATH"
    if not missing:
        return None
    remedy = f"; install it: {install}" if install else ""
    return f"program {program!r} not found{where}{remedy}"


def absence_of_acp() -> str | None:
    """Return why the Agent Client Protocol cannot be used on this machine; None if it can."""
    if find_spec("acp") is not None:
        return None
    return f"agents that speak ACP need the extra `acp`: {install_command('acp')}"


def secret_places(home: Path) -> tuple[Path, ...]:
    """Return the places of a user's credentials."""
    return tuple(home / name for name in _SECRETS)


def interpreter_homes() -> tuple[Path, ...]:
    """Return the places of interpreters outside PATH that virtual environments link to."""
    return tuple(Path.home() / name for name in _INTERPRETER_HOMES)


def tool_directories(
    entries: Collection[Path], program: Path, *, root: Path, forbidden: Iterable[Path]
) -> list[Path]:
    """Return the directories to make visible, parents first, none below another.

    `entries` are the trusted directories: those of our own PATH. `program` counts only if it lies in one of
    them. `root` is the sandbox, which is visible anyway. The result has no directory in a `forbidden` place,
    and none that contains a home. If a directory in the result contains a forbidden place, the caller must
    hide that place.
    """
    home = Path(os.path.realpath(Path.home()))
    closed = spellings((*forbidden, *secret_places(home)))
    own = spellings([root])
    trusted = [entry for entry in entries if not is_inside_spelled(entry, own)]
    wanted: list[Path] = []
    for entry in trusted:
        wanted += _prefix(entry)
        for name in _INTERPRETERS:
            wanted += _chain(entry / name, own, interpreters_only=True)
    if program.parent in trusted:  # guard: a program's path outside the trusted directories exposes nothing
        wanted += _chain(program, own, interpreters_only=False)
    shown: list[Path] = []
    for path in sorted(dict.fromkeys(wanted), key=lambda path: len(path.parts)):
        real = Path(os.path.realpath(path))
        # guard: never expose a whole home directory
        if not is_directory(path) or home.is_relative_to(real) or is_inside_spelled(path, closed):
            continue
        if not any(path.is_relative_to(other) for other in shown):
            shown.append(path)
    return shown


def _prefix(entry: Path) -> Iterator[Path]:
    """Yield the directory of the programs, its real path, and the installation it belongs to."""
    for place in dict.fromkeys([entry, Path(os.path.realpath(entry))]):
        yield place
        parent = place.parent
        # ~/.local holds programs, but also keyrings and the state of many applications.
        if place.name not in _PROGRAM_DIRECTORIES or parent.name == ".local":
            continue
        if any(os.access(parent / sign, os.F_OK) for sign in _SIGNS_OF_A_PREFIX):
            yield parent


def _chain(program: Path, own: Collection[Path], *, interpreters_only: bool) -> Iterator[Path]:
    """Yield the installation prefixes of a program, of each target of its links, and of the interpreter in
    its shebang.

    With `interpreters_only`, only directories that contain an interpreter count.
    """
    steps = [*_links(program, own)]
    interpreter = shebang(program) if steps else None
    if interpreter is not None:
        steps += _links(interpreter, own)
    for step in steps:
        yield from _interpreter_prefix(step.parent) if interpreters_only else _prefix(step.parent)
        yield from _interpreter_prefix(_home_of_environment(step.parent.parent))


def _interpreter_prefix(directory: Path | None) -> Iterator[Path]:
    if directory is not None and any(_is_file(directory / name) for name in _INTERPRETERS):
        yield from _prefix(directory)


def _home_of_environment(environment: Path) -> Path | None:
    """Return the directory of a virtual environment's real interpreter."""
    configuration = _beginning(environment / "pyvenv.cfg", _CONFIGURATION_BYTES)
    for line in configuration.decode("utf-8", "replace").splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "home":
            return Path(value.strip())
    return None


def _links(program: Path, own: Collection[Path]) -> Iterator[Path]:
    for _ in range(_MOST_LINKS):
        # guard: what a link in the sandbox names is under the control of its commands
        if is_inside_spelled(program.parent, own) or not _is_file(program):
            return
        yield program
        if not program.is_symlink():
            return
        program = Path(os.path.normpath(program.parent / program.readlink()))


def shebang(program: Path) -> Path | None:
    """Return the interpreter in the file's shebang, if it is a script."""
    found = _SHEBANG.match(_beginning(program, _SHEBANG_BYTES))
    return Path(os.fsdecode(found.group(1))) if found else None


def _beginning(path: Path, most: int) -> bytes:
    """Return up to `most` bytes of a regular file; empty for anything else or on error.

    Does not open other files: any process in the sandbox can put a pipe in the place of a file, and opening a
    pipe could block forever.
    """
    if not _is_file(path):  # guard: opening a device can trigger an action
        return b""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            return file.read(most) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    except OSError:
        return b""


def _is_file(path: Path) -> bool:
    # `os.access` does not raise for an inaccessible directory.
    return os.access(path, os.F_OK) and path.is_file()


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)  # guard: it may be a pipe by now
