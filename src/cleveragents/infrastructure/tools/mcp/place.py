"""Where servers run: what of the machine they see, and how a server's command becomes a guarded process."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from cleveragents.application.ports.commands import Command
from cleveragents.errors import InvalidToolCall, OutsideSandbox, ToolRefused
from cleveragents.infrastructure.commands.bubblewrap import (
    HOME,
    TEMPORARY,
    BubblewrapProbe,
    arguments_for,
    shared_probe,
)
from cleveragents.infrastructure.commands.environment import command_environment
from cleveragents.infrastructure.commands.guard_process import COMMAND_MARKER
from cleveragents.infrastructure.commands.guard_protocol import GuardProgram
from cleveragents.infrastructure.commands.guarded_runner import Isolation
from cleveragents.infrastructure.commands.private_directory import make_directory, remove_directory
from cleveragents.infrastructure.commands.program_lookup import check_command, find_program
from cleveragents.infrastructure.tools.mcp.server_entry import McpServer

__all__ = ["ServerPlace", "program_for"]

# A guard gives a command one descriptor for all it says, and a server's messages must not be mixed with its
# complaints. So its input is a socket, which goes both ways, and only what it complains of takes the pipe.
_TALK_BACK = ("/bin/sh", "-c", 'exec "$@" >&0', "sh")
_LONGEST_SECONDS = 30 * 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlace:
    """What servers of one stage get to see.

    `root` is the sandbox's tree and `directory` where servers start, inside it. Unless `writable`, an
    isolated server sees the tree and cannot change it. `markers` name the attempt, so that whoever looks for
    its processes finds these, too. The rest is as for commands.
    """

    root: Path
    directory: Path
    writable: bool = True
    network: bool = False
    readable: tuple[Path, ...] = ()
    markers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    isolation: Isolation = "auto"
    hidden: tuple[Path, ...] = ()
    allowed_names: tuple[str, ...] = ()
    grace_seconds: float = 2.0
    probe: BubblewrapProbe = shared_probe


def program_for(server: McpServer, place: ServerPlace) -> GuardProgram:
    """What the guard runs. `ToolRefused`: there is no such program, or it cannot be isolated though it must.

    The directory that it names as `private` is the caller's to remove.
    """
    who = f"MCP server {server.name}"
    bubblewrap = _bubblewrap(server, place, who)
    private = make_directory()
    try:
        return _program(server, place, private, bubblewrap)
    except (ToolRefused, InvalidToolCall, OutsideSandbox) as error:
        remove_directory(str(private))
        reason = error.reason if isinstance(error, ToolRefused) else str(error)
        raise ToolRefused(who, f"{reason} ({server.source})") from error


def _bubblewrap(server: McpServer, place: ServerPlace, who: str) -> str | None:
    if not server.isolated or place.isolation == "off":
        return None
    result = place.probe.result()
    if result.program is None and place.isolation == "require":
        raise ToolRefused(who, f"it cannot be isolated: {result.remedy}")
    return result.program


def _program(server: McpServer, place: ServerPlace, private: Path, bubblewrap: str | None) -> GuardProgram:
    command = _command(server, place, private, isolated=bubblewrap is not None)
    markers = {**place.markers, COMMAND_MARKER: uuid.uuid4().hex}
    home, temporary = _own_places(server, private, isolated=bubblewrap is not None)
    environment = command_environment(
        replace(command, markers=markers),
        os.environ,
        home=home,
        temporary=temporary,
        hidden=place.hidden if server.isolated else (),
        allowed_names=place.allowed_names,
    )
    found = find_program(command, environment["PATH"], os.environ.get("PATH", ""))
    program: GuardProgram = {
        "executable": _TALK_BACK[0],
        "argv": [*_TALK_BACK, *command.argv],
        "arguments": None,
        "environment": environment,
        "markers": markers,
        "directory": str(command.directory),
        "output": -1,
        "input": -1,
        "timeout_seconds": _LONGEST_SECONDS,
        "grace_seconds": place.grace_seconds,
        "parent": 0,
        "path": [],
        "private": str(private),
    }
    if bubblewrap is not None:
        # guard: bubblewrap runs outside, so nothing that a server brings (LD_PRELOAD) may reach it
        program["environment"] = markers
        program["directory"] = "/"
        program["executable"] = bubblewrap
        program["argv"] = [bubblewrap, "--", *_TALK_BACK, *command.argv]
        program["arguments"] = arguments_for(command, environment, program=found, hidden=place.hidden)
    return program


def _command(server: McpServer, place: ServerPlace, private: Path, *, isolated: bool) -> Command:
    directory = place.directory / server.directory  # an absolute one stays as it is
    command = Command(
        argv=server.command,
        root=place.root if server.isolated else directory,
        directory=directory,
        network=place.network,
        readable=(*place.readable, *_named(server)),
        environment=server.environment,
    )
    check_command(command)
    if isolated and not place.writable:  # guard: who may only read sees a tree that nobody can write
        return replace(command, root=private, readable=(*command.readable, place.root))
    return command


def _named(server: McpServer) -> tuple[Path, ...]:
    """What the user's own command names: its script, with what lies beside it, or a directory to look at."""
    shown: list[Path] = []
    home = Path(os.path.realpath(Path.home()))
    # guard: a repository could name anything
    for path in [Path(word) for word in server.command if word.startswith("/") and server.own]:
        if not os.access(path, os.R_OK):
            continue
        around = path.parent if path.is_file() else path
        if not home.is_relative_to(os.path.realpath(around)):
            shown.append(around)
        elif path.is_file():  # a home is never shown as a whole, nor what holds it
            shown.append(path)
    return tuple(shown)


def _own_places(server: McpServer, private: Path, *, isolated: bool) -> tuple[str, str]:
    """Its home and its temporary directory: empty ones, unless the user wants it to have theirs."""
    if isolated:
        return HOME, TEMPORARY
    if server.isolated:
        return str(private / "home"), str(private / "tmp")
    return os.environ.get("HOME") or str(Path.home()), tempfile.gettempdir()
