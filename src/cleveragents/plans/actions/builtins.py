"""The built-in actions: YAML files beside this module, read like any other action.

The file of `builtin/NAME` is `NAME.yaml`. Parsing takes milliseconds, so a single action is read alone.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from cleveragents.core.actions.model import BUILTIN_NAMESPACE, Action, is_action_name
from cleveragents.plans.actions.loader import load_action

__all__ = ["builtin_action", "builtin_actions"]

_FOLDER = Path(__file__).parent / "builtin"


def builtin_actions() -> tuple[Action, ...]:
    """Return all built-in actions, by name."""
    return tuple(_loaded(path) for path in sorted(_FOLDER.glob("*.yaml")))


def builtin_action(name: str) -> Action | None:
    """Return the built-in action with this name, or None."""
    namespace, _, stem = name.partition("/")
    path = _FOLDER / f"{stem}.yaml"
    known = namespace == BUILTIN_NAMESPACE and is_action_name(name) and path.is_file()
    return _loaded(path) if known else None


@cache
def _loaded(path: Path) -> Action:
    return load_action(path.read_bytes(), path.name)
