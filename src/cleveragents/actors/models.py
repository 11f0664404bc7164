"""What an actor's YAML may hold. Types are strict: YAML has types, and a quoted number is text.

Two things are written in two ways, a prompt and `next`; the loader makes one of them before the models look,
and the JSON Schema for editors knows both.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, WithJsonSchema

from cleveragents.actors.model.actor import AGENT_PROCESSES, AGENT_SECONDS
from cleveragents.actors.model.rules import NODES_LIMIT
from cleveragents.core.text.template import Place

__all__ = ["ACTORS", "NODES", "ActorModel", "GraphActorModel", "actor_file", "keys_at", "place_in_file"]

_Text = Annotated[str, StringConstraints(min_length=1)]
_WRITTEN_TEXT = {"type": "string", "minLength": 1}
_PROMPT_FILE = {
    "type": "object",
    "properties": {"file": {**_WRITTEN_TEXT, "description": "A file beside this one, such as prompts/x.md."}},
    "required": ["file"],
    "additionalProperties": False,
}
_Prompt = Annotated[_Text, WithJsonSchema({"anyOf": [_WRITTEN_TEXT, _PROMPT_FILE]})]
_Next = Annotated[
    list[_Text],
    Field(min_length=1),
    WithJsonSchema({"anyOf": [_WRITTEN_TEXT, {"type": "array", "items": _WRITTEN_TEXT, "minItems": 1}]}),
]
_StateType = Literal["string", "integer", "number", "boolean", "list", "object"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class StateKeyModel(_Model):
    """A named value that nodes read and write."""

    type: _StateType = "string"
    reducer: Literal["replace", "append", "sum", "merge"] = Field(
        default="replace", description="How two writes at once become one; `replace` allows a single writer."
    )
    default: object = Field(default=None, description="What it is before the first write.")
    description: str = ""


class LimitsModel(_Model):
    """How far one run may go. A step is one model or tool call."""

    steps: Annotated[int, Field(ge=1, le=100_000)] = 200
    tokens: Annotated[int, Field(ge=1)] | None = None
    usd: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None
    seconds: Annotated[float, Field(gt=0, le=30 * 86_400, allow_inf_nan=False)] | None = None


class _Llm(_Model):
    type: Literal["llm"]
    system: _Prompt = Field(default="", description="What comes before the prompt.")
    prompt: _Prompt = Field(description="What the user says first; ${key} is a key of the state.")
    model: _Text | None = Field(default=None, description="provider/model; left out: the run's own.")
    tools: list[_Text] = Field(default=[], description='Tools that it may call; "*" is all that there are.')
    output: _Text | None = Field(default=None, description="The key that its answer is written to.")
    answer_schema: dict[str, object] | None = Field(
        default=None, alias="schema", description="JSON Schema of an object that it has to answer with."
    )
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None


class _Tool(_Model):
    type: Literal["tool"]
    tool: _Text
    arguments: dict[str, object] = Field(
        default_factory=dict, alias="with", description="The tool's arguments; ${key} is filled in."
    )
    output: _Text | None = Field(default=None, description="The key that its result is written to.")


class _Agent(_Model):
    argv: list[str] = Field(min_length=1, description="The program and its arguments; no shell is involved.")
    prompt: _Prompt = Field(description="What the agent is told; ${key} is a key of the state.")
    environment: list[_Text] = Field(
        default=[], description="Names of your variables that it gets, such as the one with its key."
    )
    home: list[_Text] = Field(
        default=[], description="Paths below your home that it gets a copy of, such as its settings."
    )
    network: bool = Field(default=False, description="Whether it needs the network; the policy decides.")
    seconds: Annotated[float, Field(gt=0, le=30 * 86_400, allow_inf_nan=False)] = Field(
        default=AGENT_SECONDS, description="When to end it, if it has not ended."
    )
    processes: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=AGENT_PROCESSES, description="With more than these at once it is ended."
    )
    output: _Text | None = Field(default=None, description="The key that the end of its output goes to.")
    install: str = Field(default="", description="How to get the program, for whoever does not have it.")


class _Command(_Agent):
    type: Literal["command"]
    variables: dict[str, str] = Field(default_factory=dict, description="Variables that are set for it.")
    prompt_by: Literal["stdin", "argument", "file"] = Field(
        default="stdin",
        description="How it is told: by its input, in place of {prompt} in argv (or as its last argument), "
        "or by a path in place of {prompt_file}.",
    )
    expect_exit: list[Annotated[int, Field(ge=0, le=255)]] = Field(
        default=[0], min_length=1, description="The exit codes that mean that it did what it was told."
    )


class _Acp(_Agent):
    type: Literal["acp"]


class CommandNodeModel(_Command):
    """Runs another agent as a command."""

    next: _Next = ["end"]


class AcpNodeModel(_Acp):
    """Talks to another agent by the Agent Client Protocol."""

    next: _Next = ["end"]


class LlmNodeModel(_Llm):
    """Asks a model, and makes the tool calls it asks for."""

    next: _Next = ["end"]


class ToolNodeModel(_Tool):
    """Makes one tool call."""

    next: _Next = ["end"]


class RouteModel(_Model):
    """One way of a router; without `when`, always open."""

    to: _Text
    when: _Text | None = Field(default=None, description="A condition on the state: verdict == 'accept'")


class RouterNodeModel(_Model):
    """Goes the first way whose condition holds."""

    type: Literal["router"]
    routes: list[RouteModel] = Field(min_length=1)


class SubgraphNodeModel(_Model):
    """Runs another actor."""

    type: Literal["subgraph"]
    actor: _Text
    inputs: dict[str, object] = Field(
        default_factory=dict, description="By the other's keys; ${key} is ours."
    )
    outputs: dict[str, _Text] = Field(default_factory=dict, description="The other's keys, by ours.")
    next: _Next = ["end"]


class HumanNodeModel(_Model):
    """Asks a person and waits."""

    type: Literal["human"]
    question: _Text
    output: _Text = Field(description="The key that the answer is written to.")
    choices: list[_Text] = []
    next: _Next = ["end"]


NODES: dict[str, type[_Model]] = {
    "llm": LlmNodeModel,
    "tool": ToolNodeModel,
    "router": RouterNodeModel,
    "subgraph": SubgraphNodeModel,
    "human": HumanNodeModel,
    "command": CommandNodeModel,
    "acp": AcpNodeModel,
}
"""The types of nodes, as `type` says them."""

_Node: TypeAlias = Annotated[
    LlmNodeModel
    | ToolNodeModel
    | RouterNodeModel
    | SubgraphNodeModel
    | HumanNodeModel
    | CommandNodeModel
    | AcpNodeModel,
    Field(discriminator="type"),
]


class ActorModel(_Model):
    """What all actors have."""

    name: str = Field(description="namespace/name")
    description: str = ""
    state: dict[str, StateKeyModel] = Field(default_factory=dict)
    limits: LimitsModel = LimitsModel()
    read_only: bool = Field(default=False, description="Whether it may change nothing.")


class LlmActorModel(_Llm, ActorModel):
    """An actor of one llm node."""


class ToolActorModel(_Tool, ActorModel):
    """An actor of one tool node."""


class CommandActorModel(_Command, ActorModel):
    """An actor of one command node: another agent."""


class AcpActorModel(_Acp, ActorModel):
    """An actor of one acp node: another agent."""


class GraphActorModel(ActorModel):
    """An actor of nodes that lead to each other."""

    type: Literal["graph"]
    model: _Text | None = Field(default=None, description="For the llm nodes that name none.")
    entry: _Text = Field(description="The node to begin with.")
    nodes: dict[str, _Node] = Field(min_length=1, max_length=NODES_LIMIT)


ACTORS: dict[str, type[ActorModel]] = {
    "llm": LlmActorModel,
    "graph": GraphActorModel,
    "tool": ToolActorModel,
    "command": CommandActorModel,
    "acp": AcpActorModel,
}
"""The types of actors, as `type` says them."""


_Actor: TypeAlias = LlmActorModel | GraphActorModel | ToolActorModel | CommandActorModel | AcpActorModel


def actor_file() -> TypeAdapter[_Actor]:
    """Any of them."""
    return TypeAdapter(Annotated[_Actor, Field(discriminator="type")])


def place_in_file(place: Place) -> Place:
    """pydantic puts a node's type behind its name; the file does not."""
    return (*place[:2], *place[3:]) if place[:1] == ("nodes",) else place


def keys_at(actor: type[ActorModel], node_type: str, place: Place) -> list[str]:
    """The keys that may stand at that place of such an actor, in the order of the documentation; `node_type`
    is the type of the node that the place is in, if it is in one."""
    model: type[_Model] = actor
    if place[:1] == ("state",):
        model = StateKeyModel
    elif place[:1] == ("limits",):
        model = LimitsModel
    elif place[:1] == ("nodes",):
        model = RouteModel if len(place) > 2 else NODES[node_type]
    return [field.alias or name for name, field in model.model_fields.items()]
