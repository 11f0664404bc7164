"""Loading of actors from YAML, with a list of all mistakes.

Pydantic checks the shape and `actors/model/rules.py` the meaning; both check the whole file. Prompts may be
in separate files, which the caller's reader loads. The schema of an llm node's answer must be a JSON Schema
without external references.

A value of the wrong type counts as missing, so that the rules can still check the rest of the file. A correct
file is converted without loss.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast, get_args

from cleveragents.actors.conditions import Condition
from cleveragents.actors.model.actor import (
    AGENT_PROCESSES,
    AGENT_SECONDS,
    END,
    FIX_ATTEMPTS,
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
    is_actor_file,
)
from cleveragents.actors.model.rules import ActorEnvironment, actor_problems
from cleveragents.actors.ports import ActorSource
from cleveragents.actors.prompt_files import PromptReader, prompt_text
from cleveragents.config.yaml.document import DocumentKind, read_yaml
from cleveragents.config.yaml.shape import (
    Problem,
    Shape,
    did_you_mean,
    items_of,
    mapping_of,
    name_problem,
    refuse_problems,
    shape_problems,
)
from cleveragents.core.actions.model import is_action_name
from cleveragents.core.errors import InvalidActor
from cleveragents.core.json_value import FrozenObject, JsonValue, freeze, thaw
from cleveragents.core.text.template import Place

__all__ = ["ONLY_NODE", "actor_from", "load_actor", "schema_problems"]


_KIND = DocumentKind("actor", "name: namespace/name", InvalidActor)
_PROMPTS = ("system", "prompt")
_EXAMPLES = {
    "name": "name: team/helper",
    "type": "type: llm",
    "prompt": 'prompt: "${task}"',
    "tool": "tool: command",
    "entry": "entry: plan",
    "nodes": 'nodes: {plan: {type: llm, prompt: "${goal}"}}',
    "routes": "routes: [{to: end}]",
    "to": "to: end",
    "actor": "actor: builtin/executor",
    "question": "question: Go on?",
    "output": "output: answer",
    "argv": "argv: [claude, --print]",
}

_Fields = Mapping[str, JsonValue]

ONLY_NODE: Mapping[str, str] = {"llm": "think", "tool": "call", "command": "work", "acp": "work"}
"""The name of the only node of an actor that is not a graph, by the actor's type."""


def load_actor(
    content: str | bytes,
    source: str,
    *,
    tools: Collection[str] | None = None,
    actors: ActorSource | None = None,
    prompts: PromptReader | None = None,
) -> Actor:
    """Load an actor from YAML.

    `source` names the file in errors. `tools` and `actors` are the existing tools and actors, if known.
    `prompts` reads prompt files. Raises `InvalidActor` with every mistake, in the order of the lines.
    """
    raw = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    document = read_yaml(raw, source, _KIND)
    if not isinstance(document.data, Mapping):
        raise InvalidActor(source, (f"the file is not a YAML mapping; begin it with `{_KIND.begins}`",))
    preparation = _Preparation(prompts)
    data = preparation.prepared(document.data)
    actor = actor_from(data, raw.decode("utf-8-sig"))
    around = ActorEnvironment(tools, actors.get if actors else None, Condition)
    problems = [
        *preparation.problems,
        *_shape_problems(data),
        *_name_problems(data),
        *(
            preparation.told(_in_file(data, place), problem)
            for place, problem in actor_problems(actor, around)
        ),
        *((_in_file(data, place), problem) for place, problem in schema_problems(actor)),
    ]
    refuse_problems(problems, document, source, _KIND)
    return actor


@dataclass(slots=True)
class _Preparation:
    """Normalises values that can be written in two ways, and collects problems."""

    read: PromptReader | None
    problems: list[Problem] = field(default_factory=list)
    files: dict[Place, str] = field(default_factory=dict)

    def told(self, place: Place, problem: str) -> Problem:
        """Return the problem with its place. If the text at that place comes from a prompt file, the file is
        named.
        """
        file = self.files.get(place)
        return place, problem if file is None else f"{problem} (in {file})"

    def prepared(self, data: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        """Return the file's data with the texts of its prompts, and with lists instead of single names."""
        nodes = data.get("nodes")
        made = dict(self._node(data, ()))
        if isinstance(nodes, Mapping):
            made["nodes"] = {
                name: self._node(item, ("nodes", name)) if isinstance(item, Mapping) else item
                for name, item in nodes.items()
            }
        return made

    def _node(self, fields: Mapping[str, JsonValue], place: Place) -> Mapping[str, JsonValue]:
        made = dict(fields)
        if isinstance(made.get("next"), str):
            made["next"] = (made["next"],)
        for key in _PROMPTS:
            if isinstance(made.get(key), Mapping):
                made[key] = self._prompt(mapping_of(made[key]), (*place, key))
        return made

    def _prompt(self, said: Mapping[str, JsonValue], place: Place) -> str:
        relative = said.get("file")
        if set(said) != {"file"} or not isinstance(relative, str):
            self.problems.append((place, f"{place[-1]!r} must be text or {{file: prompts/name.md}}"))
            return "?"
        try:
            text = prompt_text(relative, self.read)
        except ValueError as error:
            self.problems.append(((*place, "file"), str(error)))
            return "?"
        self.files[place] = relative
        if not text:
            self.problems.append(((*place, "file"), f"{relative} is empty; write the prompt into it"))
        return text or "?"


def _shape_problems(data: Mapping[str, JsonValue]) -> list[Problem]:
    from cleveragents.actors.models import ACTORS, keys_at, place_in_file

    kind = data.get("type")
    if kind is None:
        return [(("type",), f"'type' is missing; for example: {_EXAMPLES['type']}")]
    actor = ACTORS.get(kind) if isinstance(kind, str) else None
    if actor is None:
        said = str(kind)[:60]
        return [(("type",), f"there is no type {said!r}; {did_you_mean(said, ACTORS)}")]
    nodes = mapping_of(data.get("nodes"))

    def known(place: Place) -> list[str]:
        node = mapping_of(nodes.get(str(place[1]))) if len(place) > 1 else {}
        return keys_at(actor, str(node.get("type")), place)

    shape = Shape(known, lambda place: _EXAMPLES[str(place[-1])], place_in_file)
    return shape_problems(actor, data, shape)[1]


def _name_problems(data: Mapping[str, JsonValue]) -> Iterator[Problem]:
    name = data.get("name")
    if isinstance(name, str) and not is_action_name(name):
        yield ("name",), name_problem(name)
    for node, fields in mapping_of(data.get("nodes")).items():
        named = mapping_of(fields).get("actor")
        if isinstance(named, str) and is_actor_file(named):  # guard: only the user may name a file to run
            yield (
                ("nodes", node, "actor"),
                f"{named[:60]!r} is a file; use the name of the actor in it",
            )


def _in_file(data: Mapping[str, JsonValue], place: Place) -> Place:
    """Convert a place in the actor's graph to the place in its file.

    An actor that is not a graph has the fields of its only node at the top level.
    """
    return place[2:] if data.get("type") in ONLY_NODE and place[:1] == ("nodes",) else place


def schema_problems(actor: Actor) -> Iterator[Problem]:
    """Yield the problems of the schemas of an actor's nodes, with their places."""
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
        yield place, f"not a valid JSON Schema: {error.message[:200]}"
    for place, name in _references(schema, ()):
        if not name.startswith("#/"):  # guard: a validator would fetch it from any address
            yield place, f"{name[:60]!r} refers outside this schema; write it inline, or refer to '#/$defs/…'"


def _references(part: JsonValue, place: Place) -> Iterator[tuple[Place, str]]:
    if isinstance(part, Mapping):
        for key, item in part.items():
            if key in ("$ref", "$dynamicRef", "$schema", "$id") and isinstance(item, str):
                yield (*place, key), item
            yield from _references(item, (*place, key))
    elif isinstance(part, (list, tuple)):
        for number, item in enumerate(part):
            yield from _references(item, (*place, number))


def actor_from(data: _Fields, document: str) -> Actor:
    """Convert the data of a file to an actor."""
    only = ONLY_NODE.get(_text(data.get("type")))
    if only is None:
        nodes = tuple(_node(name, mapping_of(item)) for name, item in mapping_of(data.get("nodes")).items())
    else:
        nodes = (_node(only, {key: item for key, item in data.items() if key != "next"}),)
    first = nodes[0].name if nodes else END
    fixes = data.get("fix_attempts")
    return Actor(
        name=_text(data.get("name")),
        entry=first if only else _text(data.get("entry")) or first,
        nodes=nodes,
        description=_text(data.get("description")).strip(),
        model=_optional(data.get("model")),
        state=tuple(_key(name, mapping_of(item)) for name, item in mapping_of(data.get("state")).items()),
        limits=_limits(mapping_of(data.get("limits"))),
        read_only=data.get("read_only") is True,
        checks_first=data.get("checks_first") is True,
        fix_attempts=fixes if isinstance(fixes, int) else FIX_ATTEMPTS,
        undo_failed_fixes=data.get("undo_failed_fixes") is True,
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
    """Return the fields that all nodes for external agents share."""
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
