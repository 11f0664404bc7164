"""The configured MCP servers: the user's own, and those of a trusted repository.

Both files have the usual shape, `{"mcpServers": {name: {command, args, env, cwd} | {url, headers}}}`. A file
is read as a whole: if it has a mistake, none of its servers is used, and all mistakes are reported together.
A repository's file is read through the trust store, so that exactly the trusted content is used. A
repository's server cannot replace a user's server with the same name.

Edits of the user's `mcp.json` are atomic, keep the file readable by its owner only, and do not lose
concurrent edits. Other content of the file is preserved. The new content is complete and valid before
anything is touched; it is written to a file beside the old one, flushed, and renamed.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from cleveragents.access.trust.repository_files import RepositoryFile
from cleveragents.access.trust.sql_trust_store import SqlTrustStore
from cleveragents.config.document import read_bounded
from cleveragents.config.loader import user_file_path
from cleveragents.core.errors import ConfigurationError, StoreBusy, StoreFull
from cleveragents.tools.mcp.server_entry import McpServer, entry_of

__all__ = [
    "REPOSITORY_FILE",
    "SECTION",
    "McpConfiguration",
    "add_server",
    "load_mcp",
    "parse_object",
    "parse_servers",
    "remove_server",
    "user_mcp_file",
]


REPOSITORY_FILE = ".mcp.json"
SECTION = "mcpServers"

_LOCK_SECONDS = 10.0
_LOCK_PAUSE_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class McpConfiguration:
    """The usable servers, the untrusted servers of a repository with their file, and notes for the user."""

    servers: Mapping[str, McpServer] = field(default_factory=lambda: MappingProxyType({}))
    untrusted: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[str, ...] = ()


def user_mcp_file(environment: Mapping[str, str]) -> Path:
    """Return `$XDG_CONFIG_HOME/cleveragents/mcp.json`."""
    return user_file_path(environment).with_name("mcp.json")


def load_mcp(
    user_file: Path, resource: Path | None = None, trust: SqlTrustStore | None = None
) -> McpConfiguration:
    """Return the servers of the user and, with `resource` and `trust`, of that repository.

    Raises `ConfigurationError` for a mistake in the file of the user or of a trusted repository.
    """
    text = read_bounded(user_file)
    servers = {} if text is None else parse_servers(text, str(user_file), own=True)
    if resource is None or trust is None:
        return McpConfiguration(servers)
    try:
        brought = trust.look(resource, REPOSITORY_FILE)
    except ConfigurationError as error:  # a link to outside, or a pipe: ignore its servers
        return McpConfiguration(servers, notes=(f"{error}; the file is not used",))
    if brought is None:
        return McpConfiguration(servers)
    path = str(resource / REPOSITORY_FILE)
    if not brought.trusted:  # guard: nothing of a repository runs before it is trusted
        try:
            untrusted = {name: path for name in _names(brought, path) if name not in servers}
        except ConfigurationError as error:
            return McpConfiguration(servers, notes=(f"{error}; the file is not used",))
        note = f"{path} is not trusted; read it, then trust it"
        return McpConfiguration(servers, untrusted, (note,) if untrusted else ())
    theirs = parse_servers(brought.content.decode("utf-8", "replace"), path, own=False)
    hidden = [name for name in theirs if name in servers]
    notes = tuple(f"{path}: the server {name!r} is ignored; you have one with that name" for name in hidden)
    return McpConfiguration({**theirs, **servers}, notes=notes)


def parse_servers(text: str, source: str, *, own: bool) -> dict[str, McpServer]:
    """Return the servers of a file. Raises `ConfigurationError` with every mistake and its correction."""
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
    """Return the file's JSON object. Raises `ConfigurationError`."""
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
    if twice:  # guard: of two servers with one name, one would be lost silently
        raise ConfigurationError(source, f"has {twice[0]!r} twice; remove one of them")
    if not isinstance(document, dict):
        raise ConfigurationError(source, f'must be a JSON object: {{"{SECTION}": {{…}}}}')
    return document


def _names(brought: RepositoryFile, source: str) -> tuple[str, ...]:
    """Return the names of an untrusted file's servers. Raises `ConfigurationError` if they cannot be read."""
    return tuple(_section(parse_object(brought.content.decode("utf-8", "replace"), source), source))


def add_server(path: Path, name: str, entry: Mapping[str, object], *, replace: bool = False) -> None:
    """Add a server. Raises `ConfigurationError` if the entry is invalid or the name is taken."""

    def added(servers: dict[str, object]) -> dict[str, object]:
        if name in servers and not replace:  # guard: no server is overwritten by accident
            problem = f"the server {name!r} already exists; remove it first, or replace it"
            raise ConfigurationError(str(path), problem)
        return {**servers, name: dict(entry)}

    _edit(path, added)


def remove_server(path: Path, name: str) -> None:
    """Remove a server. Raises `ConfigurationError` if it does not exist."""

    def without(servers: dict[str, object]) -> dict[str, object]:
        if name not in servers:
            known = ", ".join(servers) or "none"
            raise ConfigurationError(str(path), f"no server {name!r} (known servers: {known})")
        return {other: entry for other, entry in servers.items() if other != name}

    _edit(path, without)


def _edit(path: Path, change: Callable[[dict[str, object]], dict[str, object]]) -> None:
    target = path.resolve()  # a link into a dotfiles collection stays a link
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _turn(target.parent / ".mcp.lock"):
            document = parse_object(read_bounded(target) or "{}", str(path))
            servers = document.get(SECTION, {})
            if not isinstance(servers, dict):
                raise ConfigurationError(str(path), f'"{SECTION}" must be an object of servers by name')
            text = json.dumps({**document, SECTION: change(servers)}, indent=2, ensure_ascii=False) + "\n"
            parse_servers(text, str(path), own=True)  # guard: never write what cannot be read again
            _replace(target, text.encode())
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(str(path)) from None
        raise ConfigurationError(str(path), f"cannot be written: {error.strerror}") from None


@contextmanager
def _turn(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    give_up = time.monotonic() + _LOCK_SECONDS
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= give_up:
                    raise StoreBusy(_LOCK_SECONDS) from None
            time.sleep(_LOCK_PAUSE_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, content: bytes) -> None:
    # A fixed name: the lock is held, so an existing file was left by a killed process.
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
