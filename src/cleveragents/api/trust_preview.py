"""What a file that a repository brings along would do, in a few lines to decide by."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping

from cleveragents.access.trust.repository_files import ACTIONS_DIRECTORY, ACTORS_DIRECTORY
from cleveragents.access.trust_ports import BroughtFile
from cleveragents.actors.loading import load_actor
from cleveragents.actors.model.actor import Actor, AgentNode, LlmNode, SubgraphNode, ToolNode
from cleveragents.core.actions.model import Action
from cleveragents.core.errors import InvalidAction, InvalidActor
from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.redaction import redact_known_text
from cleveragents.plans.actions.loading import load_action
from cleveragents.tools.mcp.server_entry import McpServer, entry_of, variables_of

__all__ = ["preview"]

_LINES = 12
_WIDTH = 160
_FIRST_LINES = 3


def preview(file: BroughtFile) -> tuple[str, ...]:
    """The commands it would run, or its first lines; never more than a screen of them. Only known secrets are
    masked: a name or a shape would hide code from the person who decides.

    MCP servers are shown in full: no number of lines hides which variables they receive."""
    # Before it is cut: half a secret does not look like one.
    masked = (_on_one_line(redact_known_text(line)) for line in _lines(file))
    lines = [line if len(line) <= _WIDTH else f"{line[:_WIDTH]}…" for line in masked]
    if len(lines) > _LINES and not _names_servers(file):
        return (*lines[:_LINES], f"… and {len(lines) - _LINES} more")
    return tuple(lines)


def _lines(file: BroughtFile) -> Iterator[str]:
    if file.path.startswith(f"{ACTIONS_DIRECTORY}/"):
        try:
            action = load_action(file.content, file.path)
        except InvalidAction as error:
            yield from (f"is no valid action: {problem}" for problem in error.problems)
            return
        yield from _of_action(action)
    elif file.path.startswith(f"{ACTORS_DIRECTORY}/") and file.path.endswith(".yaml"):
        try:
            # Its prompts are files that are shown for themselves.
            actor = load_actor(file.content, file.path, prompts=lambda relative: relative.encode())
        except InvalidActor as error:
            yield from (f"is no valid actor: {problem}" for problem in error.problems)
            return
        yield from _of_actor(actor)
    elif _names_servers(file):
        yield from _of_servers(file.content)
    else:
        # As a whole: a known secret may have several lines.
        text = redact_known_text(file.content.decode("utf-8", "backslashreplace"))
        yield from [line.strip() for line in text.splitlines() if line.strip()][:_FIRST_LINES]


def _of_action(action: Action) -> Iterator[str]:
    if action.setup:
        yield f"sets up with: {action.setup.command}"
    for step in action.steps:
        yield f"runs: {_spelt(step.tool, step.arguments, shell=step.shell)}"
    for check in action.checks:
        yield f"checks with: {check.command}"
    for actor in (action.strategize_actor, action.execute_actor):
        if actor:
            yield f"is carried out by: {actor}"


def _of_actor(actor: Actor) -> Iterator[str]:
    for node in actor.nodes:
        if isinstance(node, LlmNode):
            model = node.model or actor.model or "a model"
            yield f"asks {model}, which may use: {', '.join(node.tools) or 'nothing'}"
        if isinstance(node, ToolNode):
            yield f"runs: {_spelt(node.tool, node.arguments)}"
        if isinstance(node, AgentNode):
            yield from _of_agent(node)
        if isinstance(node, SubgraphNode):
            yield f"is carried out by: {node.actor}"


def _of_agent(node: AgentNode) -> Iterator[str]:
    yield f"runs: {shlex.join(node.argv)}{' with the network' if node.network else ''}"
    # What it gets of the user's is what there is to decide about.
    if node.environment:
        yield f"with your variables: {', '.join(node.environment)}"
    if node.home:
        yield f"with a copy of these in your home: {', '.join(node.home)}"


def _spelt(tool: str, arguments: Mapping[str, JsonValue], *, shell: bool = False) -> str:
    if shell:
        return str(arguments["command"])
    argv = arguments.get("argv")
    if isinstance(argv, (list, tuple)):
        return shlex.join(str(word) for word in argv)
    return f"{tool} " + " ".join(f"{key}={item!r}" for key, item in arguments.items())


def _of_servers(content: bytes) -> Iterator[str]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        yield "is not valid JSON"
        return
    servers = document.get("mcpServers") if isinstance(document, Mapping) else None
    if not isinstance(servers, Mapping):
        yield "names no servers"
        return
    for name, facts in servers.items():
        server, problems = entry_of(str(name), facts, "", own=False)
        if server is None:
            yield f"server {name} is not valid: {'; '.join(problems)}"
        else:
            yield from _of_server(server)


def _of_server(server: McpServer) -> Iterator[str]:
    """What is started or connected to, and all that it receives, by name. The variables come first."""
    yield f"server {server.name}: {server.url or shlex.join(server.command)}"
    for variable, place in variables_of(server):
        yield f"  receives your variable {variable} ({place})"
    for name, value in server.headers.items():
        yield f"  header {name}: {value}"
    for name, value in server.environment.items():
        yield f"  env {name}={value}"
    if server.directory:
        yield f"  cwd {server.directory}"
    if server.disabled:
        yield "  disabled"


def _names_servers(file: BroughtFile) -> bool:
    return file.path.endswith(".mcp.json")


def _on_one_line(text: str) -> str:
    """The text without line breaks and control characters, which could imitate other lines."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
