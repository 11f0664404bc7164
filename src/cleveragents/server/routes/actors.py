"""Actors: who thinks, and how, written in YAML."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from fastapi import APIRouter
from pydantic import BaseModel, Field, JsonValue

from cleveragents.api.actor_account import actor_account, actor_graph, actor_row
from cleveragents.api.sent_actor import ActorsByName
from cleveragents.api.server_requests import trusted_by_name
from cleveragents.core.text.redaction import redact_text
from cleveragents.server.access import AnyUser, Operator
from cleveragents.server.accounts import InResource, PartOfName, account_as, root_named
from cleveragents.server.listing import After, Limit, Listing, piece_of
from cleveragents.server.service import Here

if TYPE_CHECKING:
    from cleveragents.actors.library import ActorListing

__all__ = ["router"]

router = APIRouter(tags=["actors"])

_YAML = """\
name: team/triage
type: llm
description: Says what an issue is about.
model: anthropic/claude-sonnet-4-5
prompt: Say in one sentence what this is about.
"""


class ActorRow(BaseModel):
    """An actor in a list."""

    name: str = Field(examples=["builtin/executor"])
    origin: str = Field(description="builtin, user or repository", examples=["builtin"])
    trusted: bool = Field(description="whether it may run", examples=[True])
    description: str = Field(examples=["Does what the strategy says."])
    source: str = Field(examples=["shipped"])
    problem: str | None = Field(description="why it cannot be used", examples=[None])


class GraphNode(BaseModel):
    """A node of an actor's graph."""

    name: str = Field(examples=["think"])
    type: str = Field(examples=["llm"])


class GraphEdge(BaseModel):
    """Which node follows which."""

    source: str = Field(alias="from", examples=["think"])
    target: str = Field(alias="to", examples=["END"])
    when: str | None = Field(description="on which condition", examples=[None])


class ActorGraph(BaseModel):
    """An actor's nodes, and which follows which."""

    name: str = Field(examples=["builtin/executor"])
    entry: str = Field(description="the first node", examples=["think"])
    nodes: list[GraphNode]
    edges: list[GraphEdge]
    mermaid: str = Field(description="text that Mermaid draws", examples=["flowchart TD\n"])


class ActorAccount(BaseModel):
    """All of an actor."""

    name: str = Field(examples=["builtin/executor"])
    description: str = Field(examples=["Does what the strategy says."])
    model: str | None = Field(description="null: the plan's", examples=[None])
    read_only: bool = Field(examples=[False])
    entry: str = Field(description="the first node", examples=["think"])
    limits: dict[str, JsonValue] = Field(examples=[{"steps": 200}])
    state: list[dict[str, JsonValue]] = Field(examples=[[{"name": "notes", "type": "string"}]])
    nodes: list[dict[str, JsonValue]] = Field(examples=[[{"name": "think", "type": "llm"}]])
    graph: ActorGraph
    yaml: str = Field(description="its file, with the prompts in it", examples=[_YAML])


class ActorText(BaseModel):
    """The YAML of an actor."""

    yaml: str = Field(max_length=65_536, examples=[_YAML])


class ActorVerdict(BaseModel):
    """Whether a YAML is an actor, and what is wrong with it."""

    valid: bool = Field(examples=[True])
    name: str | None = Field(examples=["team/triage"])
    problems: list[str] = Field(description="every mistake, with its line", examples=[[]])
    graph: ActorGraph | None


@router.get("/actors", operation_id="listActors")
def list_actors(
    here: Here, access: AnyUser, resource: InResource = None, limit: Limit = 100, after: After = None
) -> Listing[ActorRow]:
    """Lists the actors that are shipped, those of whoever runs the server, and those that a repository brings
    along."""
    library = here.parts.actors(root_named(access, resource))
    rows = [_row(listing) for listing in library.list()]
    return piece_of(sorted(rows, key=_place), _place, limit, after)


@router.get("/actors/{namespace}/{name}", operation_id="getActor")
def get_actor(
    namespace: PartOfName, name: PartOfName, here: Here, access: AnyUser, resource: InResource = None
) -> ActorAccount:
    """Shows what an actor is made of: its nodes, its state, its limits, its graph and its file."""
    from cleveragents.api.actor_text import own_text

    library = here.parts.actors(root_named(access, resource))
    wanted = f"{namespace}/{name}"
    with trusted_by_name(resource):
        found = library.get(wanted)
    yaml = redact_text(own_text(library.file_of(wanted)))
    return account_as(ActorAccount, {**actor_account(found), "graph": actor_graph(found), "yaml": yaml})


@router.post("/actors/validation", operation_id="validateActor")
def validate_actor(actor: ActorText, here: Here, access: Operator) -> ActorVerdict:
    """Looks whether a YAML is an actor, and names every mistake with its line. Nothing of it is kept or run,
    and no file that it names is read."""
    from cleveragents.actors.loading import load_actor
    from cleveragents.core.errors import InvalidActor

    parts = here.parts
    named = ActorsByName(parts.actors(None))
    try:
        found = load_actor(actor.yaml, "the request", tools=parts.tools_of_actors, actors=named)
    except InvalidActor as error:
        problems = [redact_text(problem) for problem in error.problems]
        return ActorVerdict(valid=False, name=None, problems=problems, graph=None)
    graph = account_as(ActorGraph, actor_graph(found))
    return ActorVerdict(valid=True, name=found.name, problems=[], graph=graph)


def _row(listing: ActorListing) -> ActorRow:
    row = account_as(ActorRow, actor_row(listing))
    # Where somebody's home is on the server is nobody's business.
    return row.model_copy(update={"source": PurePath(row.source).name}) if row.origin == "user" else row


def _place(row: ActorRow) -> str:
    # Two may have one name, of which the first counts; where they come from tells them apart.
    return f"{row.name} {row.source}"
