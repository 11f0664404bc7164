"""Actors: graphs of nodes over a shared state, as YAML describes them. Structure only.

In YAML, `type: llm`, `tool`, `command` and `acp` are short for a graph of one node. `actors/model/rules.py`
validates a graph and `actors/graph/compiler.py` makes it executable.

A node whose only successor is `end` leaves the graph. Several names in `next` start parallel branches; a node
that several branches lead to runs when all of them have arrived.

This module also describes external agents and MCP servers to the person who approves them, and defines the
progress updates of a running actor. Results are in the records, not in progress updates.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from msgspec import Struct, field

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
    "can_use",
    "choices_key",
    "cut_arguments",
    "is_actor_file",
    "is_of_type",
    "report_in",
    "sent_actor_of",
    "server_request",
]


END = "end"
"""The successor that leaves the graph; no node may have this name."""

GIVEN: tuple[str, ...] = ("goal", "task", "definition_of_done", "instructions", "context")
"""Keys that every state has without declaring them; empty if the caller passes none."""
AGENT_SECONDS = 3600.0

AGENT_PROCESSES = 256
"""Default limits of an external agent."""
_ONE_KEY = re.compile(r"\$\{([^{}\n]*)\}")
_LONGEST_TEXT = 2000
_MOST_ITEMS = 50
_DEEPEST = 6
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


class StateKey(Struct, frozen=True):
    """A named value that nodes read and write.

    The reducer combines parallel writes: `replace` allows a single writer at a time, `append` joins lists,
    `sum` adds numbers, `merge` joins objects.
    """

    name: str
    type: StateType = "string"
    reducer: Reducer = "replace"
    default: JsonValue = None
    description: str = ""

    def takes(self, value: object) -> bool:
        """Return whether a value may be written to the key.

        A string key accepts any value as text, an appended list accepts any element, and None may replace any
        value.
        """
        if self.type == "string" or self.reducer == "append":
            return True
        return is_of_type(value, self.type) or (value is None and self.reducer == "replace")


def is_of_type(value: object, kind: str) -> bool:
    """Return whether a value has the given state type."""
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _OF_TYPE.get(kind, (object,)))


class LlmNode(Struct, frozen=True, kw_only=True):
    """Calls a model and makes the tool calls that it requests, until an answer requests none.

    `prompt` is a template over the state and becomes the first user message; `system` is the system prompt.
    The final text, or with `schema` (JSON Schema of an object) the final object, is written to the key
    `output`. With a schema, properties whose names are keys of the state are written as well.
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


class ToolNode(Struct, frozen=True, kw_only=True):
    """Makes one tool call. The arguments are templates over the state."""

    name: str
    tool: str
    arguments: Mapping[str, JsonValue] = field(default_factory=lambda: FrozenObject({}))
    output: str | None = None
    next: tuple[str, ...] = (END,)


class Route(Struct, frozen=True):
    """A target and its condition. The condition None always holds."""

    to: str
    when: str | None = None


class RouterNode(Struct, frozen=True, kw_only=True):
    """Takes the first route whose condition holds."""

    name: str
    routes: tuple[Route, ...]

    @property
    def next(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(route.to for route in self.routes))


class SubgraphNode(Struct, frozen=True, kw_only=True):
    """Runs another actor. `inputs` maps keys of the other actor to templates over this actor's state.
    `outputs` maps keys of this actor's state to keys of the other actor.
    """

    name: str
    actor: str
    inputs: Mapping[str, JsonValue] = field(default_factory=lambda: FrozenObject({}))
    outputs: Mapping[str, str] = field(default_factory=dict)
    next: tuple[str, ...] = (END,)


class HumanNode(Struct, frozen=True, kw_only=True):
    """Asks a person. The run ends, and a later run continues with the answer."""

    name: str
    question: str
    output: str
    choices: tuple[str, ...] = ()
    next: tuple[str, ...] = (END,)


class AgentNode(Struct, frozen=True, kw_only=True):
    """Runs an external agent in the sandbox.

    `environment` names the variables that are passed through, and `home` the files and directories below the
    user's home that are copied; the agent receives no other variables or files of the user. It has network
    access only if the node requests it and the policy grants it. It is stopped after `seconds`, or when it
    has more than `processes` processes. The end of its output is written to the key `output`. `install` is
    the hint how to install the program.
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


class CommandNode(AgentNode, frozen=True, kw_only=True):
    """An external agent that runs as a command: it receives one prompt, works, and exits with one of
    `expect_exit`.

    The prompt is passed on standard input, as an argument (in place of `{prompt}` in `argv`, or as the last
    argument), or in a file (`{prompt_file}` in `argv`). `variables` are set in its environment.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    prompt_by: PromptBy = "stdin"
    expect_exit: tuple[int, ...] = (0,)


class AcpNode(AgentNode, frozen=True, kw_only=True):
    """An external agent that speaks the Agent Client Protocol over its standard streams.

    It sends us requests to write files and run commands.
    """


Node: TypeAlias = LlmNode | ToolNode | RouterNode | SubgraphNode | HumanNode | CommandNode | AcpNode


class ActorLimits(Struct, frozen=True):
    """Limits of one run; None means that the actor sets no limit. A step is one model or tool call."""

    steps: int = 200
    tokens: int | None = None
    usd: float | None = None
    seconds: float | None = None


FIX_ATTEMPTS = 3


_LIMITS = ActorLimits()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """A complete and consistent actor. `document` is the text it was read from."""

    name: str
    entry: str
    nodes: tuple[Node, ...]
    description: str = ""
    model: str | None = None
    state: tuple[StateKey, ...] = ()
    limits: ActorLimits = _LIMITS
    read_only: bool = False
    checks_first: bool = False
    fix_attempts: int = FIX_ATTEMPTS
    undo_failed_fixes: bool = False
    document: str = dataclasses.field(default="", compare=False)

    def node(self, name: str) -> Node:
        """Return the node. Raises `KeyError` if it is missing, which cannot happen for references within a
        loaded actor.
        """
        return {node.name: node for node in self.nodes}[name]


def is_actor_file(name: str) -> bool:
    """Return whether a name refers to a YAML file instead of an actor; actor names contain no dot."""
    return name.endswith((".yaml", ".yml"))


def sent_actor_of(request: Mapping[str, JsonValue]) -> str | None:
    """Return the YAML of the actor that was sent with a plan's request, or None. Only that plan can use the
    actor.
    """
    text = request.get("sent_actor")
    return text if isinstance(text, str) else None


def server_request(arguments: Mapping[str, JsonValue]) -> str:
    """Describe the start of an MCP server or the connection to it, and the variables it receives."""
    name, url = arguments.get("server"), arguments.get("url")
    target = f"connect to MCP server {name} at {url}" if url else f"start MCP server {name}"
    if not url:
        target += f": {arguments.get('command')}"
    # The target is truncated and the variables follow it, so a long command cannot hide them.
    received = [f"your variable {one}" for one in _names(arguments.get("variables"))]
    received += [f"header {one}" for one in _names(arguments.get("headers"))]
    received += [f"env {one}" for one in _names(arguments.get("env"))]
    target = target if len(target) <= _SHOWN else f"{target[:_SHOWN]}…"
    said = f"{target}; it receives {', '.join(received) or 'none of your variables'}"
    return f"{said}; it runs without isolation" if arguments.get("isolated") is False else said


def at_stake(arguments: Mapping[str, JsonValue]) -> str:
    """Describe the program, variables and files of an external agent, for the approval question; empty for
    other calls.
    """
    argv = _names(arguments.get("argv"))
    if not argv or "environment" not in arguments or "home" not in arguments:
        return ""
    variables, home = _names(arguments["environment"]), _names(arguments["home"])
    gets = [
        f"your variables {', '.join(variables)}" if variables else "none of your variables",
        f"copies of {', '.join(f'~/{path}' for path in home)}" if home else "no files of your home",
        "the network" if arguments.get("network") else "no network",
    ]
    return f": it runs {argv[0]} with {', '.join(gets[:-1])} and {gets[-1]}"


def _names(value: JsonValue) -> list[str]:
    many = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
    return [str(one) for one in many]


class ProgressKind(str, Enum):
    """Kinds of progress updates."""

    NODE = "node"
    THINKING = "thinking"
    PIECE = "piece"
    THOUGHT = "thought"
    TOOL = "tool"
    TOOL_DONE = "tool_done"
    PLAN = "plan"


class Progress(Struct, frozen=True):
    """A progress update. `text` is a piece of the answer (PIECE), the call (TOOL) or its result (TOOL_DONE,
    THOUGHT), or the id of a plan that a conversation started or corrected (PLAN). `node` is the path through
    subgraphs, `a.b`. A call (TOOL) has its `tool` and `arguments`, if known.
    """

    kind: ProgressKind
    actor: str
    node: str
    text: str = ""
    failed: bool = False
    tool: str | None = None
    arguments: object = None


def cut_arguments(value: object, depth: int = 0) -> object:
    """Return the arguments of a call, with long texts and lists cut."""
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else f"{value[:_LONGEST_TEXT]}…"
    if isinstance(value, dict | list) and depth >= _DEEPEST:
        return "…"
    if isinstance(value, dict):
        items = list(value.items())[:_MOST_ITEMS]
        return {cut_arguments(str(key)): cut_arguments(item, depth + 1) for key, item in items}
    if isinstance(value, list):
        return [cut_arguments(item, depth + 1) for item in value[:_MOST_ITEMS]]
    return value


def choices_key(part: object) -> str | None:
    """Return the state key that holds the choices for a property of a schema: `key` for `enum: ["${key}"]`;
    None if the property names no key.
    """
    given = part.get("enum") if isinstance(part, Mapping) else None
    if not isinstance(given, (list, tuple)) or len(given) != 1 or not isinstance(given[0], str):
        return None
    found = _ONE_KEY.fullmatch(given[0])
    return None if found is None else found[1]


def can_use(actor: Actor, tool: str) -> bool:
    """Return whether a model of the actor, or another actor that it runs, may call this tool."""
    patterns = [name for node in actor.nodes if isinstance(node, LlmNode) for name in node.tools]
    runs_others = any(isinstance(node, SubgraphNode) for node in actor.nodes)
    return runs_others or any(fnmatchcase(tool, pattern) for pattern in patterns)


def report_in(values: Mapping[str, JsonValue]) -> str | None:
    """Return the report of an executor, or the only text it returned; None if there is neither."""
    report = values.get("report")
    if isinstance(report, str) and report.strip():
        return report
    texts = [text for name, text in values.items() if name not in GIVEN and isinstance(text, str) and text]
    return texts[0] if len(texts) == 1 else None
