"""Finds the program that a command names, the way its PATH would, and says why when there is none."""

from __future__ import annotations

import difflib
import os
import shutil
from pathlib import Path

from cleveragents.application.ports.commands import Command
from cleveragents.errors import InvalidToolCall, OutsideSandbox, ToolRefused

__all__ = ["TOOL", "check_command", "find_program"]

TOOL = "command"
_MOST_SUGGESTIONS = 3


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
    inside = Path(os.path.realpath(command.directory)).is_relative_to(os.path.realpath(command.root))
    if not inside:
        raise OutsideSandbox(str(command.directory), "is not in the sandbox")


def find_program(command: Command, path: str, user_path: str) -> Path:
    """The file that will be run. `ToolRefused`: missing, a directory, not executable.

    `path` is the command's PATH; the user's own may have more, and a program that is only there is named.
    """
    name = command.argv[0]
    if "/" in name:
        return _checked(command.directory / name, name)
    found = shutil.which(name, path=path)
    if found is not None:
        return Path(found)
    elsewhere = shutil.which(name, path=user_path)
    if elsewhere is not None:
        raise ToolRefused(TOOL, f"{name!r} is only at {elsewhere}, which commands in a sandbox do not see")
    near = difflib.get_close_matches(name, _programs(path), n=_MOST_SUGGESTIONS)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise ToolRefused(TOOL, f"there is no program {name!r} on the command's PATH ({path}){hint}")


def _checked(program: Path, name: str) -> Path:
    if program.is_dir():
        raise ToolRefused(TOOL, f"{name!r} is a directory")
    if not program.exists():
        raise ToolRefused(TOOL, f"there is no program {name!r}")
    if not os.access(program, os.X_OK):
        raise ToolRefused(TOOL, f"{name!r} is not executable; `chmod +x` makes it so")
    return program


def _programs(path: str) -> list[str]:
    names: set[str] = set()
    for directory in path.split(os.pathsep):
        try:
            names |= {entry.name for entry in Path(directory).iterdir()}
        except OSError:
            continue
    return sorted(names)
