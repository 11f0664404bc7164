"""MCP servers for tests: their configuration and environment."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cleveragents.core.json_value import JsonValue
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.processes.guarded_runner import Isolation
from cleveragents.processes.ports import StopSignal
from cleveragents.tools.files.confined_files import ConfinedFiles
from cleveragents.tools.mcp.configuration import McpConfiguration
from cleveragents.tools.mcp.gate import UserNamedGate
from cleveragents.tools.mcp.launch import ServerPlace
from cleveragents.tools.mcp.server_entry import McpServer
from cleveragents.tools.mcp.tools import McpTools, open_mcp
from cleveragents.tools.ports import Workplace

__all__ = ["PROGRAMS", "called", "configured", "misbehaving", "open_permitted", "place", "well_behaved"]

PROGRAMS = Path(__file__).parent / "mcp_servers"


def well_behaved(**variables: str) -> McpServer:
    return _server("good", PROGRAMS / "well_behaved.py", variables=variables)


def misbehaving(way: str, **variables: str) -> McpServer:
    return _server("bad", PROGRAMS / "misbehaving.py", way, variables=variables)


def configured(*servers: McpServer) -> McpConfiguration:
    return McpConfiguration({server.name: server for server in servers})


def open_permitted(
    configuration: McpConfiguration, place: ServerPlace, stop: StopSignal | None = None, **more: Any
) -> AbstractContextManager[McpTools]:
    """Return the tools of these servers, all permitted to start."""
    return open_mcp(configuration, place, UserNamedGate(configuration.servers), stop, **more)


def place(root: Path, isolation: Isolation = "off", **markers: str) -> ServerPlace:
    """Return a place where the servers' programs are visible, wherever the tests are."""
    return ServerPlace(
        root=root,
        directory=root,
        readable=(PROGRAMS,),
        isolation=isolation,
        markers=markers,
        grace_seconds=0.5,
    )


def called(
    tools: McpTools, name: str, root: Path, token: CancellationToken | None = None, **arguments: JsonValue
) -> Mapping[str, JsonValue]:
    workplace = Workplace(ConfinedFiles(root), _no_commands, token or CancellationToken())
    found = tools.get(name).call(arguments, workplace)
    assert isinstance(found, Mapping)
    return found


def _server(name: str, *words: object, variables: Mapping[str, str]) -> McpServer:
    command = (sys.executable, *map(str, words))
    return McpServer(name, "mcp.json", True, command, environment=MappingProxyType(dict(variables)))


def _no_commands(argv: tuple[str, ...], *, directory: str, timeout_seconds: float) -> object:
    raise AssertionError("an MCP tool runs no command of ours")
