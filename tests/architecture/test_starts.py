"""Every program that is talked to, and every connection to a server, goes through the policy's gate.

Each name below starts something or leads to it. A module that uses one is listed here, so a new way to start
a server or an agent fails this test until it goes through the gate.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "cleveragents"
USERS = {
    # Permits are made by gates alone, and everything after the gate takes a permit, or what became of one.
    "tools/mcp/gate.py ServerPermit": {"tools/mcp/gate.py", "plans/tools/mcp_gate.py"},
    "tools/mcp/connection.py filled": {"tools/mcp/connection.py"},
    "tools/mcp/launch.py program_for": {"tools/mcp/connection.py"},
    "tools/mcp/connection.py http_streams": {"tools/mcp/connection.py"},
    "tools/mcp/connection.py stdio_streams": {"tools/mcp/connection.py"},
    "tools/mcp/connection.py ServerConnection": {"tools/mcp/servers.py"},
    "tools/mcp/servers.py McpServers": {"tools/mcp/tools.py"},
    # Whoever opens servers says by which gate: a plan by its policy, a typed command by the name it has.
    "tools/mcp/tools.py open_mcp": {"app/actor_parts.py", "cli/admin/tool_sandbox.py"},
    "plans/tools/mcp_gate.py PlanGate": {"app/actor_parts.py"},
    "tools/mcp/gate.py UserNamedGate": {"cli/admin/tool_sandbox.py"},
    # Programs that are talked to: MCP servers, and agents, for which a session asks the policy.
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
    # Libraries that open connections to servers or agents, and the modules that may import them to do so.
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
    """What each module calls. To walk all trees again for each name took longest here."""
    return {path: _called(tree) for path, tree in trees.items()}


@pytest.fixture(scope="module")
def imported(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """What each module imports."""
    return {path: _imported(tree) for path, tree in trees.items()}


@pytest.mark.parametrize("what", USERS)
def test_what_starts_a_server_or_an_agent_is_called_in_one_place(
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
    """An agent would start them itself, where no gate is. What is passed on has to have a permit."""
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
    """Whether the module is the home of the name, or imports from it, or imports it."""
    return path == home or f"cleveragents.{home.removesuffix('.py').replace('/', '.')}" in imported


def _imported(tree: ast.Module) -> set[str]:
    """The modules that are imported or imported from, and what is imported from them."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found
