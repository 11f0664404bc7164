"""Whether the schema of an llm node's answer is one: JSON Schema that needs nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cleveragents.actors.model.actor import Actor, LlmNode
from cleveragents.config.yaml.shape import Problem
from cleveragents.core.json_value import JsonValue, thaw
from cleveragents.core.text.template import Place

__all__ = ["schema_problems"]


def schema_problems(actor: Actor) -> Iterator[Problem]:
    """What is wrong with the schemas of its nodes, and where."""
    for node in actor.nodes:
        if isinstance(node, LlmNode) and node.schema is not None:
            for place, problem in _problems(node.schema):
                yield ("nodes", node.name, "schema", *place), problem


def _problems(schema: Mapping[str, JsonValue]) -> Iterator[Problem]:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(thaw(schema))
    except SchemaError as error:
        place: Place = tuple(error.path)
        yield place, f"this is no JSON Schema: {error.message[:200]}"
    for place, name in _references(schema, ()):
        if not name.startswith("#/"):  # guard: a validator would fetch it from wherever it says
            yield place, f"{name[:60]!r} leads out of this schema; write it out, or refer to '#/$defs/…'"


def _references(part: JsonValue, place: Place) -> Iterator[tuple[Place, str]]:
    if isinstance(part, Mapping):
        for key, item in part.items():
            if key in ("$ref", "$dynamicRef", "$schema", "$id") and isinstance(item, str):
                yield (*place, key), item
            yield from _references(item, (*place, key))
    elif isinstance(part, (list, tuple)):
        for number, item in enumerate(part):
            yield from _references(item, (*place, number))
