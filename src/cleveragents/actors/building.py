"""From the values of a file to an actor, as far as they can be understood.

The shape may be wrong: then what is of another type counts as left out, so that the rules can still judge the
rest. Of a right shape nothing is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

from cleveragents.actors.model.actor import (
    AGENT_PROCESSES,
    AGENT_SECONDS,
    END,
    AcpNode,
    Actor,
    ActorLimits,
    CommandNode,
    HumanNode,
    LlmNode,
    Node,
    PromptBy,
    Reducer,
    Route,
    RouterNode,
    StateKey,
    StateType,
    SubgraphNode,
    ToolNode,
)
from cleveragents.config.yaml.shape import items_of, mapping_of
from cleveragents.core.json_value import FrozenObject, JsonValue, freeze

__all__ = ["ONLY_NODE", "understood"]

_Fields = Mapping[str, JsonValue]

ONLY_NODE: Mapping[str, str] = {"llm": "think", "tool": "call", "command": "work", "acp": "work"}
"""What the node of an actor that is not a graph is called, by the actor's type."""


def understood(data: _Fields, document: str) -> Actor:
    """The actor of the file."""
    only = ONLY_NODE.get(_text(data.get("type")))
    if only is None:
        nodes = tuple(_node(name, mapping_of(item)) for name, item in mapping_of(data.get("nodes")).items())
    else:
        nodes = (_node(only, {key: item for key, item in data.items() if key != "next"}),)
    first = nodes[0].name if nodes else END
    return Actor(
        name=_text(data.get("name")),
        entry=first if only else _text(data.get("entry")) or first,
        nodes=nodes,
        description=_text(data.get("description")).strip(),
        model=_optional(data.get("model")),
        state=tuple(_key(name, mapping_of(item)) for name, item in mapping_of(data.get("state")).items()),
        limits=_limits(mapping_of(data.get("limits"))),
        read_only=data.get("read_only") is True,
        document=document,
    )


def _node(name: str, fields: _Fields) -> Node:
    kind = fields.get("type")
    after = _texts(fields.get("next")) or (END,)
    if kind == "router":
        routes = (mapping_of(item) for item in items_of(fields.get("routes")))
        return RouterNode(
            name=name,
            routes=tuple(Route(_text(route.get("to")), _optional(route.get("when"))) for route in routes),
        )
    if kind == "tool":
        return ToolNode(
            name=name,
            tool=_text(fields.get("tool")),
            arguments=_object(fields.get("with")),
            output=_optional(fields.get("output")),
            next=after,
        )
    if kind == "subgraph":
        outputs = mapping_of(fields.get("outputs"))
        return SubgraphNode(
            name=name,
            actor=_text(fields.get("actor")),
            inputs=_object(fields.get("inputs")),
            outputs={ours: theirs for ours, theirs in outputs.items() if isinstance(theirs, str)},
            next=after,
        )
    if kind == "human":
        return HumanNode(
            name=name,
            question=_text(fields.get("question")),
            output=_text(fields.get("output")),
            choices=_texts(fields.get("choices")),
            next=after,
        )
    if kind == "command":
        return _command(name, fields, after)
    if kind == "acp":
        return AcpNode(**_agent(name, fields, after))
    return _llm(name, fields, after)


def _llm(name: str, fields: _Fields, after: tuple[str, ...]) -> LlmNode:
    schema = fields.get("schema")
    tokens = fields.get("max_output_tokens")
    return LlmNode(
        name=name,
        prompt=_text(fields.get("prompt")),
        system=_text(fields.get("system")),
        model=_optional(fields.get("model")),
        tools=_texts(fields.get("tools")),
        output=_optional(fields.get("output")),
        schema=FrozenObject(schema) if isinstance(schema, Mapping) else None,
        max_output_tokens=tokens if isinstance(tokens, int) else None,
        temperature=_number(fields.get("temperature")),
        next=after,
    )


def _command(name: str, fields: _Fields, after: tuple[str, ...]) -> CommandNode:
    way = fields.get("prompt_by")
    variables = mapping_of(fields.get("variables"))
    codes = tuple(code for code in items_of(fields.get("expect_exit")) if isinstance(code, int))
    return CommandNode(
        **_agent(name, fields, after),
        variables={key: value for key, value in variables.items() if isinstance(value, str)},
        prompt_by=cast(PromptBy, way) if way in get_args(PromptBy) else "stdin",
        expect_exit=codes or (0,),
    )


def _agent(name: str, fields: _Fields, after: tuple[str, ...]) -> dict[str, Any]:
    """What nodes for other agents have in common."""
    processes = fields.get("processes")
    return {
        "name": name,
        "argv": _texts(fields.get("argv")),
        "prompt": _text(fields.get("prompt")),
        "environment": _texts(fields.get("environment")),
        "home": _texts(fields.get("home")),
        "network": fields.get("network") is True,
        "seconds": _number(fields.get("seconds")) or AGENT_SECONDS,
        "processes": processes if isinstance(processes, int) else AGENT_PROCESSES,
        "output": _optional(fields.get("output")),
        "install": _text(fields.get("install")).strip(),
        "next": after,
    }


def _key(name: str, fields: _Fields) -> StateKey:
    kind = fields.get("type", "string")
    reducer = fields.get("reducer", "replace")
    return StateKey(
        name=name,
        type=cast(StateType, kind) if kind in get_args(StateType) else "string",
        reducer=cast(Reducer, reducer) if reducer in get_args(Reducer) else "replace",
        default=freeze(fields.get("default")),
        description=_text(fields.get("description")),
    )


def _limits(fields: _Fields) -> ActorLimits:
    steps, tokens = fields.get("steps"), fields.get("tokens")
    return ActorLimits(
        steps=steps if isinstance(steps, int) else ActorLimits().steps,
        tokens=tokens if isinstance(tokens, int) else None,
        usd=_number(fields.get("usd")),
        seconds=_number(fields.get("seconds")),
    )


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def _optional(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: JsonValue) -> float | None:
    return value if isinstance(value, (int, float)) else None


def _texts(value: JsonValue) -> tuple[str, ...]:
    return tuple(item for item in items_of(value) if isinstance(item, str))


def _object(value: JsonValue) -> FrozenObject:
    return FrozenObject(mapping_of(value))
