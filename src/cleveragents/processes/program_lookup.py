"""Finds the program that a command names, the way its PATH would, and says why when there is none.

A program is a regular file that may be executed, in a directory that PATH names absolutely. Nothing is opened
here: a named pipe would hold whoever opens it until somebody writes.

Whether an agent of somebody else's can be run here, told before anything is made for it or asked.

Finds the directories outside the system's own that a command needs to run the programs on PATH.

A language's interpreter is often installed in a home directory (pyenv, nvm, conda, uv, a virtual
environment), and it is more than the directory its program is in. Its prefix is found by looking at what is
there; a home directory itself, or a place where secrets are kept, is never part of it.

Only the PATH of this process and what its directories hold decide. A sandbox has links, first lines of
scripts and `pyvenv.cfg` files, too, and commands bring a PATH of their own: none of these opens a directory.
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
    """Returns, or says what is wrong with it before anything is started."""
    if not command.argv or not command.argv[0]:
        raise InvalidToolCall(TOOL, "there is no program to run")
    named = (*command.environment.items(), *command.markers.items())
    for word in (*command.argv, *(word for pair in named for word in pair)):
        if "\0" in word:
            raise InvalidToolCall(TOOL, f"{word!r} holds a NUL character")
    if any("=" in name or not name for name, _ in named):
        raise InvalidToolCall(TOOL, "the name of a variable is empty or holds '='")
    if not command.timeout_seconds > 0:
        raise InvalidToolCall(TOOL, f"a timeout of {command.timeout_seconds} seconds leaves no time to run")
    if not command.root.is_dir():
        raise ToolRefused(TOOL, f"the sandbox {command.root} is not there")
    if not command.directory.is_dir():
        raise ToolRefused(TOOL, f"the directory {command.directory} does not exist")
    if not real_path(command.directory).is_relative_to(real_path(command.root)):
        raise OutsideSandbox(str(command.directory), "is not in the sandbox")


def ensure_network_denied(command: Command, *, isolated: bool) -> None:
    """`ToolRefused` if the command may not use the network, and nothing keeps it from that."""
    if command.network_denied and not isolated:  # guard: a profile that denies the network keeps its word
        raise ToolRefused(TOOL, NETWORK_NOT_DENIED)


def find_program(command: Command, path: str, user_path: str, *, isolated: bool = False) -> Path:
    """The file that will be run. `ToolRefused`: missing, a directory or a device, not executable.

    `path` is the command's PATH; the user's own may have more, and a program that is only there is named. Of
    what an `isolated` command names elsewhere nothing is looked at: it is run, or not, by what it sees.
    """
    name = command.argv[0]
    if "/" in name:
        program = command.directory / name
        if isolated and not _is_in(program, command.root):  # guard: a refusal would say whether it is there
            return program
        return _checked(program, name)
    named = absolute_entries(path)
    ours = {*absolute_entries(user_path), *_SYSTEM}
    known = [entry for entry in named if not isolated or entry in ours or _is_in(entry, command.root)]
    path = os.pathsep.join(map(str, known))
    found = look_up(name, path)
    if found is not None:
        return found
    if len(known) < len(named):  # it may be where we did not look, and the command does
        return Path(name)
    elsewhere = look_up(name, user_path)
    if elsewhere is not None:
        raise ToolRefused(TOOL, f"{name!r} is only at {elsewhere}, which commands in a sandbox do not see")
    near = difflib.get_close_matches(name, _programs(path), n=_MOST_SUGGESTIONS)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise ToolRefused(TOOL, f"there is no program {name!r} on the command's PATH ({path}){hint}")


def look_up(name: str, path: str) -> Path | None:
    """The first program of that name in the absolute directories of `path`; None if there is none."""
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
        raise ToolRefused(TOOL, f"there is no program {name!r} ({error.strerror})") from error
    if stat.S_ISDIR(mode):
        raise ToolRefused(TOOL, f"{name!r} is a directory")
    if not stat.S_ISREG(mode):  # guard: a pipe or a device may hold for ever whoever opens it
        raise ToolRefused(TOOL, f"{name!r} is not a program but a pipe, a socket or a device")
    if not os.access(program, os.X_OK):
        raise ToolRefused(TOOL, f"{name!r} is not executable; `chmod +x` makes it so")
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
    """Why it cannot be run, with how to get it; None if it is there. One that is named by a path within the
    sandbox may be made until then."""
    if program.startswith("/"):
        missing, where = not os.access(program, os.X_OK), ""
    else:
        missing = "/" not in program and look_up(program, os.environ.get("PATH", os.defpath)) is None
        where = " on your PATH"
    if not missing:
        return None
    remedy = f"; to install it: {install}" if install else ""
    return f"there is no program {program!r}{where}{remedy}"


def absence_of_acp() -> str | None:
    """What is missing before anybody can be talked to by the Agent Client Protocol, if anything is."""
    if find_spec("acp") is not None:
        return None
    return f"agents that speak ACP need the extra `acp`: {install_command('acp')}"


def secret_places(home: Path) -> tuple[Path, ...]:
    """Where a user's credentials are."""
    return tuple(home / name for name in _SECRETS)


def interpreter_homes() -> tuple[Path, ...]:
    """Where tools keep interpreters that are not on PATH, and that virtual environments lead to."""
    return tuple(Path.home() / name for name in _INTERPRETER_HOMES)


def tool_directories(
    entries: Collection[Path], program: Path, *, root: Path, forbidden: Iterable[Path]
) -> list[Path]:
    """Directories to be shown, parents first, none below another.

    `entries` are directories that this process trusts: those of its own PATH. `program` is what will be run;
    it counts only if it lies in one of them. `root` is the sandbox, which is shown anyway. Nothing at or
    below a `forbidden` place is among them, nor a directory that holds a home; what a forbidden place lies
    below is for the caller to cover.
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
    if program.parent in trusted:  # guard: the name of a program in a sandbox, or anywhere, opens nothing
        wanted += _chain(program, own, interpreters_only=False)
    shown: list[Path] = []
    for path in sorted(dict.fromkeys(wanted), key=lambda path: len(path.parts)):
        real = Path(os.path.realpath(path))
        # guard: a home directory is never shown as a whole
        if not is_directory(path) or home.is_relative_to(real) or is_inside_spelled(path, closed):
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


def _chain(program: Path, own: Collection[Path], *, interpreters_only: bool) -> Iterator[Path]:
    """The prefixes along a program's links, and of the interpreter that its first line names.

    With `interpreters_only`, of the links only directories count that have an interpreter in them.
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
    """Where the interpreter of a virtual environment really is."""
    configuration = _beginning(environment / "pyvenv.cfg", _CONFIGURATION_BYTES)
    for line in configuration.decode("utf-8", "replace").splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "home":
            return Path(value.strip())
    return None


def _links(program: Path, own: Collection[Path]) -> Iterator[Path]:
    for _ in range(_MOST_LINKS):
        # guard: what a link in the sandbox names is for its commands to choose
        if is_inside_spelled(program.parent, own) or not _is_file(program):
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
