"""Imports all modules that commands import on demand: for processes that fork for each command."""

from __future__ import annotations

import importlib
import pkgutil

import cleveragents

__all__: list[str] = []

# Every command that works on plans needs these by now.
_ALREADY = ("cleveragents.cli.commands", "cleveragents.cli.run.command", "alembic.command")

_FEATURES = (
    *("access", "actors", "apply", "changes", "config", "context", "contrib", "core", "events", "git"),
    *("jobs", "models", "plans", "processes", "sandboxes", "storage", "tools"),
)

for _name in _ALREADY:
    importlib.import_module(_name)
for _module in pkgutil.walk_packages(cleveragents.__path__, "cleveragents."):
    # A guard is a separate program, and would take over this process if it were imported.
    apart = _module.name.endswith(".guard") or ".migrations" in _module.name
    if _module.name.split(".")[1] in _FEATURES and not apart:
        importlib.import_module(_module.name)
