"""Opens the MCP tools of a stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cleveragents.processes.ports import StopSignal
from cleveragents.tools.mcp.configuration import McpConfiguration
from cleveragents.tools.mcp.connection import Patience
from cleveragents.tools.mcp.gate import StartGate
from cleveragents.tools.mcp.place import ServerPlace
from cleveragents.tools.mcp.servers import McpServers
from cleveragents.tools.mcp.tools import McpTools

__all__ = ["open_mcp"]


@contextmanager
def open_mcp(
    configuration: McpConfiguration,
    place: ServerPlace,
    gate: StartGate,
    stop: StopSignal | None = None,
    *,
    patience: Patience | None = None,
    say: Callable[[str], None] | None = None,
) -> Iterator[McpTools]:
    """The tools of those servers, for as long as the context lasts.

    Entering starts nothing, not even a thread. When it is left, no server is alive, nor any process that one
    started. A server is started or connected to once the gate permits it. `stop` ends a start or a listing
    that is under way; a call watches its own. What cannot be used is said, once, when all tools are listed.
    """
    with McpServers(place, patience) as servers:
        yield McpTools(servers, configuration, gate, stop, say)
