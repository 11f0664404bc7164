"""Trust in files of a repository that can run code: settings, actions, actors, skills and MCP servers.

A trusted file can run programs as the user of the workers, so only an admin can trust files. Trust applies to
the digest of the content that was shown, never to later content of the file.
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
    digest: str = shown("SHA-256 of the file's content", examples=[_DIGEST])
    size: int = shown("bytes", examples=[412])
    trusted: bool = shown("whether this content is trusted", examples=[False])
    preview: tuple[str, ...] = shown(
        "the commands that the file runs and the variables they receive, or its first lines; "
        "secrets are masked"
    )


@view
class RefusedFileView:
    """A file that cannot be trusted."""

    path: str = shown(examples=[".mcp.json"])
    why: str = shown(examples=["leads out of the repository"])


@view
class TrustSurveyView:
    """All files of a repository that need trust, in the current state of the directory or remote branch."""

    resource: str = shown(examples=["shop-main"])
    files: tuple[UntrustedFileView, ...]
    refused: tuple[RefusedFileView, ...]


@view
class RevokedTrustView:
    """The files that were trusted and no longer are."""

    paths: tuple[str, ...]


@view
class TrustedFileView:
    """A trusted content."""

    path: str = shown(
        "the path of the file; for a git remote, below the name of the remote",
        examples=[f"remote:9f86/{_FILE}"],
    )
    digest: str = shown(examples=[_DIGEST])
    trusted: datetime = shown("when", examples=["2026-11-15T12:00:00Z"])


class Trust(Protocol):
    """The trusted files of repositories.

    A resource is given by name. Server admins can also give the `Path` of a repository on this machine, or of
    one of its files. A server refuses a path (`RequestRefused`).
    """

    def list(self, *, limit: int = 100, after: str | None = None) -> Page[TrustedFileView]:
        """Return one page of all trusted contents, by path. Raises `NotAllowed`."""

    def survey(self, resource: str | Path) -> TrustSurveyView:
        """Return the files of a resource that need trust. A git remote is fetched.

        Raises `UnknownResource`, `RemoteUnreachable`, `SandboxRefused`; `NotAllowed` unless the user is an
        admin of the project.
        """

    def give(self, resource: str | Path, files: Collection[tuple[str, str]]) -> TrustSurveyView:
        """Trust files of a resource, each with the path and the digest that `survey` returned.

        Raises `ChangedMeanwhile`, and trusts nothing, if the content of a file has changed; `NotAllowed`
        unless the user is a server admin. Other errors as in `survey`.
        """

    def revoke(self, resource: str | Path) -> RevokedTrustView:
        """Revoke the trust in all files of a resource. Neither its files nor its remote are read.

        Raises `UnknownResource`; `NotAllowed` unless the user is an admin of the project.
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
        if changed:  # guard: a content that was not shown is not trusted
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
        """Return the survey of the repository at the path, and the files that the path selects."""
        self._access.ensure_server_admin()
        if path.is_dir():
            survey = self._store.survey(repository_root(path))
            return survey, survey.files
        if not path.exists():
            raise ConfigurationError(str(path), "does not exist; pass a repository or one of its files")
        root = repository_root(path.parent)
        survey = self._store.survey(root)
        wanted = os.path.relpath(Path(os.path.realpath(path.parent)) / path.name, root)
        chosen = tuple(file for file in survey.files if file.path == wanted)
        if not chosen:
            raise ConfigurationError(str(path), "does not need trust, or cannot be trusted")
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
        raise RequestRefused(f"a server cannot read {resource} on this machine; pass the name of a resource")
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
    """Return the commands that the file would run, or its first lines; at most a screen of them.

    Only known secrets are masked: masking by name or shape could hide code from the person who decides. MCP
    servers are shown in full, so that a long file cannot hide which variables they receive.
    """
    # Masked before it is cut: half a secret does not look like one.
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
            yield from (f"is not a valid action: {problem}" for problem in error.problems)
            return
        yield from _of_action(action)
    elif file.path.startswith(f"{ACTORS_DIRECTORY}/") and file.path.endswith(".yaml"):
        from cleveragents.actors.loader import load_actor

        try:
            # Its prompts are separate files, shown on their own.
            actor = load_actor(file.content, file.path, prompts=lambda relative: relative.encode())
        except InvalidActor as error:
            yield from (f"is not a valid actor: {problem}" for problem in error.problems)
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
            yield f"uses actor: {actor}"


def _of_actor(actor: Actor) -> Iterator[str]:
    from cleveragents.actors.model.actor import AgentNode, LlmNode, SubgraphNode, ToolNode

    for node in actor.nodes:
        if isinstance(node, LlmNode):
            model = node.model or actor.model or "a model"
            yield f"calls {model} with tools: {', '.join(node.tools) or 'none'}"
        if isinstance(node, ToolNode):
            yield f"runs: {_spelt(node.tool, node.arguments)}"
        if isinstance(node, AgentNode):
            yield from _of_agent(node)
        if isinstance(node, SubgraphNode):
            yield f"uses actor: {node.actor}"


def _of_agent(node: AgentNode) -> Iterator[str]:
    yield f"runs: {shlex.join(node.argv)}{' with the network' if node.network else ''}"
    # The user's data that it receives is what the decision is about.
    if node.environment:
        yield f"with your variables: {', '.join(node.environment)}"
    if node.home:
        yield f"with copies from your home: {', '.join(node.home)}"


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
    """Yield the program or address of an MCP server, and everything it receives by name, variables first."""
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
    """Return the text without line breaks and control characters, which could imitate other lines."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
