"""What a file that a repository brings along would do, in a few lines to decide by."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping

from cleveragents.application.ports.trust import BroughtFile
from cleveragents.domain.action import Action
from cleveragents.domain.actor import Actor, AgentNode, LlmNode, SubgraphNode, ToolNode
from cleveragents.domain.json_value import JsonValue
from cleveragents.domain.redaction import redact_content_text, redact_text
from cleveragents.errors import InvalidAction, InvalidActor
from cleveragents.infrastructure.actions.loading import load_action
from cleveragents.infrastructure.actors.loading import load_actor
from cleveragents.infrastructure.trust.repository_files import ACTIONS_DIRECTORY, ACTORS_DIRECTORY

__all__ = ["preview"]

_LINES = 12
_WIDTH = 160
_FIRST_LINES = 3


def preview(file: BroughtFile) -> tuple[str, ...]:
    """The commands it would run, or its first lines, without secrets; never more than a screen of them."""
    # Before it is cut: half a secret does not look like one.
    masked = map(redact_text, _lines(file))
    lines = [line if len(line) <= _WIDTH else f"{line[:_WIDTH]}…" for line in masked]
    if len(lines) > _LINES:
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
    elif file.path.endswith(".mcp.json"):
        yield from _of_servers(file.content)
    else:
        # As a whole: a line of a key does not look like one either.
        text = redact_content_text(file.content.decode("utf-8", "backslashreplace"))
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
    for name, server in servers.items():
        facts = server if isinstance(server, Mapping) else {}
        words = [facts.get("command"), *_list(facts.get("args"))]
        command = shlex.join(str(word) for word in words if word is not None)
        yield f"server {name}: {command or facts.get('url', 'nothing')}"


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
