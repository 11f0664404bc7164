"""The state of an actor's graph: a channel for every key, and a few of our own that no key can be called.

Channels hold plain JSON only, because checkpoints keep them and another process goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from cleveragents.domain.actor import (
    GIVEN,
    Actor,
    LlmNode,
    Reducer,
    StateKey,
    StateType,
)
from cleveragents.domain.json_value import JsonValue, freeze, thaw
from cleveragents.errors import InvalidPayload

__all__ = [
    "ACCOUNT",
    "State",
    "first_state",
    "messages_of",
    "plain",
    "public_values",
    "said",
    "state_schema",
    "talk_of",
]

State = Mapping[str, Any]

# A colon keeps them apart from keys, and from nodes: LangGraph allows none in a node's name.
ACCOUNT = ":account"
"""What the run has spent, its subgraphs included: `steps` (model and tool calls), `tokens`, `money` (in
picodollars); how often each node was left, in `visits`, because its calls are named by that; and the `path`
of subgraphs that leads here. A write adds to it."""

_EMPTY: Mapping[StateType, JsonValue] = {
    "string": "",
    "integer": 0,
    "number": 0,
    "boolean": False,
    "list": (),
    "object": {},
}


def messages_of(node: str) -> str:
    """The channel of what a model and its tools said: a write adds messages, or replaces them all."""
    return f"messages:{node}"


def talk_of(node: str) -> str:
    """The channel of an llm node's counters."""
    return f"talk:{node}"


def said(*messages: JsonValue, replacing: bool = False) -> dict[str, Any]:
    """A write to a channel of messages."""
    return {"replacing": replacing, "messages": [plain(message) for message in messages]}


def state_schema(actor: Actor) -> type[Any]:
    """As LangGraph wants it: annotations by name, with a reducer for each key that has one."""
    fields: dict[str, Any] = dict.fromkeys(GIVEN, str)
    fields |= {key.name: _channel(key) for key in actor.state}
    fields[ACCOUNT] = Annotated[dict, _counted]
    for node in actor.nodes:
        if isinstance(node, LlmNode):
            fields[messages_of(node.name)] = Annotated[list, _told]
            fields[talk_of(node.name)] = dict
    return type("ActorState", (dict,), {"__annotations__": fields})


def first_state(actor: Actor, inputs: Mapping[str, JsonValue], *, path: str) -> dict[str, Any]:
    """What a run begins with. `InvalidPayload` for an input that the actor has no key for."""
    values: dict[str, Any] = dict.fromkeys(GIVEN, "")
    for key in actor.state:
        values[key.name] = plain(_EMPTY[key.type] if key.default is None else key.default)
    for name, value in inputs.items():
        if name not in values:  # guard: an input that nobody reads is a mistake of the caller
            raise InvalidPayload(f"the inputs of actor {actor.name}", f"it has no key {name!r}")
        values[name] = plain(value)
    for node in actor.nodes:
        if isinstance(node, LlmNode):
            values[messages_of(node.name)] = said(replacing=True)
            values[talk_of(node.name)] = {}
    counted = {"steps": 0, "tokens": 0, "money": 0, "visits": {}}
    return {**values, ACCOUNT: {"path": path, **counted}}


def public_values(actor: Actor, state: State) -> dict[str, Any]:
    """The keys, without channels of our own."""
    names = (*GIVEN, *(key.name for key in actor.state))
    return {name: state[name] for name in names if name in state}


def plain(value: object) -> Any:
    """Dicts and lists all the way down."""
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


def _told(left: list[Any], right: dict[str, Any]) -> list[Any]:
    messages: list[Any] = right["messages"]
    return messages if right["replacing"] else [*left, *messages]


_REDUCERS: Mapping[Reducer, tuple[type[Any], Callable[[Any, Any], Any]]] = {
    "append": (list, _append),
    "sum": (int, _sum),
    "merge": (dict, _merge),
}
