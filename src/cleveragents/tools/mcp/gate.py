"""Gates decide which MCP servers may be used: no server is started or connected to without a permit.

`McpServers` takes permits, not servers, and only gates create permits: the gate in this module and the gate
of a plan. Variables of a server's entry are filled in later, so a server without a permit receives no value.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cleveragents.core.errors import ToolRefused
from cleveragents.tools.mcp.server_entry import McpServer

if TYPE_CHECKING:
    pass

__all__ = ["ServerPermit", "StartGate", "UserNamedGate"]


@dataclass(frozen=True, slots=True)
class ServerPermit:
    """The permission to start or connect to a server. Only gates create one."""

    server: McpServer


class StartGate(Protocol):
    """Decides which servers may be started or connected to."""

    def permit(self, server: McpServer) -> ServerPermit:
        """Return a permit for the server.

        Raises `PolicyDenied` or `CallDenied` if the server may not be used, `NeedsHuman` if a person must
        approve it first, and `ToolRefused` if isolation is required but not possible.
        """
        ...


@dataclass(frozen=True, slots=True)
class UserNamedGate:
    """Permits only the servers that a person named in a command."""

    names: Collection[str]

    def permit(self, server: McpServer) -> ServerPermit:
        if server.name not in self.names:  # guard: a command that names one server starts no other
            raise ToolRefused(
                f"MCP server {server.name}", "not started: the command does not name this server"
            )
        return ServerPermit(server)
