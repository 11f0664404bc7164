"""The commands that can go through a server, each with where it is."""

from __future__ import annotations

__all__ = ["COMMANDS"]

_HERE = "cleveragents.cli.client"

COMMANDS = {
    "run": f"{_HERE}.run:run",
    "context": f"{_HERE}.context:context",
    "plan": f"{_HERE}.plan.group:plan",
    "action": f"{_HERE}.catalogue:action",
    "actor": f"{_HERE}.catalogue:actor",
    "model": f"{_HERE}.catalogue:model",
    "project": f"{_HERE}.projects:project",
    "resource": f"{_HERE}.projects:resource",
    "trust": f"{_HERE}.trust:trust",
    "user": f"{_HERE}.users:user",
    "jobs": f"{_HERE}.jobs:jobs",
    "events": f"{_HERE}.events:events",
}
