"""The built-in actions: YAML files beside this module, read like any other action."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from cleveragents.core.actions.model import Action
from cleveragents.plans.actions.loader import load_action

__all__ = ["builtin_actions"]


@lru_cache(maxsize=1)
def builtin_actions() -> tuple[Action, ...]:
    """Return all built-in actions, by name."""
    folder = files("cleveragents.plans.actions") / "builtin"
    found = [
        load_action(entry.read_bytes(), entry.name)
        for entry in folder.iterdir()
        if entry.name.endswith(".yaml")
    ]
    return tuple(sorted(found, key=lambda action: action.name))
