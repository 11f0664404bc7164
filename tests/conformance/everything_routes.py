"""The reference server of MCP's Python SDK behind our MCP endpoint.

The suite expects tools, resources and prompts of its own, for example `test_image_content`, which a product
does not have. The SDK has a server with all of them: its file is named by `MCP_EVERYTHING_SERVER`, because it
is not part of any package. Behind our endpoint it shows that the endpoint carries every feature.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING

from cleveragents.protocols.mcp_routes import McpEndpoint

if TYPE_CHECKING:
    from mcp.server import MCPServer
    from starlette.routing import BaseRoute

__all__ = ["PATH", "VARIABLE", "is_installed", "routes"]

PATH = "/everything"
VARIABLE = "MCP_EVERYTHING_SERVER"


def is_installed() -> bool:
    """Return whether the file of the reference server is named."""
    return VARIABLE in os.environ


def routes() -> list[BaseRoute]:
    """Return the route of the reference server."""
    from starlette.routing import Route

    return [Route(PATH, McpEndpoint(_server), methods=["POST"])]


@cache
def _server() -> MCPServer:
    spec = spec_from_file_location("everything_server", os.environ[VARIABLE])
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    server: MCPServer = module.mcp
    return server
