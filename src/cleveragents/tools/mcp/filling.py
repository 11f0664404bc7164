"""Fills the variables of a server's entry in, and keeps what they held out of everything that is printed.

A value that a variable gave is taken for a secret, unless the variable is one of the few that every user has;
so is one whose name says so in a file of the user's own. It is added to the known secrets, and masked
wherever this process redacts: in logs, errors, events and in what a tool answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from cleveragents.core.errors import ToolRefused
from cleveragents.core.text.known_secrets import KnownSecrets
from cleveragents.core.text.redaction import MASK, redact
from cleveragents.processes.environment import OWN_PREFIX
from cleveragents.tools.mcp.gate import Permit
from cleveragents.tools.mcp.server_entry import VARIABLE, McpServer

__all__ = ["filled"]

_NO_SECRETS = frozenset({"HOME", "USER", "LOGNAME", "PATH", "PWD", "SHELL", "LANG", "TMPDIR", "HOSTNAME"})


def filled(permit: Permit, variables: Mapping[str, str], secrets: KnownSecrets) -> McpServer:
    """The permitted server with every variable's value in place; those that may be secret are added to
    `secrets`. `ToolRefused` names each that is not set."""
    server = permit.server
    missing: list[str] = []

    def value(match: re.Match[str]) -> str:
        name, otherwise = match.group(1), match.group(2)
        # guard: the token that opens our own server is among ours
        found = None if name.startswith(OWN_PREFIX) else variables.get(name)
        if not found and otherwise is not None:
            return otherwise
        if found is None:
            missing.append(name)
            return ""
        if name not in _NO_SECRETS and not name.startswith("XDG_"):
            secrets.add(found)
        return found

    def fill(text: str) -> str:
        return VARIABLE.sub(value, text)

    made = replace(
        server,
        command=tuple(fill(word) for word in server.command),
        environment=_filled(server.environment, fill),
        directory=fill(server.directory),
        url=fill(server.url),
        headers=_filled(server.headers, fill),
    )
    if missing:
        names = ", ".join(dict.fromkeys(missing))
        reason = f"{server.source} needs {names}, which the environment does not have; set it and try again"
        raise ToolRefused(f"MCP server {server.name}", reason)
    for name, text in (*made.environment.items(), *made.headers.items()):
        # guard: a repository does not choose which text is masked where a person approves it
        if server.own and redact({name: text}) == {name: MASK}:
            secrets.add(text)
            secrets.add(text.rpartition(" ")[2])  # without the scheme: `Bearer …`
    return made


def _filled(texts: Mapping[str, str], fill: Callable[[str], str]) -> Mapping[str, str]:
    return MappingProxyType({name: fill(text) for name, text in texts.items()})
