"""Validation rules for actors. Each problem has a place and a remedy. Pure functions.

The loader validates the shape of the file, and also applies these rules to files with a wrong shape. So the
rules must accept any shape. An empty name stands for a missing name, which the loader reports. Places refer
to the file of a graph; an actor of `type: llm` counts as a graph of one node.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import PurePosixPath

from cleveragents.actors.model.actor import (
    END,
    GIVEN,
    Actor,
    AgentNode,
    CommandNode,
    HumanNode,
    LlmNode,
    Node,
    RouterNode,
    StateKey,
    StateType,
    SubgraphNode,
    ToolNode,
    choices_key,
    is_of_type,
)
from cleveragents.actors.model.paths import (
    concurrent_nodes,
    never_ending,
    router_circle,
    unreachable,
    written_by,
)
from cleveragents.core.errors import CleverAgentsError, InvalidCondition
from cleveragents.core.json_value import FrozenObject, JsonValue
from cleveragents.core.text.template import Place, template_problems
from cleveragents.core.tool import AGENT_TOOL

__all__ = [
    "EVERY_TOOL",
    "NODES_LIMIT",
    "PROMPT",
    "PROMPT_FILE",
    "ActorEnvironment",
    "actor_problems",
    "agent_problems",
    "is_key_name",
    "is_node_name",
]


NODES_LIMIT = 100
EVERY_TOOL = "*"
_Problem = tuple[Place, str]
_NODE_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_RESERVED = (END, "start")
# A name with one of these marks belongs to a server or is a pattern. It is resolved at run time.
_FOREIGN = ("__", ".", ":", "/", "*")
_REDUCED = {"append": ("list",), "sum": ("integer", "number"), "merge": ("object",)}
_OF_KIND: Mapping[StateType, JsonValue] = {
    "string": "",
    "integer": 0,
    "number": 0.5,
    "boolean": False,
    "list": (),
    "object": FrozenObject({}),
}
_JSON_TYPES = {"array": ("list",), "integer": ("integer", "number")}

PROMPT = "{prompt}"
"""Placeholder for the prompt in a command line."""

PROMPT_FILE = "{prompt_file}"
"""Placeholder in a command line for the path of a file with the prompt."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_OWN_PREFIX = "CLEVERAGENTS_"


@dataclass(frozen=True, slots=True)
class ActorEnvironment:
    """The context an actor is validated against, as far as it is known: tool names, other actors (`find`
    raises if one is invalid), and a check for conditions (raises `InvalidCondition`).
    """

    tools: Collection[str] | None = None
    find: Callable[[str], Actor] | None = None
    condition: Callable[[str, Collection[str]], object] | None = None


def is_node_name(name: str) -> bool:
    return _NODE_NAME.fullmatch(name) is not None


def is_key_name(name: str) -> bool:
    """Return whether templates and conditions can refer to the name."""
    return name.isascii() and name.isidentifier() and name.islower() and not keyword.iskeyword(name)


def actor_problems(actor: Actor, around: ActorEnvironment) -> list[_Problem]:
    """Return all problems of an actor and their places."""
    if len(actor.nodes) > NODES_LIMIT:  # guard: bounds the time that validation of a foreign file may take
        return [(("nodes",), f"more than {NODES_LIMIT} nodes; move some into another actor")]
    problems = [problem for key in actor.state for problem in _key_problems(key)]
    for node in actor.nodes:
        problems += [(("nodes", node.name, *place), text) for place, text in _of_node(actor, node, around)]
    return [*problems, *_entry_problems(actor), *_path_problems(actor), *_writer_problems(actor)]


# ── the state ──


def _key_problems(key: StateKey) -> Iterator[_Problem]:
    place: Place = ("state", key.name)
    if key.name in GIVEN:
        yield place, f"{key.name!r} is predefined in every run; remove it, or choose another name"
    elif not is_key_name(key.name):
        yield place, f"{key.name[:60]!r} is not a valid key; use lowercase letters, digits and underscores"
    wanted = _REDUCED.get(key.reducer)
    if wanted is not None and key.type not in wanted:
        remedy = f"set `type: {wanted[0]}`, or remove the reducer"
        yield (*place, "reducer"), f"{key.reducer!r} does not work with type {key.type}; {remedy}"
    if key.default is not None and not is_of_type(key.default, key.type):
        yield (*place, "default"), f"the default must be of type {key.type}"


# ── one node ──


def _of_node(actor: Actor, node: Node, around: ActorEnvironment) -> Iterator[_Problem]:
    if node.name in _RESERVED:
        yield (), f"{node.name!r} is a reserved name; rename the node"
    elif not is_node_name(node.name):
        yield (
            (),
            f"{node.name[:60]!r} is not a node name; use lowercase letters, digits, hyphens and underscores",
        )
    if isinstance(node, RouterNode):
        yield from _router_problems(actor, node, around)
        return
    yield from _next_problems(actor, node.next)
    yield from _text_problems(actor, node)
    if isinstance(node, LlmNode):
        yield from _llm_problems(actor, node, around)
    if isinstance(node, ToolNode):
        yield from _tool_problem(("tool",), node.tool, around)
    if isinstance(node, AgentNode):
        yield from agent_problems(actor, node)
    if isinstance(node, SubgraphNode):
        yield from _subgraph_problems(actor, node, around)
    elif node.output:
        yield from _output_problem(actor, ("output",), node.output)
        yield from _written_problem(actor, node)


def _next_problems(actor: Actor, names: tuple[str, ...]) -> Iterator[_Problem]:
    for number, name in enumerate(names):
        place: Place = ("next", number)
        yield from _target_problem(actor, place, name)
        if name in names[:number]:
            yield place, f"{name!r} is listed twice; remove one"
    if END in names and len(names) > 1:
        yield ("next", names.index(END)), f"{END!r} cannot be combined with other names; remove it"


def _target_problem(actor: Actor, place: Place, name: str) -> Iterator[_Problem]:
    known = [node.name for node in actor.nodes]
    if name and name not in (*known, END):
        yield place, f"there is no node {name[:60]!r}; {_hint(name, [*known, END])}"


def _router_problems(actor: Actor, node: RouterNode, around: ActorEnvironment) -> Iterator[_Problem]:
    last = len(node.routes) - 1
    for number, route in enumerate(node.routes):
        yield from _target_problem(actor, ("routes", number, "to"), route.to)
        if route.when is None and number != last:
            yield ("routes", number), "a route without `when` hides the routes after it; move it to the end"
        if route.when is not None and around.condition is not None:
            try:
                around.condition(route.when, _names(actor))
            except InvalidCondition as error:
                yield ("routes", number, "when"), str(error)
    if node.routes and node.routes[last].when is not None:
        remedy = f"add a route without `when`, such as `- to: {END}`"
        yield ("routes",), f"no route matches if all conditions are false; {remedy}"


def _text_problems(actor: Actor, node: Node) -> Iterator[_Problem]:
    lists = [key.name for key in actor.state if key.type == "list"]
    # Texts for people and models may contain lists; arguments keep their types.
    for place, template, typed in _templates(node):
        found = template_problems(template, _names(actor), lists if typed else (), noun="key of the state")
        for within, problem in found:
            yield (*place, *within), problem


def _templates(node: Node) -> Iterator[tuple[Place, JsonValue, bool]]:
    if isinstance(node, LlmNode):
        yield ("system",), node.system, False
    if isinstance(node, (LlmNode, AgentNode)):
        yield ("prompt",), node.prompt, False
    if isinstance(node, HumanNode):
        yield ("question",), node.question, False
    if isinstance(node, ToolNode):
        yield ("with",), node.arguments, True
    if isinstance(node, SubgraphNode):
        yield ("inputs",), node.inputs, True


def _llm_problems(actor: Actor, node: LlmNode, around: ActorEnvironment) -> Iterator[_Problem]:
    for number, tool in enumerate(node.tools):
        if tool != EVERY_TOOL:
            yield from _tool_problem(("tools", number), tool, around)
        if tool in node.tools[:number]:
            yield ("tools", number), f"{tool!r} is listed twice; remove one"
    if node.schema is None:
        return
    if node.schema.get("type") != "object":
        yield ("schema",), "the schema of an answer must describe an object; add `type: object`"
    properties = node.schema.get("properties")
    types = {key.name: key.type for key in actor.state}
    for name, part in properties.items() if isinstance(properties, Mapping) else ():
        said = part.get("type") if isinstance(part, Mapping) else None
        if name in types and isinstance(said, str) and types[name] not in _JSON_TYPES.get(said, (said,)):
            problem = f"{name!r} has type {said} in the schema and type {types[name]} in the state"
            yield ("schema", "properties", name), f"{problem}; use the same type for both"
        for problem in _choices_problems(actor, choices_key(part)):
            yield ("schema", "properties", name, "enum"), problem


def _choices_problems(actor: Actor, key: str | None) -> Iterator[str]:
    """Yield the problems of the state key that holds the choices for a property, if any."""
    if key is None:
        return
    types: dict[str, str] = dict.fromkeys(GIVEN, "string") | {one.name: one.type for one in actor.state}
    if key not in types:
        yield f"there is no key of the state {key[:60]!r}; {_hint(key, types)}"
    elif types[key] not in ("list", "string"):
        yield f"{key!r} has type {types[key]}; choices come from a list or from the lines of a string"


def _tool_problem(place: Place, tool: str, around: ActorEnvironment) -> Iterator[_Problem]:
    known = around.tools
    if tool == AGENT_TOOL:  # guard: a model that could call it could ask for any variable of the user's
        yield place, f"{tool!r} cannot be listed as a tool; use a node of type command or acp"
        return
    if known is None or not tool or tool in known or any(mark in tool for mark in _FOREIGN):
        return
    yield place, f"there is no tool {tool[:60]!r}; {_hint(tool, sorted(known))}"


def _subgraph_problems(actor: Actor, node: SubgraphNode, around: ActorEnvironment) -> Iterator[_Problem]:
    for ours in node.outputs:
        yield from _output_problem(actor, ("outputs", ours), ours)
    way = _way_back(actor.name, node.actor, around)
    if way:
        problem = f"the actor would run itself in a loop: {' → '.join((actor.name, *way))}"
        yield ("actor",), f"{problem}; name another actor"
        return
    if around.find is None or not node.actor:
        return
    try:
        other = around.find(node.actor)
    except CleverAgentsError as error:
        yield ("actor",), str(error)
        return
    for theirs in node.inputs:
        if theirs not in _names(other):
            problem = f"{other.name} has no key {theirs[:60]!r} in its state"
            yield ("inputs", theirs), f"{problem}; {_hint(theirs, _names(other))}"
    yield from _taken_over(actor, node, other)


def _taken_over(actor: Actor, node: SubgraphNode, other: Actor) -> Iterator[_Problem]:
    keys = {key.name: key for key in actor.state}
    kinds: dict[str, StateType] = dict.fromkeys(GIVEN, "string")
    kinds |= {key.name: key.type for key in other.state}
    for ours, theirs in node.outputs.items():
        if theirs not in kinds:
            problem = f"{other.name} has no key {theirs[:60]!r} in its state"
            yield ("outputs", ours), f"{problem}; {_hint(theirs, _names(other))}"
        elif ours in keys and not keys[ours].takes(_OF_KIND[kinds[theirs]]):
            problem = f"{theirs!r} of {other.name} has type {kinds[theirs]}"
            problem += f" and {ours!r} has type {keys[ours].type}"
            yield ("outputs", ours), f"{problem}; set `type: {kinds[theirs]}`"


def _way_back(name: str, first: str, around: ActorEnvironment) -> tuple[str, ...]:
    """Return the chain of subgraphs from the first actor to the named actor; empty if there is none."""
    ways: list[tuple[str, ...]] = [(first,)]
    seen = {first}
    while ways:
        way = ways.pop(0)
        if way[-1] == name:
            return way
        for following in _carried_out_by(way[-1], around):
            if following not in seen:
                seen.add(following)
                ways.append((*way, following))
    return ()


def _carried_out_by(name: str, around: ActorEnvironment) -> list[str]:
    if around.find is None:
        return []
    try:
        found = around.find(name)
    except CleverAgentsError:
        return []  # reported where the actor is named
    return [node.actor for node in found.nodes if isinstance(node, SubgraphNode)]


def _output_problem(actor: Actor, place: Place, key: str) -> Iterator[_Problem]:
    known = [item.name for item in actor.state]
    if key in GIVEN:
        yield place, f"{key!r} is a read-only input of the run; write to another key"
    elif key not in known:
        remedy = f"declare it: `state: {{{key[:60]}: {{type: string}}}}`"
        near = get_close_matches(key, known, n=1)
        hint = f"did you mean {near[0]!r}? If not, {remedy}" if near else remedy
        yield place, f"the state has no key {key[:60]!r}; {hint}"


def _written_problem(actor: Actor, node: LlmNode | ToolNode | HumanNode | AgentNode) -> Iterator[_Problem]:
    """Yield a problem if the node's output does not fit its key.

    The output type of a tool is only known when it is called.
    """
    kind: StateType = "object" if isinstance(node, LlmNode) and node.schema is not None else "string"
    found = next((key for key in actor.state if key.name == node.output), None)
    if isinstance(node, ToolNode) or found is None or found.takes(_OF_KIND[kind]):
        return
    what, remedy = "text", "set `type: string`"
    if kind == "object":
        what, remedy = (
            "an object",
            "set `type: object`, or remove `output` to write each property to the key of its name",
        )
    elif found.type == "list":
        remedy += ", or add `reducer: append`"
    elif isinstance(node, LlmNode):
        remedy += ", or give the node a `schema` with that property"
    yield ("output",), f"the node writes {what} to {found.name!r}, which has type {found.type}; {remedy}"


# ── the graph ──


def _entry_problems(actor: Actor) -> Iterator[_Problem]:
    known = [node.name for node in actor.nodes]
    if known and actor.entry not in known:
        yield ("entry",), f"there is no node {actor.entry[:60]!r}; {_hint(actor.entry, known)}"


def _path_problems(actor: Actor) -> Iterator[_Problem]:
    circle = router_circle(actor)
    if circle:
        way = ", ".join(repr(name) for name in circle)
        problem = f"{way}: these routers form an endless loop"
        yield ("nodes", circle[0]), f"{problem}; add a node that is not a router between them"
    known = {END, *(node.name for node in actor.nodes)}
    # One wrong name would make every node behind it look unreachable and every node before it endless.
    if not all(name in known for name in (actor.entry, *(to for node in actor.nodes for to in node.next))):
        return
    for name in unreachable(actor):
        yield ("nodes", name), f"no node leads to {name!r}; add it to a `next`, or remove it"
    for name in never_ending(actor):
        problem = f"no path leads from {name!r} to {END!r}"
        yield ("nodes", name), f"{problem}; add a path from it to {END!r}"


def _writer_problems(actor: Actor) -> Iterator[_Problem]:
    single = [key.name for key in actor.state if key.reducer == "replace"]
    writes = {node.name: written_by(node, single) for node in actor.nodes}
    for first, second in concurrent_nodes(actor):
        for key in sorted(writes[first] & writes[second]):
            problem = f"{first!r} and {second!r} run in parallel and both write {key!r}"
            remedy = "give the key a reducer (append, sum, merge), or write to different keys"
            yield ("nodes", second), f"{problem}; {remedy}"


def _names(actor: Actor) -> tuple[str, ...]:
    return (*GIVEN, *(key.name for key in actor.state))


def _hint(word: str, known: Collection[str]) -> str:
    near = get_close_matches(word, list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else f"available: {', '.join(known) or 'none'}"


def agent_problems(actor: Actor, node: AgentNode) -> Iterator[_Problem]:
    """Yield the problems of a node for an external agent: its command line, variables and files."""
    if actor.read_only:
        yield (
            (),
            "the actor is `read_only`, but this program may change files; remove `read_only`",
        )
    if node.argv and not node.argv[0].strip():
        yield ("argv", 0), "the program is missing; put its name first: [claude, --print]"
    for number, word in enumerate(node.argv):
        if "\0" in word:
            yield ("argv", number), "the argument contains a NUL character; remove it"
    if isinstance(node, CommandNode):
        yield from _prompt_problems(node)
        for name in node.variables:
            yield from _variable_problem(("variables", name), name, 'NO_COLOR: "1"')
    yield from _environment_problems(node)
    yield from _home_problems(node)


def _prompt_problems(node: CommandNode) -> Iterator[_Problem]:
    for mark, way in ((PROMPT, "argument"), (PROMPT_FILE, "file")):
        there = [number for number, word in enumerate(node.argv) if mark in word]
        if node.prompt_by == way == "file" and not there:
            yield ("argv",), f"`prompt_by: file` needs {mark} in `argv`; write it where the path goes"
        if node.prompt_by != way and there:
            problem = f"{mark} does not work with `prompt_by: {node.prompt_by}`"
            yield ("argv", there[0]), f"{problem}; set `prompt_by: {way}`, or remove it"


def _environment_problems(node: AgentNode) -> Iterator[_Problem]:
    for number, name in enumerate(node.environment):
        place: Place = ("environment", number)
        yield from _variable_problem(place, name, "only the name; the value comes from your environment")
        if name in node.environment[:number]:
            yield place, f"{name!r} is listed twice; remove one"


def _variable_problem(place: Place, name: str, example: str) -> Iterator[_Problem]:
    if not _VARIABLE.fullmatch(name):
        yield place, f"{name[:60]!r} is not a variable name; write {example}"
    elif name.startswith(_OWN_PREFIX):
        yield place, f"{name[:60]!r} is reserved for CleverAgents; remove it"


def _home_problems(node: AgentNode) -> Iterator[_Problem]:
    for number, name in enumerate(node.home):
        path = PurePosixPath(name)
        plain = path.as_posix() == name and "\0" not in name and name != "."
        if not plain or path.is_absolute() or ".." in path.parts or "~" in path.parts:
            remedy = "write a relative path, such as .config/tool/settings.json"
            yield ("home", number), f"{name[:60]!r} is not a path below your home; {remedy}"
        elif name in node.home[:number]:
            yield ("home", number), f"{name!r} is listed twice; remove one"
