"""Actions: templates of plans, written in YAML."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field, JsonValue

from cleveragents.api.action_account import action_account, action_row
from cleveragents.api.server_requests import trusted_by_name
from cleveragents.server.access import AnyUser, ServerAdmin
from cleveragents.server.accounts import InResource, PartOfName, account_as, root_named
from cleveragents.server.listing import After, Limit, Listing, piece_of
from cleveragents.server.service import Here

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


class ActionRow(BaseModel):
    """An action in a list."""

    name: str = Field(examples=["builtin/replace"])
    origin: str = Field(description="builtin, user or repository", examples=["builtin"])
    trusted: bool = Field(description="whether it may run", examples=[True])
    description: str = Field(examples=["Replaces text in files."])
    source: str = Field(examples=["shipped"])
    problem: str | None = Field(description="why it cannot be used", examples=[None])


class ArgumentAccount(BaseModel):
    """An argument that an action takes."""

    name: str = Field(examples=["pattern"])
    type: str = Field(examples=["string"])
    required: bool = Field(examples=[True])
    default: JsonValue = Field(examples=[None])
    description: str = Field(examples=["what to look for"])
    rest: bool = Field(description="whether it takes all words that are left", examples=[False])


class StepAccount(BaseModel):
    """A call of a tool."""

    name: str | None = Field(examples=["format"])
    tool: str = Field(examples=["command"])
    given: JsonValue = Field(alias="with", examples=[{"argv": ["make", "format"]}])
    shell: bool = Field(examples=[False])
    continue_on_failure: bool = Field(examples=[False])
    expect_exit: JsonValue = Field(examples=[0])


class CheckAccount(BaseModel):
    """A command that has to succeed."""

    name: str = Field(examples=["tests"])
    command: str = Field(examples=["pytest -q"])
    required: bool = Field(examples=[True])
    timeout_seconds: float | None = Field(examples=[600])


class ActionAccount(BaseModel):
    """All of an action."""

    name: str = Field(examples=["team/format"])
    description: str = Field(examples=["Formats the code."])
    arguments: list[ArgumentAccount]
    strategize_actor: str | None = Field(examples=[None])
    execute_actor: str | None = Field(examples=[None])
    review_actor: str | None = Field(examples=[None])
    steps: list[StepAccount]
    checks: list[CheckAccount]
    invariants: list[str] = Field(examples=[["no file below vendor/ changes"]])
    enforced: list[str] = Field(description="those of them that are looked after", examples=[[]])
    definition_of_done: str | None = Field(examples=[None])
    profile: str | None = Field(examples=[None])
    budget: dict[str, JsonValue] = Field(examples=[{"usd": 1.5}])
    setup: dict[str, JsonValue] | None = Field(examples=[None])
    include: list[str] = Field(examples=[[]])


class NewAction(BaseModel):
    """The YAML of an action."""

    yaml: str = Field(min_length=1, max_length=65_536, examples=[_YAML])
    replace: bool = Field(False, description="put it in the place of one with the same name")


@router.get("/actions", operation_id="listActions")
def list_actions(
    here: Here, access: AnyUser, resource: InResource = None, limit: Limit = 100, after: After = None
) -> Listing[ActionRow]:
    """Lists the actions that are shipped, those of the server's users, and those that a repository brings
    along."""
    library = here.parts.actions(root_named(access, resource))
    rows = [account_as(ActionRow, action_row(listing)) for listing in library.list()]
    return piece_of(sorted(rows, key=_place), _place, limit, after)


@router.post("/actions", status_code=201, operation_id="createAction")
def create_action(action: NewAction, here: Here, access: ServerAdmin) -> ActionAccount:
    """Keeps an action. Every mistake in it is named with its line, and nothing is kept until there is none.
    Nothing is run: what it says is run by plans, within what their profile allows."""
    made = here.parts.actions(None).create(action.yaml, "the request", replace=action.replace)
    return account_as(ActionAccount, action_account(made))


@router.get("/actions/{namespace}/{name}", operation_id="getAction")
def get_action(
    namespace: PartOfName, name: PartOfName, here: Here, access: AnyUser, resource: InResource = None
) -> ActionAccount:
    """Shows what an action takes and does."""
    with trusted_by_name(resource):
        found = here.parts.actions(root_named(access, resource)).get(f"{namespace}/{name}")
    return account_as(ActionAccount, action_account(found))


@router.delete("/actions/{namespace}/{name}", status_code=204, operation_id="deleteAction")
def delete_action(namespace: PartOfName, name: PartOfName, here: Here, access: ServerAdmin) -> None:
    """Deletes an action that was created here. Plans that were made of it keep what they need and go on."""
    here.parts.actions(None).delete(f"{namespace}/{name}")


def _place(row: ActionRow) -> str:
    # Two may have one name, of which the first counts; where they come from tells them apart.
    return f"{row.name} {row.source}"
