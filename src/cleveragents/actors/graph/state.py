"""The state of an actor's graph: a channel for every key, and internal channels whose names no key can have.

Channels hold only plain JSON, because checkpoints store them and another process may continue from a
checkpoint. Templates over the state produce prompts, questions and arguments.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

from cleveragents.actors.model.actor import (
    GIVEN,
    Actor,
    LlmNode,
    Reducer,
    StateKey,
    StateType,
    choices_key,
)
from cleveragents.core.errors import ActorStopped, InvalidPayload
from cleveragents.core.json_value import JsonValue, freeze, thaw
from cleveragents.core.text.template import filled

__all__ = [
    "ACCOUNT",
    "TALKS",
    "State",
    "answer_schema",
    "counters_in",
    "filled_text",
    "filled_values",
    "first_state",
    "messages_in",
    "plain",
    "public_values",
    "said",
    "state_schema",
]


State = Mapping[str, Any]

# The colon separates them from keys and from nodes: LangGraph forbids it in node names.
ACCOUNT = ":account"
"""The run's account, including subgraphs: `steps` (model and tool calls), `tokens` and `money` (picodollars);
`visits`, the number of completed visits per node, which names its calls; and `path`, the subgraphs that lead
here. A write adds to it.
"""

TALKS = ":talks"
"""The conversations of the llm nodes, by node: `messages`, and `counters`, which outlast a conversation. They
share one channel, because LangGraph inspects every channel at every step. A finished conversation is emptied,
so that checkpoints store only running ones. `said` creates a write.
"""
_MOST_CHOICES = 500
_SILENCE: Mapping[str, Any] = {"messages": [], "counters": {}}
_EMPTY: Mapping[StateType, JsonValue] = {
    "string": "",
    "integer": 0,
    "number": 0,
    "boolean": False,
    "list": (),
    "object": {},
}


def messages_in(state: State, node: str) -> list[Any]:
    """Return the messages of an llm node's current conversation."""
    messages: list[Any] = state[TALKS][node]["messages"]
    return messages


def counters_in(state: State, node: str) -> dict[str, Any]:
    """Return a copy of an llm node's counters, to be changed and written back."""
    return dict(state.get(TALKS, {}).get(node, _SILENCE)["counters"])


def said(
    node: str, messages: Iterable[JsonValue], counters: Mapping[str, Any], *, replacing: bool = False
) -> dict[str, Any]:
    """Return a write that adds messages to a node's conversation, or replaces them all."""
    told = [plain(message) for message in messages]
    return {TALKS: {node: {"replacing": replacing, "messages": told, "counters": counters}}}


def state_schema(actor: Actor) -> type[Any]:
    """Return the state schema for LangGraph: annotations by name, with a reducer for each
    key that has one.
    """
    fields: dict[str, Any] = dict.fromkeys(GIVEN, str)
    fields |= {key.name: _channel(key) for key in actor.state}
    fields[ACCOUNT] = Annotated[dict, _counted]
    fields[TALKS] = Annotated[dict, _talked]
    return type("ActorState", (dict,), {"__annotations__": fields})


def first_state(actor: Actor, inputs: Mapping[str, JsonValue], *, path: str) -> dict[str, Any]:
    """Return the initial state of a run.

    Raises `InvalidPayload` for an unknown input, and `ActorStopped` for an input of the wrong type.
    """
    values: dict[str, Any] = dict.fromkeys(GIVEN, "")
    for key in actor.state:
        values[key.name] = plain(_EMPTY[key.type] if key.default is None else key.default)
    for name, value in inputs.items():
        if name not in values:  # guard: an unread input is a mistake of the caller
            raise InvalidPayload(f"the inputs of actor {actor.name}", f"the actor has no key {name!r}")
        values[name] = plain(value)
    for key in actor.state:
        if not key.takes(values[key.name]):  # guard: a reducer could not explain the error
            raise ActorStopped(actor.name, f"the input {key.name!r} must be of type {key.type}")
    counted = {"steps": 0, "tokens": 0, "money": 0, "visits": {}}
    return {**values, ACCOUNT: {"path": path, **counted}}


def public_values(actor: Actor, state: State) -> dict[str, Any]:
    """Return the values of the actor's keys, without internal channels."""
    names = (*GIVEN, *(key.name for key in actor.state))
    return {name: state[name] for name in names if name in state}


def plain(value: object) -> Any:
    """Convert a value to nested dicts and lists."""
    return thaw(freeze(value))


def _channel(key: StateKey) -> Any:
    reducer = _REDUCERS.get(key.reducer)
    if reducer is None:
        return Any
    kind, reduce = reducer
    return Annotated[kind, reduce]


def _append(left: list[Any], right: Any) -> list[Any]:
    return [*left, *right] if isinstance(right, list) else [*left, right]


def _sum(left: Any, right: Any) -> Any:
    return left + right


def _merge(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    return {**left, **right}


def _counted(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    if not left:
        return right
    sums = {name: left[name] + right.get(name, 0) for name in ("steps", "tokens", "money")}
    return {**left, **sums, "visits": {**left["visits"], **right.get("visits", {})}}


def _talked(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    talks = dict(left)
    for node, told in right.items():
        messages: list[Any] = told["messages"]
        if not told["replacing"]:
            messages = [*talks.get(node, _SILENCE)["messages"], *messages]
        talks[node] = {"messages": messages, "counters": told["counters"]}
    return talks


_REDUCERS: Mapping[Reducer, tuple[type[Any], Callable[[Any, Any], Any]]] = {
    "append": (list, _append),
    "sum": (int, _sum),
    "merge": (dict, _merge),
}


def filled_text(template: str, state: State) -> str:
    """Fill a template to a text. Lists and objects are written as JSON, None as an empty string."""
    return str(filled(template, _Spelt(state))) if "$" in template else template


def filled_values(template: Mapping[str, JsonValue], actor: Actor, state: State) -> dict[str, Any]:
    """Fill templates. A value that is only a reference keeps its type."""
    values: dict[str, Any] = plain(filled(template, public_values(actor, state)))
    return values


def answer_schema(node: LlmNode, state: State) -> dict[str, Any] | None:
    """Return the schema for an answer. `enum: ["${key}"]` of a property becomes the items of a list, or the
    lines of a text. The `enum` is left out if there are no items, or so many that a grammar for them would be
    huge.
    """
    if node.schema is None:
        return None
    schema: dict[str, Any] = plain(node.schema)
    for part in (schema.get("properties") or {}).values():
        key = choices_key(part)
        if key is not None:
            choices = _choices(state.get(key))
            part.pop("enum")
            part |= {"enum": choices} if 0 < len(choices) <= _MOST_CHOICES else {}
    return schema


def _choices(value: Any) -> list[Any]:
    if not isinstance(value, str):
        return value if isinstance(value, list) else []
    lines = dict.fromkeys(line.strip() for line in value.split("\n"))
    return [line for line in lines if line and not line.startswith("```")]


class _Spelt(dict[str, JsonValue]):
    """The values of the state as text, by key. They are converted on demand, because a template uses few of
    the many keys.

    No template can name an internal channel, because templates are checked against the actor's keys.
    """

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
