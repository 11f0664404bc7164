"""Actions: templates of plans, written in YAML."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from cleveragents.api.actions import ActionRow, ActionView
from cleveragents.api.views import Page
from cleveragents.server.access import AdminClient, AnyClient
from cleveragents.server.accounts import InResource, PartOfName
from cleveragents.server.listing import After, Limit

__all__ = ["router"]

router = APIRouter(tags=["actions"])

_YAML = """\
name: team/format
description: Formats the code.
execute:
  steps:
    - tool: command
      with: {argv: [make, format]}
"""


class NewAction(BaseModel):
    """The YAML of an action."""

    yaml: str = Field(min_length=1, max_length=65_536, examples=[_YAML])
    replace: bool = Field(False, description="put it in the place of one with the same name")


@router.get("/actions", operation_id="listActions")
def list_actions(
    client: AnyClient, resource: InResource = None, limit: Limit = 100, after: After = None
) -> Page[ActionRow]:
    """Lists the actions that are shipped, those of the server's users, and those that a repository brings
    along."""
    return client.actions.list(resource=resource, limit=limit, after=after)


@router.post("/actions", status_code=201, operation_id="createAction")
def create_action(action: NewAction, client: AdminClient) -> ActionView:
    """Keeps an action. Every mistake in it is named with its line, and nothing is kept until there is none.
    Nothing is run: what it says is run by plans, within what their profile allows."""
    return client.actions.add(action.yaml, replace=action.replace)


@router.get("/actions/{namespace}/{name}", operation_id="getAction")
def get_action(
    namespace: PartOfName, name: PartOfName, client: AnyClient, resource: InResource = None
) -> ActionView:
    """Shows what an action takes and does."""
    return client.actions.get(f"{namespace}/{name}", resource=resource)


@router.delete("/actions/{namespace}/{name}", status_code=204, operation_id="deleteAction")
def delete_action(namespace: PartOfName, name: PartOfName, client: AdminClient) -> None:
    """Deletes an action that was created here. Plans that were made of it keep what they need and go on."""
    client.actions.remove(f"{namespace}/{name}")
