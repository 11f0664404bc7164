"""Temporary sandboxes for trying a tool by hand without changing the user's files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.cli.session import Session
from cleveragents.core.policy import Capability, Verdict, profile

if TYPE_CHECKING:
    from cleveragents.processes.ports import CommandRunner
    from cleveragents.sandboxes.git_sandbox import Sandbox
    from cleveragents.tools.mcp.configuration import McpConfiguration
    from cleveragents.tools.mcp.launch import ServerPlace
    from cleveragents.tools.mcp.tools import McpTools
    from cleveragents.tools.ports import ToolSource

__all__ = ["ToolSandbox", "isolated_mcp_tools", "temporary_tool_sandbox"]


@dataclass(frozen=True, slots=True)
class ToolSandbox:
    """A temporary sandbox of the current repository, and its tools."""

    sandbox: Sandbox
    tools: ToolSource
    commands: CommandRunner
    network: bool
    network_denied: bool


@contextmanager
def temporary_tool_sandbox(session: Session, tool: str) -> Iterator[ToolSandbox]:
    """Create a sandbox from the current files, and remove it on exit. Only the MCP server that `tool` names
    may be started."""
    from cleveragents.plans.actors.actor_tools import JoinedTools
    from cleveragents.sandboxes.ports import SandboxRequest
    from cleveragents.sandboxes.resources import find_resource
    from cleveragents.tools.mcp.configuration import load_mcp, user_mcp_file
    from cleveragents.tools.mcp.gate import UserNamedGate
    from cleveragents.tools.mcp.tool_list import server_in
    from cleveragents.tools.mcp.tools import open_mcp

    container = session.container()
    parts = container.plan_parts
    resource, _ = find_resource(Path.cwd())
    configuration = load_mcp(user_mcp_file(os.environ), resource, parts.trust)
    request = SandboxRequest(f"tool-{container.identifiers.new()}", resource)
    try:
        sandbox = parts.sandboxes.create(request)
        place = _place(session, sandbox.root, sandbox.readable, resource)
        with open_mcp(configuration, place, UserNamedGate({server_in(tool)})) as mcp:
            tools = JoinedTools(parts.tools, mcp)
            denied = _network(session) is Verdict.DENY
            yield ToolSandbox(sandbox, tools, parts.commands(resource), place.network, denied)
    finally:
        parts.sandboxes.remove(request.plan_id)


@contextmanager
def isolated_mcp_tools(session: Session, configuration: McpConfiguration, server: str) -> Iterator[McpTools]:
    """Yield the tools of an MCP server that runs in an empty directory."""
    from cleveragents.sandboxes.resources import find_resource
    from cleveragents.tools.mcp.gate import UserNamedGate
    from cleveragents.tools.mcp.tools import open_mcp

    resource, _ = find_resource(Path.cwd())
    with (
        tempfile.TemporaryDirectory(prefix="cleveragents-mcp-") as root,
        open_mcp(configuration, _place(session, Path(root), (), resource), UserNamedGate({server})) as tools,
    ):
        yield tools


def _network(session: Session) -> Verdict:
    return profile(session.configuration().settings.plan.profile).verdict(Capability.NETWORK)


def _place(session: Session, root: Path, readable: tuple[Path, ...], resource: Path) -> ServerPlace:
    from cleveragents.tools.mcp.launch import ServerPlace

    settings = session.configuration().settings
    names = settings.plan.pass_environment.split(",")
    return ServerPlace(
        root=root,
        directory=root,
        readable=readable,
        network=_network(session) is Verdict.ALLOW,
        isolation=settings.sandbox.isolation,
        hidden=(resource, Path(settings.state.directory)),
        allowed_names=tuple(name.strip() for name in names if name.strip()),
        secrets=session.secrets,
    )
