"""Tools of MCP servers as ordinary tools: found by name, checked by the policy, recorded.

A server's tool may do anything that its process can, so it needs the approval of a command, or of the network
for a remote server. Its changes in the sandbox are found by a scan. A claim that a tool only reads is trusted
only for servers that the user added.

Arguments are checked against the server's schema. The schema is untrusted: its external references are not
fetched, and its regular expressions, which could run forever, are not used. The server itself checks the
rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from cleveragents.core.errors import (
    CallDenied,
    InvalidToolCall,
    NotTrusted,
    PolicyDenied,
    ToolRefused,
    UnknownTool,
)
from cleveragents.core.json_value import FrozenObject, JsonValue, thaw
from cleveragents.core.policy import Capability
from cleveragents.core.tool import ToolSpec
from cleveragents.processes.ports import StopSignal
from cleveragents.tools.mcp.configuration import McpConfiguration
from cleveragents.tools.mcp.connection import ServerTimeouts
from cleveragents.tools.mcp.gate import ServerPermit, StartGate
from cleveragents.tools.mcp.launch import ServerPlace
from cleveragents.tools.mcp.server_entry import McpServer
from cleveragents.tools.mcp.servers import McpServers
from cleveragents.tools.mcp.tool_list import PREFIX, SEPARATOR, ListedTool, full_name, server_in
from cleveragents.tools.ports import SandboxFiles, Tool, Workplace

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

__all__ = ["McpTool", "McpTools", "check_arguments", "open_mcp"]


_WILD = re.compile(r"[*?\[]")
_OUTPUT = FrozenObject(
    {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "the answer as text, cut if it is too long"},
            "structured": {"description": "the answer as JSON, if any"},
        },
        "required": ["text"],
    }
)

_SHOWN = 5
_LONGEST = 300
_MOST_REFERENCES = 10_000
_references: ContextVar[list[int]] = ContextVar("references that a schema made us follow")


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool of a server. Any thread may call it."""

    servers: McpServers
    permit: ServerPermit
    listed: ListedTool

    @property
    def server(self) -> McpServer:
        return self.permit.server

    @property
    def spec(self) -> ToolSpec:
        reads = self._only_reads
        return ToolSpec(
            name=full_name(self.server.name, self.listed.name),
            description=self.listed.description
            or f"{self.listed.name}, of the MCP server {self.server.name}",
            capability=self._capability,
            input_schema=self.listed.input_schema,
            output_schema=_OUTPUT,
            writes=not reads,
            runs_commands=not reads,
        )

    def capability_of(self, arguments: Mapping[str, JsonValue], files: SandboxFiles) -> Capability:
        check_arguments(self.spec.name, self.listed.input_schema, arguments)
        return self._capability

    def call(self, arguments: Mapping[str, JsonValue], workplace: Workplace) -> JsonValue:
        name = self.spec.name
        check_arguments(name, self.listed.input_schema, arguments)
        given = cast("dict[str, Any]", thaw(FrozenObject(arguments)))
        answer = self.servers.call(self.permit, self.listed.name, given, workplace.stop)
        if answer.failed:
            raise ToolRefused(name, answer.text or "the tool failed without a message")
        if answer.structured is None:
            return {"text": answer.text}
        return {"text": answer.text, "structured": answer.structured}

    @property
    def _only_reads(self) -> bool:
        # guard: a repository's server may claim anything
        return self.listed.read_only and self.server.own

    @property
    def _capability(self) -> Capability:
        if self._only_reads:
            return Capability.READ
        return Capability.NETWORK if self.server.url else Capability.COMMAND


class McpTools:
    """A `ToolSource` of the tools of all servers.

    Any thread may use it. The first use of a tool or pattern starts its servers, if they are configured and
    trusted, and waits for them.
    """

    def __init__(
        self,
        servers: McpServers,
        configuration: McpConfiguration,
        gate: StartGate,
        stop: StopSignal | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._servers = servers
        self._configuration = configuration
        self._gate = gate
        self._stop = stop
        self._say = say
        self._said: dict[str, object] = {}

    def under(self, gate: StartGate) -> McpTools:
        """Return the same servers for a run with another gate.

        A running server is not started again, and a run uses only servers that its own gate permits.
        """
        other = McpTools(self._servers, self._configuration, gate, self._stop, self._say)
        other._said = self._said
        return other

    def get(self, name: str) -> Tool:
        """Return the tool. Raises `UnknownTool`, `NotTrusted`, `ToolRefused` if its server cannot be used,
        and the errors of `StartGate.permit`.
        """
        server = self._server(name)
        found = self._tools(server).get(name)
        if found is None:
            known = tuple(self._tools(server))
            near = get_close_matches(name, known, n=3)
            raise UnknownTool(name, (*near, *(other for other in known if other not in near)))
        if found.listed.problem:
            raise ToolRefused(name, f"the tool cannot be used: {found.listed.problem}")
        return found

    def capability_of(
        self, tool: Tool, arguments: Mapping[str, JsonValue], files: SandboxFiles
    ) -> Capability:
        return tool.capability_of(arguments, files)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(name for name, tool in self._all().items() if not tool.listed.problem))

    def specs(self) -> tuple[ToolSpec, ...]:
        found = self._all()
        return tuple(found[name].spec for name in self.names())

    def select(self, pattern: str) -> tuple[str, ...]:
        """Return the tool names that match a pattern: `mcp__*`, or `mcp__server__*`, which starts only that
        server.

        If a named server cannot be used, an error is raised, because the caller relies on the server. A
        server that is not permitted has no tools, and the reason is reported.
        """
        server, separator, _ = pattern.removeprefix(PREFIX).partition(SEPARATOR)
        fixed = _WILD.split(pattern, maxsplit=1)[0]
        # guard: a pattern without MCP tools starts no server
        if not fixed.startswith(PREFIX) and not PREFIX.startswith(fixed):
            return ()
        if not pattern.startswith(PREFIX) or not separator or _WILD.search(server):
            return tuple(name for name in self.names() if fnmatchcase(name, pattern))
        named = self._server(pattern)
        try:
            found = self._tools(named)
        except (PolicyDenied, CallDenied) as denied:
            self._tell(named.name, str(denied))
            return ()
        return tuple(
            sorted(name for name in found if fnmatchcase(name, pattern) and not found[name].listed.problem)
        )

    def problems(self) -> tuple[ToolRefused, ...]:
        """Return the problems of all unusable servers and tools. Starts the servers."""
        problems = [ToolRefused("mcp", note) for note in self._configuration.notes]
        for server in self._configuration.servers.values():
            try:
                tools = self._tools(server)
            except ToolRefused as refusal:
                problems.append(refusal)
                continue
            except (PolicyDenied, CallDenied) as denied:
                problems.append(ToolRefused(f"MCP server {server.name}", str(denied)))
                continue
            problems += [
                ToolRefused(name, f"the tool cannot be used: {tool.listed.problem}")
                for name, tool in tools.items()
                if tool.listed.problem
            ]
        return tuple(problems)

    def _all(self) -> dict[str, McpTool]:
        found: dict[str, McpTool] = {}
        for server in self._configuration.servers.values():
            try:
                tools = self._tools(server)
            except (ToolRefused, PolicyDenied, CallDenied) as refusal:
                self._tell(server.name, str(refusal))
                continue
            for name, tool in tools.items():
                if tool.listed.problem:
                    self._tell(name, f"{name} cannot be used: {tool.listed.problem}")
            found |= tools
        return found

    def _tell(self, name: str, what: str) -> None:
        mine = object()
        # One step, so that only one of two threads reports it.
        if self._say is not None and self._said.setdefault(name, mine) is mine:
            self._say(what)

    def _tools(self, server: McpServer) -> dict[str, McpTool]:
        permit = self._gate.permit(server)  # nothing is started or connected to before this
        listing = self._servers.tools(permit, self._stop)
        return {full_name(server.name, tool.name): McpTool(self._servers, permit, tool) for tool in listing}

    def _server(self, name: str) -> McpServer:
        server = server_in(name)
        found = self._configuration.servers.get(server)
        if found is not None:
            return found
        path = self._configuration.untrusted.get(server)
        if path is not None:
            raise NotTrusted(f"the MCP server {server!r}", path)
        raise UnknownTool(
            name, tuple(f"{PREFIX}{known}{SEPARATOR}*" for known in self._configuration.servers)
        )


def check_arguments(tool: str, schema: Mapping[str, JsonValue], arguments: Mapping[str, JsonValue]) -> None:
    """Raise `InvalidToolCall` if the arguments do not fit the schema."""
    from jsonschema.exceptions import ValidationError
    from referencing.exceptions import Unresolvable

    problems: list[str] = []
    _references.set([0])
    try:
        found = _validator()(thaw(FrozenObject(schema)), registry=_nothing_elsewhere())
        for error in found.iter_errors(thaw(FrozenObject(arguments))):
            problems.append(_problem(error))
            if len(problems) == _SHOWN:
                break
    except (Unresolvable, ValidationError, TypeError, ValueError, RecursionError):
        return  # an unusable schema: the server has to check
    if problems:
        raise InvalidToolCall(tool, "; ".join(problems))


@cache
def _validator() -> type[Validator]:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    # guard: an untrusted expression could block us forever
    unread = dict.fromkeys(("pattern", "patternProperties"), _pass)
    follow = Draft202012Validator.VALIDATORS["$ref"]

    def followed(validator: Any, reference: str, instance: Any, schema: Any) -> Iterator[Any]:
        count = _references.get()
        count[0] += 1
        if count[0] > _MOST_REFERENCES:  # guard: references to references could take forever
            raise ValueError("the schema has too many references")
        yield from follow(validator, reference, instance, schema) or ()

    found: type[Validator] = extend(Draft202012Validator, {**unread, "$ref": followed})
    return found


@cache
def _nothing_elsewhere() -> Any:
    from referencing import Registry

    return Registry()


def _pass(validator: object, value: object, instance: object, schema: object) -> Iterator[Any]:
    return iter(())


def _problem(error: Any) -> str:
    place = ".".join(str(step) for step in error.absolute_path)
    said = str(error.message)[:_LONGEST]
    return f"invalid argument {place!r}: {said}" if place else said


@contextmanager
def open_mcp(
    configuration: McpConfiguration,
    place: ServerPlace,
    gate: StartGate,
    stop: StopSignal | None = None,
    *,
    patience: ServerTimeouts | None = None,
    say: Callable[[str], None] | None = None,
) -> Iterator[McpTools]:
    """Yield the tools of these servers for the duration of the context.

    Entering starts nothing, not even a thread. On exit, no server and none of its processes is alive. A
    server is started or connected to only after the gate permits it. `stop` cancels a running start or
    listing; a call has its own signal. Unusable servers and tools are reported once, when all tools are
    listed.
    """
    with McpServers(place, patience) as servers:
        yield McpTools(servers, configuration, gate, stop, say)
