"""The commands that can go through a server."""

from __future__ import annotations

__all__ = ["EITHER_WAY"]

EITHER_WAY = (
    *("action", "actor", "context", "events", "jobs", "mcp", "model"),
    *("plan", "project", "resource", "run", "trust", "user"),
)
"""Commands that use `session.client()`: one implementation for this machine and for a server."""
