"""The commands that can go through a server, each with where it is."""

from __future__ import annotations

__all__ = ["COMMANDS", "EITHER_WAY"]

_HERE = "cleveragents.cli.client"

COMMANDS = {
    "run": f"{_HERE}.run:run",
    "plan": f"{_HERE}.plan.group:plan",
}

EITHER_WAY = (
    *("action", "actor", "context", "events", "jobs", "mcp", "model"),
    *("project", "resource", "trust", "user"),
)
"""Commands that use `session.client()`: one implementation for this machine and for a server."""
