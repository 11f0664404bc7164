"""A program that is talked to over its standard streams, as the guard runs it: an MCP server, an agent."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from cleveragents.core.errors import ToolRefused
from cleveragents.core.text.known_secrets import KnownSecrets
from cleveragents.processes.bubblewrap import (
    HOME,
    TEMPORARY,
    BubblewrapProbe,
    arguments_for,
    seccomp_for,
    shared_probe,
)
from cleveragents.processes.environment import command_environment
from cleveragents.processes.guard_process import COMMAND_MARKER
from cleveragents.processes.guard_protocol import GuardProgram
from cleveragents.processes.guarded_runner import Isolation
from cleveragents.processes.lent import furnish, keep_secrets_of
from cleveragents.processes.ports import HOME_IN_ARGV, Command
from cleveragents.processes.program_lookup import ensure_network_denied, find_program

__all__ = ["ProgramPlace", "bubblewrap_for", "talking_program"]

_LONGEST_SECONDS = 30 * 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramPlace:
    """What programs of one stage get to see.

    `root` is the sandbox's tree and `directory` where they start, inside it. Unless `writable`, one that is
    isolated sees the tree and cannot change it. `markers` name the attempt, so that whoever looks for its
    processes finds these, too. What the programs are given of the user's secrets is added to `secrets`. The
    rest is as for commands.
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
    secrets: KnownSecrets = field(default_factory=KnownSecrets)
    network_denied: bool = False


def bubblewrap_for(place: ProgramPlace, who: str) -> str | None:
    """Where it is, if it is to be used. `ToolRefused` if it must be and cannot."""
    if place.isolation == "off":
        return None
    result = place.probe.result()
    if result.program is None and place.isolation == "require":
        raise ToolRefused(who, f"it cannot be isolated: {result.remedy}")
    return result.program


def talking_program(
    command: Command,
    place: ProgramPlace,
    private: Path,
    bubblewrap: str | None,
    own_places: tuple[str, str] | None = None,
) -> GuardProgram:
    """What the guard runs; `private` is a directory for the program alone, which the caller removes.

    Its home and its temporary directory are empty ones, unless it has `own_places`, or the command says what
    is in its home. `ToolRefused` if there is no such program, or nothing keeps it from a denied network.
    """
    ensure_network_denied(command, isolated=bubblewrap is not None)
    empty = (str(private / "home"), str(private / "tmp")) if bubblewrap is None else (HOME, TEMPORARY)
    home, temporary = own_places or empty
    hidden = place.hidden if own_places is None else ()
    if command.home is not None:
        furnish(private / "home", command.home, command.argv[0])
        command = replace(command, argv=tuple(word.replace(HOME_IN_ARGV, home) for word in command.argv))
    keep_secrets_of(place.allowed_names, os.environ, place.secrets)
    markers = {**place.markers, COMMAND_MARKER: uuid.uuid4().hex}
    environment = command_environment(
        replace(command, markers=markers),
        os.environ,
        home=home,
        temporary=temporary,
        hidden=hidden,
        allowed_names=place.allowed_names,
    )
    found = find_program(command, environment["PATH"], os.environ.get("PATH", ""))
    program: GuardProgram = {
        "executable": str(found),
        "argv": [*command.argv],
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
        "processes": command.processes,
    }
    if bubblewrap is not None:
        # guard: bubblewrap runs outside, so nothing that a program brings (LD_PRELOAD) may reach it
        program["environment"] = markers
        program["directory"] = "/"
        program["executable"] = bubblewrap
        program["argv"] = [bubblewrap, "--", *command.argv]
        filtered = seccomp_for(bubblewrap)
        program["seccomp"] = None if filtered is None else filtered.hex()
        program["arguments"] = arguments_for(
            command,
            environment,
            bubblewrap=bubblewrap,
            program=found,
            hidden=place.hidden,
            home=None if command.home is None else private / "home",
        )
    return program
