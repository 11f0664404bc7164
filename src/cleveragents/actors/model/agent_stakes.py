"""What an agent or an MCP server runs and receives, in words for the person who approves or denies it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cleveragents.core.json_value import JsonValue

__all__ = ["at_stake", "server_request"]


_SHOWN = 300


def server_request(arguments: Mapping[str, JsonValue]) -> str:
    """What the start of an MCP server, or a connection to it, does and gives away."""
    name, url = arguments.get("server"), arguments.get("url")
    target = f"connect to MCP server {name} at {url}" if url else f"start MCP server {name}"
    if not url:
        target += f": {arguments.get('command')}"
    # The variables come first, and the target is cut: a long command hides nothing.
    received = [f"your variable {one}" for one in _names(arguments.get("variables"))]
    received += [f"header {one}" for one in _names(arguments.get("headers"))]
    received += [f"env {one}" for one in _names(arguments.get("env"))]
    target = target if len(target) <= _SHOWN else f"{target[:_SHOWN]}…"
    said = f"{target}; it receives {', '.join(received) or 'none of your variables'}"
    return f"{said}; it runs without isolation" if arguments.get("isolated") is False else said


def at_stake(arguments: Mapping[str, JsonValue]) -> str:
    """In words, to be put behind the question; nothing for calls that are no agent's."""
    argv = _names(arguments.get("argv"))
    if not argv or "environment" not in arguments or "home" not in arguments:
        return ""
    variables, home = _names(arguments["environment"]), _names(arguments["home"])
    gets = [
        f"your variables {', '.join(variables)}" if variables else "none of your variables",
        f"copies of {', '.join(f'~/{path}' for path in home)}" if home else "nothing of your home",
        "the network" if arguments.get("network") else "no network",
    ]
    return f": it runs {argv[0]}, which gets {', '.join(gets[:-1])} and {gets[-1]}"


def _names(value: JsonValue) -> list[str]:
    many = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
    return [str(one) for one in many]
