"""Routes of users and their tokens."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field

from cleveragents.access.model.user import Role
from cleveragents.api.users import IssuedTokenView, TokenView, UserView
from cleveragents.api.views import Page
from cleveragents.server.access import AdminClient, AnyClient
from cleveragents.server.middleware.idempotency import shown_once
from cleveragents.server.parameters import NAME, After, Body, Limit
from cleveragents.server.problems import Problem

__all__ = ["router"]

router = APIRouter(
    tags=["users"],
    responses={404: {"model": Problem, "description": "there is no such user or token"}},
)

Name = Annotated[str, Path(max_length=64, examples=["ada"])]
TokenId = Annotated[str, Path(max_length=64, examples=["01KA2W4XJ7GJ5V8TQ3N6Y0ZB1C"])]
_LAST: dict[int | str, dict[str, object]] = {
    409: {"model": Problem, "description": "nobody would be admin any more"}
}


class NewUser(BaseModel):
    """Whom to add."""

    name: str = Field(max_length=64, examples=["ada"])
    role: Role = Field(default=Role.VIEWER, description="in the project; admin without one: a server admin")
    project: str | None = Field(
        default=None, max_length=64, pattern=NAME, description="null: `default`", examples=[None]
    )


class NewRole(BaseModel):
    """A user's role from now on."""

    role: Role = Field(
        description="admin: a server admin; else the role in each of their projects, and no server admin"
    )


class NewToken(Body):
    """A token to make."""

    label: str = Field(default="", max_length=200, examples=["laptop"])
    days: int | None = Field(
        default=None,
        ge=1,
        le=3650,
        description="how long it is good; null: as long as the token that it is made with, or for ever",
    )


@router.get("/users", operation_id="listUsers")
def list_users(client: AdminClient, limit: Limit = 100, after: After = None) -> Page[UserView]:
    """All users, by name."""
    return client.users.list(limit=limit, after=after)


@router.post("/users", status_code=201, operation_id="addUser")
def add_user(new: NewUser, client: AdminClient) -> UserView:
    """Adds a user, who can do nothing before there is a token."""
    return client.users.add(new.name, new.role, project=new.project)


@router.get("/users/{name}", operation_id="getUser")
def get_user(name: Name, client: AnyClient) -> UserView:
    """A user; those who are not admin see themselves only."""
    return client.users.get(name)


@router.patch("/users/{name}", operation_id="changeUser", responses=_LAST)
def change_user(name: Name, new: NewRole, client: AdminClient) -> UserView:
    """Makes a user a server admin, or gives them another role in all of their projects, from the next request
    on. `PUT /projects/{name}/members/{user}` changes the role in one project."""
    return client.users.set_role(name, new.role)


@router.delete("/users/{name}", status_code=204, operation_id="removeUser", responses=_LAST)
def remove_user(name: Name, client: AdminClient) -> None:
    """Removes a user with all tokens, and those that were made with them, for whomever."""
    client.users.remove(name)


@router.get("/users/{name}/tokens", operation_id="listTokens")
def list_tokens(name: Name, client: AnyClient, limit: Limit = 100, after: After = None) -> Page[TokenView]:
    """A user's tokens and logins; those who are not admin see their own only."""
    return client.users.tokens(name, limit=limit, after=after)


@router.post("/users/{name}/tokens", status_code=201, operation_id="issueToken")
def issue_token(name: Name, new: NewToken, request: Request, client: AnyClient) -> IssuedTokenView:
    """Makes a token for a program. Nobody can learn it again: of what is kept, it cannot be told.

    It holds no longer than the token that it is made with, or that a browser was logged in with, and is
    revoked with that.
    """
    claim = shown_once(request)  # guard: the token is told once
    return client.users.issue_token(name, label=new.label, days=new.days, claim=claim)


@router.delete("/tokens/{token_id}", status_code=204, operation_id="revokeToken")
def revoke_token(
    token_id: TokenId,
    client: AnyClient,
    alone: Annotated[
        bool,
        Query(description="those that were made with it stay; not for who asks with it, or with one of them"),
    ] = False,
) -> None:
    """Makes a token worthless from the next request on, with all tokens and logins that were made with it;
    those who are not admin, their own only."""
    client.users.revoke_token(token_id, alone=alone)
