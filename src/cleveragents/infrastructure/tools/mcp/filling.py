"""Fills the variables of a server's entry in, and keeps what they held out of everything that is printed.

A value that a variable gave is taken for a secret, unless the variable is one of the few that everybody has;
so is one whose name says so. From then on this process masks it wherever it redacts: in logs, errors, events
and in what a tool answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from cleveragents.domain.redaction import MASK, keep_secret, redact
from cleveragents.errors import ToolRefused
from cleveragents.infrastructure.commands.environment import OWN_PREFIX
from cleveragents.infrastructure.tools.mcp.server_entry import McpServer

__all__ = ["filled"]

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_NO_SECRETS = frozenset({"HOME", "USER", "LOGNAME", "PATH", "PWD", "SHELL", "LANG", "TMPDIR", "HOSTNAME"})


def filled(server: McpServer, variables: Mapping[str, str]) -> McpServer:
    """The same with every variable's value in place. `ToolRefused` names each that is not set."""
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
            keep_secret(found)
        return found

    def fill(text: str) -> str:
        return _VARIABLE.sub(value, text)

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
        if redact({name: text}) == {name: MASK}:
            keep_secret(text)
            keep_secret(text.rpartition(" ")[2])  # without the scheme: `Bearer …`
    return made


def _filled(texts: Mapping[str, str], fill: Callable[[str], str]) -> Mapping[str, str]:
    return MappingProxyType({name: fill(text) for name, text in texts.items()})
