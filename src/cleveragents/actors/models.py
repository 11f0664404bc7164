"""Pydantic models of an actor's YAML. Types are strict: YAML has types, and a quoted number is text.

A prompt and `next` can each be written in two ways. The loader normalises them before validation; the JSON
Schema for editors accepts both.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, WithJsonSchema

from cleveragents.actors.model.actor import AGENT_PROCESSES, AGENT_SECONDS, FIX_ATTEMPTS
from cleveragents.actors.model.rules import NODES_LIMIT
from cleveragents.core.text.template import Place

__all__ = ["ACTORS", "NODES", "ActorModel", "GraphActorModel", "actor_file", "keys_at", "place_in_file"]

_Text = Annotated[str, StringConstraints(min_length=1)]
_WRITTEN_TEXT = {"type": "string", "minLength": 1}
_PROMPT_FILE = {
    "type": "object",
    "properties": {
        "file": {
            **_WRITTEN_TEXT,
            "description": "Path of a prompt file, relative to this file, such as prompts/x.md.",
        }
    },
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
        default="replace", description="How parallel writes are combined; `replace` allows a single writer."
    )
    default: object = Field(default=None, description="The value before the first write.")
    description: str = ""


class LimitsModel(_Model):
    """Limits of one run. A step is one model or tool call."""

    steps: Annotated[int, Field(ge=1, le=100_000)] = 200
    tokens: Annotated[int, Field(ge=1)] | None = None
    usd: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None
    seconds: Annotated[float, Field(gt=0, le=30 * 86_400, allow_inf_nan=False)] | None = None


class _Llm(_Model):
    type: Literal["llm"]
    system: _Prompt = Field(default="", description="The system prompt.")
    prompt: _Prompt = Field(description="The first user message; ${key} inserts a key of the state.")
    model: _Text | None = Field(default=None, description="provider/model; defaults to the model of the run.")
    tools: list[_Text] = Field(default=[], description='Tools the model may call; "*" allows all tools.')
    output: _Text | None = Field(default=None, description="The key that receives the answer.")
    answer_schema: dict[str, object] | None = Field(
        default=None, alias="schema", description="JSON Schema of the object that the model must answer with."
    )
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None


class _Tool(_Model):
    type: Literal["tool"]
    tool: _Text
    arguments: dict[str, object] = Field(
        default_factory=dict,
        alias="with",
        description="The tool's arguments; ${key} inserts a key of the state.",
    )
    output: _Text | None = Field(default=None, description="The key that receives the result.")


class _Agent(_Model):
    argv: list[str] = Field(
        min_length=1, description="The program and its arguments; they run without a shell."
    )
    prompt: _Prompt = Field(description="The agent's prompt; ${key} inserts a key of the state.")
    environment: list[_Text] = Field(
        default=[], description="Names of your environment variables to pass through, such as its API key."
    )
    home: list[_Text] = Field(
        default=[], description="Paths below your home to copy for the agent, such as its settings."
    )
    network: bool = Field(
        default=False, description="Whether the agent requests network access; the policy decides."
    )
    seconds: Annotated[float, Field(gt=0, le=30 * 86_400, allow_inf_nan=False)] = Field(
        default=AGENT_SECONDS, description="Time limit of the agent, in seconds."
    )
    processes: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=AGENT_PROCESSES, description="Maximum number of processes; the agent is stopped beyond it."
    )
    output: _Text | None = Field(
        default=None, description="The key that receives the end of the agent's output."
    )
    install: str = Field(default="", description="How to install the program.")


class _Command(_Agent):
    type: Literal["command"]
    variables: dict[str, str] = Field(
        default_factory=dict, description="Environment variables to set for the agent."
    )
    prompt_by: Literal["stdin", "argument", "file"] = Field(
        default="stdin",
        description="How the agent receives the prompt: on standard input, as {prompt} in argv (or as the "
        "last argument), or in the file {prompt_file}.",
    )
    expect_exit: list[Annotated[int, Field(ge=0, le=255)]] = Field(
        default=[0], min_length=1, description="Exit codes that mean success."
    )


class _Acp(_Agent):
    type: Literal["acp"]


class CommandNodeModel(_Command):
    """Runs an external agent as a command."""

    next: _Next = ["end"]


class AcpNodeModel(_Acp):
    """Runs an external agent over the Agent Client Protocol."""

    next: _Next = ["end"]


class LlmNodeModel(_Llm):
    """Calls a model and makes the tool calls that it requests."""

    next: _Next = ["end"]


class ToolNodeModel(_Tool):
    """Makes one tool call."""

    next: _Next = ["end"]


class RouteModel(_Model):
    """A route of a router; without `when`, it always applies."""

    to: _Text
    when: _Text | None = Field(default=None, description="A condition on the state: verdict == 'accept'")


class RouterNodeModel(_Model):
    """Takes the first route whose condition holds."""

    type: Literal["router"]
    routes: list[RouteModel] = Field(min_length=1)


class SubgraphNodeModel(_Model):
    """Runs another actor."""

    type: Literal["subgraph"]
    actor: _Text
    inputs: dict[str, object] = Field(
        default_factory=dict,
        description=(
            "Values for the keys of the called actor; ${key} inserts a value of the calling actor's state."
        ),
    )
    outputs: dict[str, _Text] = Field(
        default_factory=dict,
        description=(
            "Results to copy back: a key of the calling actor's state, and the key of the called "
            "actor to read."
        ),
    )
    next: _Next = ["end"]


class HumanNodeModel(_Model):
    """Asks a person and waits for the answer."""

    type: Literal["human"]
    question: _Text
    output: _Text = Field(description="The key that receives the answer.")
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
"""Node models by the value of `type`."""

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
    """The fields of all actors."""

    name: str = Field(description="namespace/name")
    description: str = ""
    state: dict[str, StateKeyModel] = Field(default_factory=dict)
    limits: LimitsModel = LimitsModel()
    read_only: bool = Field(default=False, description="Whether the actor may only read.")
    checks_first: bool = Field(
        default=False,
        description="Whether the checks run before the first task, so that the task receives their failures.",
    )
    fix_attempts: int = Field(
        default=FIX_ATTEMPTS,
        ge=0,
        le=50,
        description="Maximum number of attempts to fix failed checks and review findings.",
    )
    undo_failed_fixes: bool = Field(
        default=False, description="Whether a change is undone if no more tests pass after it than before."
    )


class LlmActorModel(_Llm, ActorModel):
    """An actor with a single llm node."""


class ToolActorModel(_Tool, ActorModel):
    """An actor with a single tool node."""


class CommandActorModel(_Command, ActorModel):
    """An actor with a single command node, which runs an external agent."""


class AcpActorModel(_Acp, ActorModel):
    """An actor with a single acp node, which runs an external agent."""


class GraphActorModel(ActorModel):
    """An actor with several connected nodes."""

    type: Literal["graph"]
    model: _Text | None = Field(default=None, description="The default model of the llm nodes.")
    entry: _Text = Field(description="The first node.")
    nodes: dict[str, _Node] = Field(min_length=1, max_length=NODES_LIMIT)


ACTORS: dict[str, type[ActorModel]] = {
    "llm": LlmActorModel,
    "graph": GraphActorModel,
    "tool": ToolActorModel,
    "command": CommandActorModel,
    "acp": AcpActorModel,
}
"""Actor models by the value of `type`."""


_Actor: TypeAlias = LlmActorModel | GraphActorModel | ToolActorModel | CommandActorModel | AcpActorModel


def actor_file() -> TypeAdapter[_Actor]:
    """Return the adapter for all types of actors."""
    return TypeAdapter(Annotated[_Actor, Field(discriminator="type")])


def place_in_file(place: Place) -> Place:
    """Convert a pydantic location to a place in the file: pydantic inserts a node's type after its name."""
    return (*place[:2], *place[3:]) if place[:1] == ("nodes",) else place


def keys_at(actor: type[ActorModel], node_type: str, place: Place) -> list[str]:
    """Return the keys that are allowed at a place of an actor, in the order of the documentation.

    `node_type` is the type of the node at that place, if any.
    """
    model: type[_Model] = actor
    if place[:1] == ("state",):
        model = StateKeyModel
    elif place[:1] == ("limits",):
        model = LimitsModel
    elif place[:1] == ("nodes",):
        model = RouteModel if len(place) > 2 else NODES[node_type]
    return [field.alias or name for name, field in model.model_fields.items()]
