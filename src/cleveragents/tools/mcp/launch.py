"""The place where MCP servers run, and the conversion of a server's command to a guarded process."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from msgspec.structs import replace

from cleveragents.core.errors import InvalidToolCall, OutsideSandbox, ToolRefused
from cleveragents.processes.guard_protocol import GuardProgram
from cleveragents.processes.passthrough import make_directory, remove_directory
from cleveragents.processes.ports import Command
from cleveragents.processes.program_lookup import check_command
from cleveragents.processes.stdio_process import (
    ProgramEnvironment,
    bubblewrap_for,
    stdio_program,
)
from cleveragents.tools.mcp.server_entry import McpServer

__all__ = ["ServerPlace", "program_for"]

ServerPlace = ProgramEnvironment
"""The surroundings of the servers of one stage."""


def program_for(server: McpServer, place: ServerPlace) -> GuardProgram:
    """Return the program that the guard runs. The caller removes its `private` directory.

    Raises `ToolRefused` if the program does not exist, or isolation is required but not possible.
    """
    who = f"MCP server {server.name}"
    bubblewrap = bubblewrap_for(place, who) if server.isolated else None
    private = make_directory()
    try:
        command = _command(server, place, private, isolated=bubblewrap is not None)
        return stdio_program(command, place, private, bubblewrap, _own_places(server))
    except (ToolRefused, InvalidToolCall, OutsideSandbox) as error:
        remove_directory(str(private))
        reason = error.reason if isinstance(error, ToolRefused) else str(error)
        raise ToolRefused(who, f"{reason} ({server.source})") from error


def _command(server: McpServer, place: ServerPlace, private: Path, *, isolated: bool) -> Command:
    directory = place.directory / server.directory  # an absolute directory stays unchanged
    command = Command(
        argv=server.command,
        root=place.root if server.isolated else directory,
        directory=directory,
        network=place.network,
        readable=(*place.readable, *_named(server)),
        environment=server.environment,
        network_denied=place.network_denied,
    )
    check_command(command)
    if isolated and not place.writable:  # guard: a read-only server gets a tree that it cannot write
        return replace(command, root=private, readable=(*command.readable, place.root))
    return command


def _named(server: McpServer) -> tuple[Path, ...]:
    """Return the paths that an isolated server of the user must see because its command names them: the
    directory of a file, or a directory.
    """
    shown: list[Path] = []
    home = Path(os.path.realpath(Path.home()))
    # guard: a repository could name anything
    for path in [Path(word) for word in server.command if word.startswith("/") and server.own]:
        if not os.access(path, os.R_OK):
            continue
        around = path.parent if path.is_file() else path
        if not home.is_relative_to(os.path.realpath(around)):
            shown.append(around)
        elif path.is_file():  # never expose a whole home directory or a parent of it
            shown.append(path)
    return tuple(shown)


def _own_places(server: McpServer) -> tuple[str, str] | None:
    """Return the user's home and temporary directory for a server that is not isolated, else None."""
    if server.isolated:
        return None
    return os.environ.get("HOME") or str(Path.home()), tempfile.gettempdir()
