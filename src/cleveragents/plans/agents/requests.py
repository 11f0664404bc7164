"""What an agent asks for in its protocol's words, in ours: arguments of tools, and what needs leave."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from cleveragents.actors.agent_ports import TerminalCommand, Wanted
from cleveragents.core.errors import ToolRefused
from cleveragents.core.json_value import JsonValue, thaw
from cleveragents.core.policy import Capability

__all__ = [
    "COMMAND",
    "READ",
    "WRITE",
    "capability_for",
    "command_arguments",
    "permission_arguments",
    "text_of",
]

READ = "read"
WRITE = "write"
COMMAND = "command"

# Its time is the session's; the tool's own bound only has to be no shorter, and the same each time, because a
# person's answer counts for a call with the same arguments.
_COMMAND_SECONDS = 8 * 3600.0
_FOR_A_SHELL = re.compile(r"[\s|&;<>()$`\"'*?\[\]#~%\\]")
_DETAILS = 2_000
_TITLE = 500
_MOST_PATHS = 20
_MOST_CHARACTERS = 200_000

_CAPABILITIES = {
    "read": Capability.READ,
    "search": Capability.READ,
    "think": Capability.READ,
    "edit": Capability.EDIT,
    "move": Capability.EDIT,
    "delete": Capability.DELETE,
    "execute": Capability.COMMAND,
    "fetch": Capability.NETWORK,
}


def capability_for(wanted: Wanted) -> Capability:
    """What leave it needs; of a kind that says nothing, as much as a command may do."""
    return _CAPABILITIES.get(wanted.kind, Capability.COMMAND)


def permission_arguments(agent: str, wanted: Wanted) -> dict[str, JsonValue]:
    """A request for approval as it is recorded and shown. What is cut says how much is missing."""
    details = "" if wanted.details is None else json.dumps(wanted.details, sort_keys=True, default=thaw)
    said: dict[str, JsonValue] = {
        "title": _cut(wanted.title, _TITLE),
        "paths": tuple(_cut(path, _TITLE) for path in wanted.paths[:_MOST_PATHS]),
        "more_paths": max(0, len(wanted.paths) - _MOST_PATHS),
        "details": _cut(details, _DETAILS),
    }
    asked: dict[str, JsonValue] = {"agent": agent, "asks": "permission", "kind": wanted.kind}
    return asked | {name: value for name, value in said.items() if value}


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}… ({len(text) - length} more characters)"


def command_arguments(command: TerminalCommand, where: str, works_in: str) -> dict[str, JsonValue]:
    """For our tool. `where` is relative to the sandbox's root, and `works_in` is where the plan works."""
    variables = tuple(f"{name}={value}" for name, value in command.environment)
    line = not command.arguments and bool(_FOR_A_SHELL.search(command.command.strip()))
    arguments: dict[str, JsonValue]
    if line and not variables:
        arguments = {"script": command.command}
    else:
        words = ("/bin/sh", "-c", command.command) if line else (command.command.strip(), *command.arguments)
        arguments = {"argv": ("env", *variables, *words) if variables else words}
    if where == works_in:
        where = ""
    elif works_in and where:
        inside = where.startswith(f"{works_in}/")
        where = where[len(works_in) + 1 :] if inside else f"../{where}"  # which the tool refuses
    return {**arguments, "directory": where, "timeout_seconds": _COMMAND_SECONDS}


def text_of(result: JsonValue, limit: int | None) -> str:
    """What our `read` read. `ToolRefused` unless it is all that was asked for, as it is in the file: whoever
    writes it back would lose the rest."""
    assert isinstance(result, Mapping)
    path, content = result["path"], str(result["content"])
    if result["encoding"] != "utf-8":
        raise ToolRefused(READ, f"{path!r} is no text in UTF-8")
    cut = len(content) >= _MOST_CHARACTERS or "no room" in str(result["note"])
    if cut or (result["truncated"] and limit is None and "follow" in str(result["note"])):
        lines = result["total_lines"]
        raise ToolRefused(READ, f"{path!r} is too long to be read at once ({lines} lines); ask for a part")
    return content
