"""Which MCP servers there are: the user's own, and a repository's, once it is trusted.

Both files have the usual shape, `{"mcpServers": {name: {command, args, env, cwd} | {url, headers}}}`. A file
is read as a whole: with one mistake in it none of its servers is used, and all its mistakes are told at once.
What a repository brings along is read through the trust store, so what was trusted is what is used; and a
server of the user's cannot be replaced by one of the same name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from cleveragents.access.trust_ports import BroughtFile, TrustStore
from cleveragents.config.document import read_bounded
from cleveragents.config.loading import user_file_path
from cleveragents.core.errors import ConfigurationError
from cleveragents.tools.mcp.server_entry import McpServer, entry_of

__all__ = [
    "REPOSITORY_FILE",
    "SECTION",
    "McpConfiguration",
    "load_mcp",
    "parse_object",
    "parse_servers",
    "user_mcp_file",
]

REPOSITORY_FILE = ".mcp.json"
SECTION = "mcpServers"


@dataclass(frozen=True, slots=True)
class McpConfiguration:
    """The servers that may be used; those of a repository that may not yet, each with its file; and what the
    user should know."""

    servers: Mapping[str, McpServer] = field(default_factory=lambda: MappingProxyType({}))
    untrusted: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[str, ...] = ()


def user_mcp_file(environment: Mapping[str, str]) -> Path:
    """`$XDG_CONFIG_HOME/cleveragents/mcp.json`."""
    return user_file_path(environment).with_name("mcp.json")


def load_mcp(
    user_file: Path, resource: Path | None = None, trust: TrustStore | None = None
) -> McpConfiguration:
    """What is configured for the user and, with both of the others, for that repository.

    `ConfigurationError` for a mistake in the user's file, or in a repository's that is trusted.
    """
    text = read_bounded(user_file)
    servers = {} if text is None else parse_servers(text, str(user_file), own=True)
    if resource is None or trust is None:
        return McpConfiguration(servers)
    try:
        brought = trust.look(resource, REPOSITORY_FILE)
    except ConfigurationError as error:  # a link out of it, a pipe: no server comes from there
        return McpConfiguration(servers, notes=(f"{error}; it is not used",))
    if brought is None:
        return McpConfiguration(servers)
    path = str(resource / REPOSITORY_FILE)
    if not brought.trusted:  # guard: what a repository brings runs nothing before it is trusted
        try:
            untrusted = {name: path for name in _names(brought, path) if name not in servers}
        except ConfigurationError as error:
            return McpConfiguration(servers, notes=(f"{error}; it is not used",))
        note = f"{path} is not trusted; read it, then trust it"
        return McpConfiguration(servers, untrusted, (note,) if untrusted else ())
    theirs = parse_servers(brought.content.decode("utf-8", "replace"), path, own=False)
    hidden = [name for name in theirs if name in servers]
    notes = tuple(f"{path}: the server {name!r} is not used; you have one of that name" for name in hidden)
    return McpConfiguration({**theirs, **servers}, notes=notes)


def parse_servers(text: str, source: str, *, own: bool) -> dict[str, McpServer]:
    """The servers of a file. `ConfigurationError` names every mistake, and what to write instead."""
    document = parse_object(text, source)
    servers: dict[str, McpServer] = {}
    problems: list[str] = []
    for name, facts in _section(document, source).items():
        server, wrong = entry_of(name, facts, source, own=own)
        problems += [f"server {name!r}: {problem}" for problem in wrong]
        if server is not None and not server.disabled:
            servers[name] = server
    if problems:
        raise ConfigurationError(source, "; ".join(problems))
    return servers


def _section(document: Mapping[str, object], source: str) -> Mapping[str, object]:
    section = document.get(SECTION, {})
    if not isinstance(section, Mapping):
        raise ConfigurationError(source, f'"{SECTION}" must be an object of servers by name')
    if SECTION not in document and document:
        raise ConfigurationError(source, f'has no "{SECTION}"; put the servers inside it')
    return section


def parse_object(text: str, source: str) -> dict[str, object]:
    """The file's JSON object. `ConfigurationError`."""
    twice: list[str] = []

    def joined(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        twice.extend(name for name in found if sum(name == other for other, _ in pairs) > 1)
        return found

    try:
        document = json.loads(text, object_pairs_hook=joined)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ConfigurationError(source, f"is not valid JSON: {error.msg} ({place})") from None
    except RecursionError:
        raise ConfigurationError(source, "is not valid JSON: nested too deeply") from None
    if twice:  # guard: of two servers of one name, one would be lost without a word
        raise ConfigurationError(source, f"has {twice[0]!r} twice; remove one of them")
    if not isinstance(document, dict):
        raise ConfigurationError(source, f'must be a JSON object: {{"{SECTION}": {{…}}}}')
    return document


def _names(brought: BroughtFile, source: str) -> tuple[str, ...]:
    """What an untrusted file calls its servers. `ConfigurationError` if that cannot be told."""
    return tuple(_section(parse_object(brought.content.decode("utf-8", "replace"), source), source))
