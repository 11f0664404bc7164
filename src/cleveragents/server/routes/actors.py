"""Actors: who thinks, and how, written in YAML."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from cleveragents.api.actors import ActorRow, ActorVerdict, ActorView
from cleveragents.api.views import Page
from cleveragents.server.access import AnyClient, OperatorClient
from cleveragents.server.accounts import InResource, PartOfName
from cleveragents.server.listing import After, Limit

__all__ = ["router"]

router = APIRouter(tags=["actors"])

_YAML = """\
name: team/triage
type: llm
description: Says what an issue is about.
model: anthropic/claude-sonnet-4-5
prompt: Say in one sentence what this is about.
"""


class ActorText(BaseModel):
    """The YAML of an actor."""

    yaml: str = Field(max_length=65_536, examples=[_YAML])


@router.get("/actors", operation_id="listActors")
def list_actors(
    client: AnyClient, resource: InResource = None, limit: Limit = 100, after: After = None
) -> Page[ActorRow]:
    """Lists the actors that are shipped, those of whoever runs the server, and those that a repository brings
    along."""
    return client.actors.list(resource=resource, limit=limit, after=after)


@router.get("/actors/{namespace}/{name}", operation_id="getActor")
def get_actor(
    namespace: PartOfName, name: PartOfName, client: AnyClient, resource: InResource = None
) -> ActorView:
    """Shows what an actor is made of: its nodes, its state, its limits, its graph and its file."""
    return client.actors.get(f"{namespace}/{name}", resource=resource)


@router.post("/actors/validation", operation_id="validateActor")
def validate_actor(actor: ActorText, client: OperatorClient) -> ActorVerdict:
    """Looks whether a YAML is an actor, and names every mistake with its line. Nothing of it is kept or run,
    and no file that it names is read."""
    return client.actors.validate(actor.yaml)
