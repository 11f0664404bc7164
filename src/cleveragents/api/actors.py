"""Actors, the agents of plans: list, get and validate them, and draw their graphs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path, PurePath
from textwrap import indent
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import asdict

from cleveragents.actors.model.actor import RouterNode, is_actor_file
from cleveragents.api.actions import ensure_no_directory, is_full_name, library_root
from cleveragents.api.plans.budget import role_assignment_of
from cleveragents.api.views import Page, page_of, shown, view, view_of
from cleveragents.core.actions.model import BUILTIN_NAMESPACE
from cleveragents.core.errors import CleverAgentsError, UnknownActor
from cleveragents.core.json_value import JsonValue, freeze
from cleveragents.core.text.redaction import redact_text

if TYPE_CHECKING:
    from cleveragents.actors.library import ActorLibrary, ActorListing
    from cleveragents.actors.model.actor import Actor, Node
    from cleveragents.api.access import Access
    from cleveragents.api.transport import HttpTransport
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.model.plan import Plan

__all__ = [
    "ActorGraphView",
    "ActorRow",
    "ActorVerdict",
    "ActorView",
    "Actors",
    "GraphEdgeView",
    "GraphNodeView",
    "HttpActors",
    "LocalActors",
    "actor_graph",
    "actor_view",
    "graphs_of",
    "own_text",
]

_YAML = """\
name: team/triage
type: llm
description: Says what an issue is about.
model: anthropic/claude-sonnet-4-5
prompt: Say in one sentence what this is about.
"""
_SHIPPED = re.compile(rf"^(name:[ ]*)(?:{BUILTIN_NAMESPACE}|external)/", re.MULTILINE)
_IN_A_FILE = re.compile(r"^([ ]*)(\w+):[ ]*\{[ ]*file:[ ]*([\w./-]+)[ ]*\}[ ]*$", re.MULTILINE)


@view
class ActorRow:
    """An actor in a list."""

    name: str = shown(examples=["builtin/executor"])
    origin: str = shown("the origin: builtin, user or repository", examples=["builtin"])
    trusted: bool = shown("whether the actor is trusted to run", examples=[True])
    description: str = shown("the first line of the description", examples=["Does what the strategy says."])
    source: str = shown("the path of a user's file is for server admins only", examples=["shipped"])
    problem: str | None = shown("why the actor cannot be used", examples=[None])


@view
class GraphNodeView:
    """A node of an actor's graph."""

    name: str = shown(examples=["think"])
    type: str = shown(examples=["llm"])


@view
class GraphEdgeView:
    """An edge of an actor's graph."""

    source: str = shown(name="from", examples=["think"])
    target: str = shown(name="to", examples=["END"])
    when: str | None = shown("the condition", examples=[None])


@view
class ActorGraphView:
    """The graph of an actor."""

    name: str = shown(examples=["builtin/executor"])
    entry: str = shown("the first node", examples=["think"])
    nodes: tuple[GraphNodeView, ...] = shown()
    edges: tuple[GraphEdgeView, ...] = shown()
    mermaid: str = shown("the graph as Mermaid", examples=["flowchart TD\n"])


@view
class ActorView:
    """An actor with its graph, limits and file."""

    name: str = shown(examples=["builtin/executor"])
    description: str = shown(examples=["Does what the strategy says."])
    model: str | None = shown("null: the model of the plan", examples=[None])
    read_only: bool = shown(examples=[False])
    entry: str = shown("the first node", examples=["think"])
    limits: dict[str, Any] = shown(examples=[{"steps": 200}])
    state: tuple[dict[str, Any], ...] = shown(examples=[[{"name": "notes", "type": "string"}]])
    nodes: tuple[dict[str, Any], ...] = shown(examples=[[{"name": "think", "type": "llm"}]])
    graph: ActorGraphView = shown()
    yaml: str = shown("the file of the actor with inlined prompts, masked", examples=[_YAML])
    file: str | None = shown(
        "the path of the actor's file, for server admins; else null",
        examples=[None],
        default_factory=lambda: None,  # a server of 0.1.0 does not send it
    )


@view
class ActorVerdict:
    """The result of validating a YAML, with all problems."""

    valid: bool = shown(examples=[True])
    name: str | None = shown(examples=["team/triage"])
    problems: tuple[str, ...] = shown("every mistake, with its line", examples=[[]])
    graph: ActorGraphView | None = shown()


class Actors(Protocol):
    """The actors for plans: built-in, of the users, and of one repository.

    The repository is that of a `resource`, or the repository around the directory `repository` of this
    machine, which only a local client of the owner can read.
    """

    def list(
        self,
        *,
        resource: str | None = None,
        repository: Path | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[ActorRow]:
        """Return one page of actors, by name. Raises `UnknownResource`."""

    def get(self, name: str, *, resource: str | None = None, repository: Path | None = None) -> ActorView:
        """Return an actor. Raises `UnknownActor`, `NotTrusted`, `InvalidActor`, `UnknownResource`."""

    def validate(self, yaml: str) -> ActorVerdict:
        """Validate the YAML of an actor. Nothing is stored or run, and files that the YAML names are not
        read.

        Raises `NotAllowed` unless the user is an operator of some project.
        """


class LocalActors:
    """Actors in files of this machine. Any thread may use it."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def list(
        self,
        *,
        resource: str | None = None,
        repository: Path | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[ActorRow]:
        rows = [self._row(listing) for listing in self._library(resource, repository).list()]
        return page_of(rows, _place, limit, after)

    def get(self, name: str, *, resource: str | None = None, repository: Path | None = None) -> ActorView:
        from cleveragents.api.server_requests import trusted_by_name
        from cleveragents.core.errors import InvalidActor

        if is_actor_file(name):  # guard: a client names actors, it does not read files
            raise UnknownActor(name)
        library = self._library(resource, repository)
        with trusted_by_name(resource):
            try:
                found = library.get(name)
            except InvalidActor as error:
                if self._access.user.is_server_admin:
                    raise
                # guard: users must not learn the home directory of a server's user
                raise replace(error, source=PurePath(error.source).name) from None
        file = library.file_of(name)
        return actor_view(found, own_text(file), file if self._access.user.is_server_admin else None)

    def validate(self, yaml: str) -> ActorVerdict:
        from cleveragents.access.model.user import Role
        from cleveragents.actors.loader import load_actor
        from cleveragents.api.server_requests import ActorsByName
        from cleveragents.core.errors import InvalidActor

        self._access.ensure_anywhere(Role.OPERATOR)
        parts = self._access.container.plan_parts
        named = ActorsByName(parts.actors(None))
        try:
            found = load_actor(yaml, "the request", tools=parts.tools_of_actors, actors=named)
        except InvalidActor as error:
            problems = tuple(redact_text(problem) for problem in error.problems)
            return ActorVerdict(valid=False, name=None, problems=problems, graph=None)
        graph = view_of(ActorGraphView, freeze(actor_graph(found)))
        return ActorVerdict(valid=True, name=found.name, problems=(), graph=graph)

    def _library(self, resource: str | None, repository: Path | None) -> ActorLibrary:
        return self._access.container.plan_parts.actors(library_root(self._access, resource, repository))

    def _row(self, listing: ActorListing) -> ActorRow:
        described = listing.actor.description if listing.actor else ""
        source = listing.source
        if listing.origin == "user" and not self._access.user.is_server_admin:
            source = PurePath(source).name  # guard: no path of a server's user is listed
        return view_of(
            ActorRow,
            {
                "name": listing.name,
                "origin": listing.origin,
                "trusted": listing.trusted,
                "description": described.partition("\n")[0],
                "source": source,
                "problem": listing.problem,
            },
        )


class HttpActors:
    """Actors of a server."""

    def __init__(self, http: HttpTransport) -> None:
        self._http = http

    def list(
        self,
        *,
        resource: str | None = None,
        repository: Path | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[ActorRow]:
        ensure_no_directory(repository)
        return self._http.page(ActorRow, "/actors", limit, after, resource=resource)

    def get(self, name: str, *, resource: str | None = None, repository: Path | None = None) -> ActorView:
        ensure_no_directory(repository)
        if not is_full_name(name):  # guard: not the address of something else
            raise UnknownActor(name)
        return view_of(ActorView, self._http.get(f"/actors/{name}", resource=resource))

    def validate(self, yaml: str) -> ActorVerdict:
        return view_of(ActorVerdict, self._http.post("/actors/validation", {"yaml": yaml}))


def actor_view(actor: Actor, yaml: str, file: Path | None) -> ActorView:
    """Return the view of an actor, with the text of its file."""
    said = {
        "name": actor.name,
        "description": actor.description,
        "model": actor.model,
        "read_only": actor.read_only,
        "entry": actor.entry,
        "limits": asdict(actor.limits),
        "state": [
            {
                "name": key.name,
                "type": key.type,
                "reducer": key.reducer,
                "default": key.default,
                "description": key.description,
            }
            for key in actor.state
        ],
        "nodes": [_node_fields(node) for node in actor.nodes],
        "graph": actor_graph(actor),
        "yaml": redact_text(yaml),
        "file": None if file is None else str(file),
    }
    return view_of(ActorView, freeze(said))


def actor_graph(drawn: Actor) -> dict[str, JsonValue]:
    """Return the graph of an actor as JSON: nodes, edges and their conditions."""
    from cleveragents.actors.diagram import edges, mermaid, node_type

    return {
        "name": drawn.name,
        "entry": drawn.entry,
        "nodes": [{"name": node.name, "type": node_type(node)} for node in drawn.nodes],
        "edges": [
            {"from": source, "to": target, "when": when or None} for source, target, when in edges(drawn)
        ],
        "mermaid": mermaid(drawn),
    }


def own_text(file: Path) -> str:
    """Return the YAML of an actor for the user's own library.

    It is self-contained: prompts from files are inlined, and a name reserved for built-in actors is replaced.
    """
    from cleveragents.actors.prompt_files import prompt_text, prompts_beside

    beside = prompts_beside(file.resolve().parent)

    def filled(match: re.Match[str]) -> str:
        space, key, name = match.groups()
        return f"{space}{key}: |-\n{indent(prompt_text(name, beside), space + '  ')}"

    text = file.read_text(encoding="utf-8-sig")
    return _IN_A_FILE.sub(filled, _SHIPPED.sub(r"\1mine/", text))


def _node_fields(node: Node) -> JsonValue:
    from cleveragents.actors.diagram import node_type

    facts = asdict(node)
    if isinstance(node, RouterNode):
        facts["routes"] = [{"to": route.to, "when": route.when} for route in node.routes]
    return freeze({"name": node.name, "type": node_type(node), **facts, "next": node.next})


def _place(row: ActorRow) -> str:
    # Two actors may have the same name; the first applies, and its source tells them apart.
    return f"{row.name} {row.source}"


def graphs_of(parts: PlanParts, plan: Plan) -> list[dict[str, JsonValue]]:
    """Return a graph for each role of an actor in the plan; none for fixed steps.

    `running` names the nodes that call a model now; None if unknown, because the plan runs without a pending
    model call.
    """
    try:
        casting = role_assignment_of(parts, plan)
    except CleverAgentsError:  # its action is gone or no longer trusted
        casting = None
    if casting is None:
        return []
    roles = (("strategize", casting.strategize), ("execute", casting.execute), ("review", casting.review))
    asking = _asking(parts, plan)
    return [_graph(parts, plan, role, name, asking) for role, name in roles if name]


def _graph(
    parts: PlanParts, plan: Plan, role: str, name: str, asking: set[tuple[str, str]] | None
) -> dict[str, JsonValue]:
    mine = None if asking is None else sorted(node for actor, node in asking if actor == name)
    known: dict[str, JsonValue] = {"actor": name, "role": role, "running": freeze(mine), "problem": None}
    try:
        drawn = actor_graph(parts.actors_of(plan).get(name))
    except CleverAgentsError as error:
        return known | {"entry": None, "nodes": (), "edges": (), "problem": str(error)}
    return known | {"entry": drawn["entry"], "nodes": drawn["nodes"], "edges": drawn["edges"]}


def _asking(parts: PlanParts, plan: Plan) -> set[tuple[str, str]] | None:
    """Return the actors and nodes that wait for a model; None if the plan runs but no actor waits for a
    model.
    """
    from cleveragents.plans.model.plan import PlanState

    if plan.state is not PlanState.PROCESSING:
        return set()
    calls = parts.actor_parts.budgets.calls_of(plan.id)
    under_way = {(call.actor, call.node.partition(".")[0]) for call in calls if call.ended_at is None}
    return under_way or None
