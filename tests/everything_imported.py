"""Imports, when it is imported, what commands import when they need it: for processes that fork for each."""

from __future__ import annotations

import importlib
import pkgutil

import cleveragents.application.services
import cleveragents.infrastructure

__all__: list[str] = []

# By now these are needed by every command that works on plans.
_ALREADY = ("cleveragents.interfaces.cli.commands", "cleveragents.interfaces.cli.run", "alembic.command")

for _name in _ALREADY:
    importlib.import_module(_name)
for _package in (cleveragents.application.services, cleveragents.infrastructure):
    for _module in pkgutil.walk_packages(_package.__path__, f"{_package.__name__}."):
        # A guard is a program of its own, and takes this process for one if it is imported.
        if ".migrations" not in _module.name and not _module.name.endswith(".guard"):
            importlib.import_module(_module.name)
