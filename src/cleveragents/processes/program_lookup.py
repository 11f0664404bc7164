"""Finds the program that a command names, the way its PATH would, and says why when there is none.

A program is a regular file that may be executed, in a directory that PATH names absolutely. Nothing is opened
here: a named pipe would hold whoever opens it until somebody writes.

Whether an agent of somebody else's can be run here, told before anything is made for it or asked.
"""

from __future__ import annotations

import difflib
import os
import stat
from importlib.util import find_spec
from pathlib import Path

from cleveragents.core.errors import InvalidToolCall, OutsideSandbox, ToolRefused
from cleveragents.processes.environment import absolute_entries, real_path
from cleveragents.processes.ports import NETWORK_NOT_DENIED, Command

__all__ = [
    "TOOL",
    "absence_of",
    "absence_of_acp",
    "check_command",
    "ensure_network_denied",
    "find_program",
    "look_up",
]


TOOL = "command"
_MOST_SUGGESTIONS = 3
_SYSTEM = frozenset(
    map(Path, ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"))
)

_EXTRA = "agents that speak ACP need the extra `acp`: pip install 'cleveragents[acp]'"


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
    return _EXTRA if find_spec("acp") is None else None
