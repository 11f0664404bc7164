"""Templates over the state of an actor: what nodes say, ask and hand on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cleveragents.actors.graph.state import State, plain, public_values
from cleveragents.actors.model.actor import Actor
from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.template import filled

__all__ = ["filled_text", "filled_values"]


def filled_text(template: str, state: State) -> str:
    """A text; lists and objects in it are spelt as JSON, what is not there as nothing."""
    return str(filled(template, _Spelt(state))) if "$" in template else template


def filled_values(template: Mapping[str, JsonValue], actor: Actor, state: State) -> dict[str, Any]:
    """Each with its type where it is nothing but a reference."""
    values: dict[str, Any] = plain(filled(template, public_values(actor, state)))
    return values


class _Spelt(dict[str, JsonValue]):
    """Keys of the state as text, each spelt when it is asked for: mostly they are many, and few are wanted.
    No template names a channel of our own, because an actor's templates are checked against its keys."""

    __slots__ = ("_state",)

    def __init__(self, state: State) -> None:
        self._state = state

    def __missing__(self, name: str) -> JsonValue:
        return _spelt(self._state[name])


def _spelt(value: Any) -> JsonValue:
    if value is None:
        return ""
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False, indent=1)
    return str(value).lower() if isinstance(value, bool) else str(value)
