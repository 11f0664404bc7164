"""Every start of a server or agent, and every connection to a server, passes the policy's gate.

Each name below starts something or leads to it, with the modules that may use it. A new way to start a server
or an agent fails this test until it passes the gate.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "cleveragents"
USERS = {
    # Only gates create permits, and everything after the gate takes a permit or a value derived from one.
    "tools/mcp/gate.py ServerPermit": {"tools/mcp/gate.py", "plans/tools/mcp_gate.py"},
    "tools/mcp/connection.py filled": {"tools/mcp/connection.py"},
    "tools/mcp/launch.py program_for": {"tools/mcp/connection.py"},
    "tools/mcp/connection.py http_streams": {"tools/mcp/connection.py"},
    "tools/mcp/connection.py stdio_streams": {"tools/mcp/connection.py"},
    "tools/mcp/connection.py ServerConnection": {"tools/mcp/servers.py"},
    "tools/mcp/servers.py McpServers": {"tools/mcp/tools.py"},
    # A caller that opens servers names the gate: a plan its policy, a typed command the given name.
    "tools/mcp/tools.py open_mcp": {"app/actor_parts.py", "cli/admin/tool_sandbox.py"},
    "plans/tools/mcp_gate.py PlanGate": {"app/actor_parts.py"},
    "tools/mcp/gate.py UserNamedGate": {"cli/admin/tool_sandbox.py"},
    # Interactive programs: MCP servers, and agents, for which a session asks the policy.
    "processes/stdio_process.py stdio_program": {
        "tools/mcp/launch.py",
        "actors/external/acp/session.py",
    },
    "processes/stdio_process.py StdioProcess": {
        "tools/mcp/connection.py",
        "actors/external/acp/session.py",
    },
    "actors/external/acp/session.py agent_program": {"actors/external/acp/session.py"},
    "actors/external/acp/session.py AcpSession": {"actors/external/acp/agents.py"},
    "actors/external/acp/agents.py AcpAgents": {"app/actor_parts.py"},
    "plans/agents/sessions.py AgentSessions": {"plans/actors/actor_tools.py"},
}
CLIENTS = {
    # Libraries that open connections to servers or agents, and the modules that may import them for that.
    "mcp.client": {"tools/mcp/connection.py"},
    "httpx2": {"tools/mcp/connection.py"},
    "a2a.client": set[str](),
}


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    return {
        str(path.relative_to(SOURCE)): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(SOURCE.rglob("*.py"))
    }


@pytest.fixture(scope="module")
def called(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Return the calls of each module, collected once because walking the trees is slow."""
    return {path: _called(tree) for path, tree in trees.items()}


@pytest.fixture(scope="module")
def imported(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Return the imports of each module."""
    return {path: _imported(tree) for path, tree in trees.items()}


@pytest.mark.parametrize("what", USERS)
def test_servers_and_agents_are_started_in_one_place(
    trees: dict[str, ast.Module], called: dict[str, set[str]], imported: dict[str, set[str]], what: str
) -> None:
    home, name = what.split()
    assert name in {getattr(node, "name", "") for node in trees[home].body}
    users = {path for path, names in called.items() if name in names and _reaches(path, imported[path], home)}
    assert users == USERS[what]


@pytest.mark.parametrize("library", CLIENTS)
def test_a_client_library_is_imported_behind_the_gate_alone(
    imported: dict[str, set[str]], library: str
) -> None:
    users = {
        path
        for path, modules in imported.items()
        if any(one == library or one.startswith(f"{library}.") for one in modules)
    }
    assert users == CLIENTS[library]


def test_a_permit_is_all_that_servers_are_started_by() -> None:
    from typing import get_type_hints

    from cleveragents.tools.mcp.connection import ServerConnection, filled
    from cleveragents.tools.mcp.gate import ServerPermit
    from cleveragents.tools.mcp.servers import McpServers

    for starting in (McpServers.tools, McpServers.call, ServerConnection.__init__, filled):
        assert get_type_hints(starting)["permit"] is ServerPermit


def test_agents_are_given_no_servers(trees: dict[str, ast.Module]) -> None:
    """An agent would start servers itself, without a gate, so it gets only permitted ones."""
    given = [
        ast.unparse(keyword.value)
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "mcp_servers"
    ]
    assert set(given) == {"[]"}


def _called(tree: ast.Module) -> set[str]:
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = {func.id for func in calls if isinstance(func, ast.Name)}
    return names | {func.attr for func in calls if isinstance(func, ast.Attribute)}


def _reaches(path: str, imported: set[str], home: str) -> bool:
    """Return whether a module defines the name, or imports it or from its module."""
    return path == home or f"cleveragents.{home.removesuffix('.py').replace('/', '.')}" in imported


def _imported(tree: ast.Module) -> set[str]:
    """Return the imported modules, and the names imported from them."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found
