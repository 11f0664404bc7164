"""Actors: who thinks. A graph of nodes over a shared state, as YAML describes it; pure structure.

`type: llm`, `tool`, `command` and `acp` in YAML are short for a graph of one node. What makes a graph wrong
is in `actor_rules.py`, what makes it run in `actors/graph/compiler.py`.

A node that follows nothing but `end` leaves the graph. Several names in `next` run at once, as branches; a
node that several branches lead to runs when all of them have arrived.

What an agent or an MCP server runs and receives, in words for the person who approves or denies it.

What a running actor lets be seen meanwhile; what came of it is in the records, not here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, TypeAlias

from cleveragents.core.json_value import FrozenObject, JsonValue

__all__ = [
    "AGENT_PROCESSES",
    "AGENT_SECONDS",
    "END",
    "GIVEN",
    "AcpNode",
    "Actor",
    "ActorLimits",
    "AgentNode",
    "CommandNode",
    "HumanNode",
    "LlmNode",
    "Node",
    "Progress",
    "ProgressKind",
    "PromptBy",
    "Reducer",
    "Route",
    "RouterNode",
    "StateKey",
    "StateType",
    "SubgraphNode",
    "ToolNode",
    "at_stake",
    "is_actor_file",
    "is_of_type",
    "sent_actor_of",
    "server_request",
]


END = "end"
"""Where a path leaves the graph; no node may have this name."""

GIVEN: tuple[str, ...] = ("goal", "task", "definition_of_done", "instructions", "context")
"""What every run has in its state without declaring it; empty text where the caller gave none."""
AGENT_SECONDS = 3600.0

AGENT_PROCESSES = 256
"""What another agent may take, unless its node says otherwise."""
StateType: TypeAlias = Literal["string", "integer", "number", "boolean", "list", "object"]
Reducer: TypeAlias = Literal["replace", "append", "sum", "merge"]
PromptBy: TypeAlias = Literal["stdin", "argument", "file"]
_OF_TYPE: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "list": (tuple, list),
    "object": (Mapping,),
}

_SHOWN = 300


@dataclass(frozen=True, slots=True)
class StateKey:
    """A named value that nodes read and write. Its reducer says how two writes at once become one:
    `replace` allows a single writer at a time, `append` joins lists, `sum` adds numbers, `merge` joins
    objects."""

    name: str
    type: StateType = "string"
    reducer: Reducer = "replace"
    default: JsonValue = None
    description: str = ""

    def takes(self, value: object) -> bool:
        """Whether such a value may be written to it: text is told of anything, a list that is appended to
        has room for anything, and nothing at all may take the place of a value."""
        if self.type == "string" or self.reducer == "append":
            return True
        return is_of_type(value, self.type) or (value is None and self.reducer == "replace")


def is_of_type(value: object, kind: str) -> bool:
    """Whether it is what keys of that type begin with."""
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _OF_TYPE.get(kind, (object,)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmNode:
    """Asks a model, and makes the tool calls it asks for until it asks for none.

    `prompt` is a template over the state, the first thing the user says; `system` is what comes before. The
    final text, or with `schema` (JSON Schema of an object) the final object, goes to the key `output`; with a
    schema, the object's properties that are keys of the state are written, too.
    """

    name: str
    prompt: str
    system: str = ""
    model: str | None = None
    tools: tuple[str, ...] = ()
    output: str | None = None
    schema: Mapping[str, JsonValue] | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    next: tuple[str, ...] = (END,)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolNode:
    """Makes one tool call, with arguments that are templates over the state."""

    name: str
    tool: str
    arguments: Mapping[str, JsonValue] = field(default_factory=lambda: FrozenObject({}))
    output: str | None = None
    next: tuple[str, ...] = (END,)


@dataclass(frozen=True, slots=True)
class Route:
    """Where to go when the condition holds; None always holds."""

    to: str
    when: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterNode:
    """Goes the first way whose condition holds."""

    name: str
    routes: tuple[Route, ...]

    @property
    def next(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(route.to for route in self.routes))


@dataclass(frozen=True, slots=True, kw_only=True)
class SubgraphNode:
    """Runs another actor. `inputs` are templates over our state by the other's keys, `outputs` the other's
    keys by ours."""

    name: str
    actor: str
    inputs: Mapping[str, JsonValue] = field(default_factory=lambda: FrozenObject({}))
    outputs: Mapping[str, str] = field(default_factory=dict)
    next: tuple[str, ...] = (END,)


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanNode:
    """Asks a person and waits, for as long as it takes: the run ends and the answer goes on with it."""

    name: str
    question: str
    output: str
    choices: tuple[str, ...] = ()
    next: tuple[str, ...] = (END,)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentNode:
    """Hands the work to a program of somebody else's that is an agent itself, in the sandbox.

    `environment` names the variables of ours that it gets, `home` the files and directories of the user's
    home that it gets a copy of; nothing else of either. It has the network only where it wants it and the
    policy gives it, and is ended after so many `seconds`, or when more `processes` than that run at once.
    The end of what it said goes to the key `output`. `install` says how to get the program.
    """

    name: str
    argv: tuple[str, ...]
    prompt: str
    environment: tuple[str, ...] = ()
    home: tuple[str, ...] = ()
    network: bool = False
    seconds: float = AGENT_SECONDS
    processes: int = AGENT_PROCESSES
    output: str | None = None
    install: str = ""
    next: tuple[str, ...] = (END,)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandNode(AgentNode):
    """An agent that is run as a command: it is told once, works, and exits with one of `expect_exit`.

    It is told on its standard input, by an argument (`{prompt}` in `argv`, or the last one), or in a file
    (`{prompt_file}` in `argv`). `variables` are set for it.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    prompt_by: PromptBy = "stdin"
    expect_exit: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True, kw_only=True)
class AcpNode(AgentNode):
    """An agent that speaks the Agent Client Protocol over its standard streams: what it wants to write or to
    run, it asks us for."""


Node: TypeAlias = LlmNode | ToolNode | RouterNode | SubgraphNode | HumanNode | CommandNode | AcpNode


@dataclass(frozen=True, slots=True)
class ActorLimits:
    """How far one run may go; None is no limit of the actor's own. A step is one model or tool call."""

    steps: int = 200
    tokens: int | None = None
    usd: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """An actor, complete and consistent. `document` is the text it was read from."""

    name: str
    entry: str
    nodes: tuple[Node, ...]
    description: str = ""
    model: str | None = None
    state: tuple[StateKey, ...] = ()
    limits: ActorLimits = ActorLimits()
    read_only: bool = False
    document: str = field(default="", compare=False)

    def node(self, name: str) -> Node:
        """`KeyError` where there is none; there always is in an actor that was loaded."""
        return {node.name: node for node in self.nodes}[name]


def is_actor_file(name: str) -> bool:
    """Whether that names a YAML file and no actor: a name has no dot."""
    return name.endswith((".yaml", ".yml"))


def sent_actor_of(request: Mapping[str, JsonValue]) -> str | None:
    """The YAML of an actor that came with what a plan asks for, which that plan alone knows."""
    text = request.get("sent_actor")
    return text if isinstance(text, str) else None


def server_request(arguments: Mapping[str, JsonValue]) -> str:
    """What the start of an MCP server, or a connection to it, does and gives away."""
    name, url = arguments.get("server"), arguments.get("url")
    target = f"connect to MCP server {name} at {url}" if url else f"start MCP server {name}"
    if not url:
        target += f": {arguments.get('command')}"
    # The variables come first, and the target is cut: a long command hides nothing.
    received = [f"your variable {one}" for one in _names(arguments.get("variables"))]
    received += [f"header {one}" for one in _names(arguments.get("headers"))]
    received += [f"env {one}" for one in _names(arguments.get("env"))]
    target = target if len(target) <= _SHOWN else f"{target[:_SHOWN]}…"
    said = f"{target}; it receives {', '.join(received) or 'none of your variables'}"
    return f"{said}; it runs without isolation" if arguments.get("isolated") is False else said


def at_stake(arguments: Mapping[str, JsonValue]) -> str:
    """In words, to be put behind the question; nothing for calls that are no agent's."""
    argv = _names(arguments.get("argv"))
    if not argv or "environment" not in arguments or "home" not in arguments:
        return ""
    variables, home = _names(arguments["environment"]), _names(arguments["home"])
    gets = [
        f"your variables {', '.join(variables)}" if variables else "none of your variables",
        f"copies of {', '.join(f'~/{path}' for path in home)}" if home else "nothing of your home",
        "the network" if arguments.get("network") else "no network",
    ]
    return f": it runs {argv[0]}, which gets {', '.join(gets[:-1])} and {gets[-1]}"


def _names(value: JsonValue) -> list[str]:
    many = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
    return [str(one) for one in many]


class ProgressKind(str, Enum):
    """What there is to see."""

    NODE = "node"
    THINKING = "thinking"
    PIECE = "piece"
    THOUGHT = "thought"
    TOOL = "tool"
    TOOL_DONE = "tool_done"


@dataclass(frozen=True, slots=True)
class Progress:
    """One thing seen. `text` is a piece of the answer (PIECE), or what is done to what (TOOL), or what came
    of it (TOOL_DONE, THOUGHT); `node` is the path through subgraphs, `a.b`."""

    kind: ProgressKind
    actor: str
    node: str
    text: str = ""
    failed: bool = False
