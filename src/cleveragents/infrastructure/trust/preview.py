"""What a file that a repository brings along would do, in a few lines to decide by."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping

from cleveragents.application.ports.trust import BroughtFile
from cleveragents.domain.action import Action, Step
from cleveragents.errors import InvalidAction
from cleveragents.infrastructure.actions.loading import load_action
from cleveragents.infrastructure.trust.repository_files import ACTIONS_DIRECTORY

__all__ = ["preview"]

_LINES = 12
_WIDTH = 160
_FIRST_LINES = 3


def preview(file: BroughtFile) -> tuple[str, ...]:
    """The commands it would run, or its first lines; never more than a screen of them."""
    lines = [line if len(line) <= _WIDTH else f"{line[:_WIDTH]}…" for line in _lines(file)]
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
    elif file.path.endswith(".mcp.json"):
        yield from _of_servers(file.content)
    else:
        text = file.content.decode("utf-8", "backslashreplace")
        yield from [line.strip() for line in text.splitlines() if line.strip()][:_FIRST_LINES]


def _of_action(action: Action) -> Iterator[str]:
    if action.setup:
        yield f"sets up with: {action.setup.command}"
    for step in action.steps:
        yield f"runs: {_spelt(step)}"
    for check in action.checks:
        yield f"checks with: {check.command}"
    for actor in (action.strategize_actor, action.execute_actor):
        if actor:
            yield f"is carried out by: {actor}"


def _spelt(step: Step) -> str:
    if step.shell:
        return str(step.arguments["command"])
    argv = step.arguments.get("argv")
    if isinstance(argv, (list, tuple)):
        return shlex.join(str(word) for word in argv)
    return f"{step.tool} " + " ".join(f"{key}={item!r}" for key, item in step.arguments.items())


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
