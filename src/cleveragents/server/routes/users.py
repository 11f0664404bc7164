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
    prefix="/api",
    tags=["users"],
    responses={404: {"model": Problem, "description": "no such user or token"}},
)

Name = Annotated[str, Path(max_length=64, examples=["ada"])]
TokenId = Annotated[str, Path(max_length=64, examples=["01KA2W4XJ7GJ5V8TQ3N6Y0ZB1C"])]
_LAST: dict[int | str, dict[str, object]] = {
    409: {"model": Problem, "description": "the last admin cannot be removed or lose the role"}
}


class NewUser(BaseModel):
    """A user to add."""

    name: str = Field(max_length=64, examples=["ada"])
    role: Role = Field(
        default=Role.VIEWER, description="the role in the project; admin without a project: a server admin"
    )
    project: str | None = Field(
        default=None, max_length=64, pattern=NAME, description="null: `default`", examples=[None]
    )


class NewRole(BaseModel):
    """The new role of a user."""

    role: Role = Field(description="admin: a server admin; else the role in each project of the user")


class NewToken(Body):
    """A token to issue."""

    label: str = Field(default="", max_length=200, examples=["laptop"])
    days: int | None = Field(
        default=None,
        ge=1,
        le=3650,
        description=(
            "validity in days; null: until the token of this request expires, or unlimited if it never does"
        ),
    )


@router.get("/users", operation_id="listUsers")
def list_users(client: AdminClient, limit: Limit = 100, after: After = None) -> Page[UserView]:
    """List all users by name."""
    return client.users.list(limit=limit, after=after)


@router.post("/users", status_code=201, operation_id="addUser")
def add_user(new: NewUser, client: AdminClient) -> UserView:
    """Add a user. A new user has no access before a token is issued."""
    return client.users.add(new.name, new.role, project=new.project)


@router.get("/users/{name}", operation_id="getUser")
def get_user(name: Name, client: AnyClient) -> UserView:
    """Show a user. Users who are not admins see only themselves."""
    return client.users.get(name)


@router.patch("/users/{name}", operation_id="changeUser", responses=_LAST)
def change_user(name: Name, new: NewRole, client: AdminClient) -> UserView:
    """Make a user a server admin, or change their role in all of their projects, from the next request on.

    `PUT /projects/{name}/members/{user}` changes the role in one project.
    """
    return client.users.set_role(name, new.role)


@router.delete("/users/{name}", status_code=204, operation_id="removeUser", responses=_LAST)
def remove_user(name: Name, client: AdminClient) -> None:
    """Remove a user with all their tokens, and all tokens that were issued with their tokens."""
    client.users.remove(name)


@router.get("/users/{name}/tokens", operation_id="listTokens")
def list_tokens(name: Name, client: AnyClient, limit: Limit = 100, after: After = None) -> Page[TokenView]:
    """List the tokens and sessions of a user. Users who are not admins see only their own."""
    return client.users.tokens(name, limit=limit, after=after)


@router.post("/users/{name}/tokens", status_code=201, operation_id="issueToken")
def issue_token(name: Name, new: NewToken, request: Request, client: AnyClient) -> IssuedTokenView:
    """Issue a token for a program. It is shown once: only its digest is stored.

    It expires and is revoked together with the token or session of this request.
    """
    claim = shown_once(request)  # guard: the token is returned once
    return client.users.issue_token(name, label=new.label, days=new.days, claim=claim)


@router.delete("/tokens/{token_id}", status_code=204, operation_id="revokeToken")
def revoke_token(
    token_id: TokenId,
    client: AnyClient,
    alone: Annotated[
        bool,
        Query(
            description=(
                "keep the tokens created with this token; not possible for the token of this request or "
                "its issuers"
            )
        ),
    ] = False,
) -> None:
    """Revoke a token from the next request on, with all tokens and sessions created with it.

    Users who are not admins can revoke only their own.
    """
    client.users.revoke_token(token_id, alone=alone)
