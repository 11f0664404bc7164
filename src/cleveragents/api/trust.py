"""Trust in files of a repository that can run code: its settings, actions, actors, skills and MCP servers.

A trusted file can run programs as the user of the workers. So trust is an admin's to give, and it is given to
contents, by their digests, as they were shown: never to whatever is there by then.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cleveragents.access.model.user import Role
from cleveragents.access.trust.repository_files import ACTIONS_DIRECTORY, ACTORS_DIRECTORY, repository_root
from cleveragents.api.format import printable_name, timestamp
from cleveragents.api.resources import place_of, resource_path, trusted_place_of
from cleveragents.api.views import Page, page_of, shown, view, view_of
from cleveragents.core.errors import (
    ChangedMeanwhile,
    ConfigurationError,
    InvalidAction,
    InvalidActor,
    RequestRefused,
)
from cleveragents.core.text.redaction import redact_known_text

if TYPE_CHECKING:
    from cleveragents.access.trust.repository_files import RepositoryFile, TrustSurvey
    from cleveragents.actors.model.actor import Actor, AgentNode
    from cleveragents.api.access import Access
    from cleveragents.api.transport import HttpTransport
    from cleveragents.core.actions.model import Action
    from cleveragents.core.json_value import JsonValue
    from cleveragents.tools.mcp.server_entry import McpServer

__all__ = [
    "HttpTrust",
    "LocalTrust",
    "RefusedFileView",
    "RevokedTrustView",
    "Trust",
    "TrustSurveyView",
    "TrustedFileView",
    "UntrustedFileView",
    "preview",
]

_DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_FILE = ".cleveragents/actions/release.yaml"
_NAMED = 5
_LINES = 12
_WIDTH = 160
_FIRST_LINES = 3


@view
class UntrustedFileView:
    """A file that has an effect only while its content is trusted."""

    path: str = shown(examples=[_FILE])
    digest: str = shown("SHA-256 of its content", examples=[_DIGEST])
    size: int = shown("bytes", examples=[412])
    trusted: bool = shown("whether this very content is trusted", examples=[False])
    preview: tuple[str, ...] = shown("what it would run and receive, or its first lines; masked")


@view
class RefusedFileView:
    """A file that cannot be trusted."""

    path: str = shown(examples=[".mcp.json"])
    why: str = shown(examples=["leads out of the repository"])


@view
class TrustSurveyView:
    """All files of a repository that need trust: of a directory or a remote branch, as it is now."""

    resource: str = shown(examples=["shop-main"])
    files: tuple[UntrustedFileView, ...]
    refused: tuple[RefusedFileView, ...]


@view
class RevokedTrustView:
    """The files that were trusted and no longer are."""

    paths: tuple[str, ...]


@view
class TrustedFileView:
    """A content that is trusted."""

    path: str = shown("of a git remote, below a name of that", examples=[f"remote:9f86/{_FILE}"])
    digest: str = shown(examples=[_DIGEST])
    trusted: datetime = shown("when", examples=["2026-11-15T12:00:00Z"])


class Trust(Protocol):
    """The trusted files of repositories.

    A resource is named, or is the `Path` of a repository on this machine or of one of its files, for server
    admins. A server refuses a path: `RequestRefused`.
    """

    def list(self, *, limit: int = 100, after: str | None = None) -> Page[TrustedFileView]:
        """Return one page of all contents that are trusted, by path. `NotAllowed`."""

    def survey(self, resource: str | Path) -> TrustSurveyView:
        """Return the files of a resource that need trust. A git remote is fetched.

        `UnknownResource`, `RemoteUnreachable`, `SandboxRefused`; `NotAllowed` unless an admin of the project
        asks.
        """

    def give(self, resource: str | Path, files: Collection[tuple[str, str]]) -> TrustSurveyView:
        """Trust files of a resource, each with the path and the digest that `survey` returned.

        `ChangedMeanwhile` if one of them has another content now: then none is trusted. `NotAllowed` unless
        a server admin asks. Other errors as of `survey`.
        """

    def revoke(self, resource: str | Path) -> RevokedTrustView:
        """Trust no file of a resource any more. Neither its files nor its remote are looked at.

        `UnknownResource`; `NotAllowed` unless an admin of the project asks.
        """


class LocalTrust:
    """Trust in the database of this process. Any thread may use it."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._store = access.container.plan_parts.trust

    def list(self, *, limit: int = 100, after: str | None = None) -> Page[TrustedFileView]:
        self._access.ensure_server_admin()
        rows = [
            view_of(
                TrustedFileView,
                {"path": one.path, "digest": one.digest, "trusted": timestamp(one.trusted_at)},
            )
            for one in self._store.list()
        ]
        return page_of(sorted(rows, key=_key), _key, limit, after)

    def survey(self, resource: str | Path) -> TrustSurveyView:
        if not isinstance(resource, Path):
            return _survey_view(resource, self._survey(resource))
        survey, files = self._chosen(resource)
        return _survey_view(str(survey.root), survey, files)

    def give(self, resource: str | Path, files: Collection[tuple[str, str]]) -> TrustSurveyView:
        if isinstance(resource, Path):
            survey, there = self._chosen(resource)
        else:
            self._access.resource(resource, Role.ADMIN)
            self._access.ensure_server_admin()
            survey = self._survey(resource)
            there = survey.files
        known = [((printable_name(file.path), file.digest), file) for file in there]
        seen = set(files)
        changed = sorted(path for path, _ in seen - {pair for pair, _ in known})
        if changed:  # guard: what nobody has seen is not trusted
            raise ChangedMeanwhile(", ".join(changed[:_NAMED]) + (" …" if len(changed) > _NAMED else ""))
        self._store.give(survey.root, [file for pair, file in known if pair in seen])
        name = str(survey.root) if isinstance(resource, Path) else resource
        return _survey_view(name, self._store.survey(survey.root))

    def revoke(self, resource: str | Path) -> RevokedTrustView:
        if isinstance(resource, Path):
            self._access.ensure_server_admin()
            place = resource
        else:
            place = trusted_place_of(self._access.container, self._access.resource(resource, Role.ADMIN))
        return RevokedTrustView(paths=tuple(printable_name(path) for path in self._store.revoke(place)))

    def _survey(self, resource: str) -> TrustSurvey:
        found = self._access.resource(resource, Role.ADMIN)
        return self._store.survey(place_of(self._access.container, found))

    def _chosen(self, path: Path) -> tuple[TrustSurvey, tuple[RepositoryFile, ...]]:
        """Return what the repository at the path brings along, and which of it the path means."""
        self._access.ensure_server_admin()
        if path.is_dir():
            survey = self._store.survey(repository_root(path))
            return survey, survey.files
        if not path.exists():
            raise ConfigurationError(str(path), "does not exist; name a repository or one of its files")
        root = repository_root(path.parent)
        survey = self._store.survey(root)
        wanted = os.path.relpath(Path(os.path.realpath(path.parent)) / path.name, root)
        chosen = tuple(file for file in survey.files if file.path == wanted)
        if not chosen:
            raise ConfigurationError(str(path), "is not something that needs trust, or cannot be trusted")
        return survey, chosen


class HttpTrust:
    """Trust on a server."""

    def __init__(self, http: HttpTransport) -> None:
        self._http = http

    def list(self, *, limit: int = 100, after: str | None = None) -> Page[TrustedFileView]:
        return self._http.page(TrustedFileView, "/trust", limit, after)

    def survey(self, resource: str | Path) -> TrustSurveyView:
        return view_of(TrustSurveyView, self._http.get(_path(resource)))

    def give(self, resource: str | Path, files: Collection[tuple[str, str]]) -> TrustSurveyView:
        body = {"files": [{"path": path, "digest": digest} for path, digest in files]}
        return view_of(TrustSurveyView, self._http.post(_path(resource), body))

    def revoke(self, resource: str | Path) -> RevokedTrustView:
        return view_of(RevokedTrustView, self._http.post(f"{_path(resource)}/revoke"))


def _path(resource: str | Path) -> str:
    if isinstance(resource, Path):  # guard: the server's files are not this machine's
        raise RequestRefused(f"a server has no path of yours: name a resource instead of {resource}")
    return f"{resource_path(resource)}/trust"


def _survey_view(
    name: str, survey: TrustSurvey, files: Collection[RepositoryFile] | None = None
) -> TrustSurveyView:
    fields: dict[str, JsonValue] = {
        "resource": name,
        "files": [_file_json(file) for file in (survey.files if files is None else files)],
        "refused": [{"path": path, "why": why} for path, why in survey.refused],
    }
    return view_of(TrustSurveyView, fields)


def _file_json(file: RepositoryFile) -> dict[str, JsonValue]:
    return {
        "path": file.path,
        "digest": file.digest,
        "size": len(file.content),
        "trusted": file.trusted,
        "preview": list(preview(file)),
    }


def _key(trusted: TrustedFileView) -> str:
    return f"{trusted.path} {trusted.digest}"


def preview(file: RepositoryFile) -> tuple[str, ...]:
    """The commands it would run, or its first lines; never more than a screen of them. Only known secrets are
    masked: a name or a shape would hide code from the person who decides.

    MCP servers are shown in full: no number of lines hides which variables they receive."""
    # Before it is cut: half a secret does not look like one.
    masked = (_on_one_line(redact_known_text(line)) for line in _lines(file))
    lines = [line if len(line) <= _WIDTH else f"{line[:_WIDTH]}…" for line in masked]
    if len(lines) > _LINES and not _names_servers(file):
        return (*lines[:_LINES], f"… and {len(lines) - _LINES} more")
    return tuple(lines)


def _lines(file: RepositoryFile) -> Iterator[str]:
    if file.path.startswith(f"{ACTIONS_DIRECTORY}/"):
        from cleveragents.plans.actions.loader import load_action

        try:
            action = load_action(file.content, file.path)
        except InvalidAction as error:
            yield from (f"is no valid action: {problem}" for problem in error.problems)
            return
        yield from _of_action(action)
    elif file.path.startswith(f"{ACTORS_DIRECTORY}/") and file.path.endswith(".yaml"):
        from cleveragents.actors.loader import load_actor

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
    from cleveragents.actors.model.actor import AgentNode, LlmNode, SubgraphNode, ToolNode

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
    from cleveragents.tools.mcp.server_entry import entry_of

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
    from cleveragents.tools.mcp.server_entry import variables_of

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


def _names_servers(file: RepositoryFile) -> bool:
    return file.path.endswith(".mcp.json")


def _on_one_line(text: str) -> str:
    """The text without line breaks and control characters, which could imitate other lines."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
