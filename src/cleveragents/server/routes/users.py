"""Users, their roles and their tokens."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field

from cleveragents.access.model.user import Role, Token, TokenKind, User
from cleveragents.api.access import Access
from cleveragents.api.wording import timestamp
from cleveragents.core.errors import RequestRefused, UnknownUser
from cleveragents.server.access import AnyUser, ServerAdmin
from cleveragents.server.accounts import NAME, Body
from cleveragents.server.listing import After, Limit, Listing, piece_of
from cleveragents.server.middleware.idempotency import told_once
from cleveragents.server.problems import Problem
from cleveragents.server.service import Here, Service

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


class UserRow(BaseModel):
    """A user of the server."""

    id: str = Field(examples=["01KA2W4XJ7GJ5V8TQ3N6Y0ZB1C"])
    name: str = Field(examples=["ada"])
    role: Role = Field(
        description="admin: a server admin; else the highest role in a project, at most operator"
    )
    projects: dict[str, Role] = Field(
        description="the role in each project they are a member of", examples=[{"shop": "operator"}]
    )
    created: str = Field(examples=["2026-11-15T03:34:49Z"])


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


class TokenRow(BaseModel):
    """What is known of a token; not the token itself."""

    id: str = Field(examples=["01KA2W4XJ7GJ5V8TQ3N6Y0ZB1C"])
    kind: TokenKind
    label: str = Field(examples=["laptop"])
    created: str = Field(examples=["2026-11-15T03:34:49Z"])
    expires: str | None = Field(examples=[None])
    made_with: str | None = Field(
        description="the id of the token that it was made with, and is revoked with",
        examples=[None],
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


class IssuedToken(TokenRow):
    """A token, for the one time that it is told."""

    token: str = Field(examples=["agents_sk_0f3c…"])


@router.get("/users", operation_id="listUsers")
def list_users(here: Here, access: ServerAdmin, limit: Limit = 100, after: After = None) -> Listing[UserRow]:
    """All users, by name."""
    rows = [_row(user) for user in here.container.users.list()]
    return piece_of(rows, lambda row: row.name, limit, after)


@router.post("/users", status_code=201, operation_id="addUser")
def add_user(new: NewUser, here: Here, access: ServerAdmin) -> UserRow:
    """Adds a user, who can do nothing before there is a token."""
    now = here.container.clock.now()
    return _row(here.container.users.add(new.name, new.role, now=now, project=new.project))


@router.get("/users/{name}", operation_id="getUser")
def get_user(name: Name, here: Here, access: AnyUser) -> UserRow:
    """A user; those who are not admin see themselves only."""
    _ensure_own(access, name)
    return _row(_named(here, name))


@router.patch("/users/{name}", operation_id="changeUser", responses=_LAST)
def change_user(name: Name, new: NewRole, here: Here, access: ServerAdmin) -> UserRow:
    """Makes a user a server admin, or gives them another role in all of their projects, from the next request
    on. `PUT /projects/{name}/members/{user}` changes the role in one project."""
    return _row(here.container.users.set_role(name, new.role, now=here.container.clock.now()))


@router.delete("/users/{name}", status_code=204, operation_id="removeUser", responses=_LAST)
def remove_user(name: Name, here: Here, access: ServerAdmin) -> None:
    """Removes a user with all tokens, and those that were made with them, for whomever."""
    here.container.users.remove(name, now=here.container.clock.now())


@router.get("/users/{name}/tokens", operation_id="listTokens")
def list_tokens(
    name: Name, here: Here, access: AnyUser, limit: Limit = 100, after: After = None
) -> Listing[TokenRow]:
    """A user's tokens and logins; those who are not admin see their own only."""
    _ensure_own(access, name)
    rows = [_token_row(token) for token in here.container.users.tokens_of(name)]
    return piece_of(rows, lambda row: row.id, limit, after)


@router.post("/users/{name}/tokens", status_code=201, operation_id="issueToken")
def issue_token(name: Name, new: NewToken, request: Request, here: Here, access: AnyUser) -> IssuedToken:
    """Makes a token for a program. Nobody can learn it again: of what is kept, it cannot be told.

    It holds no longer than the token that it is made with, or that a browser was logged in with, and is
    revoked with that.
    """
    _ensure_own(access, name)
    claim = told_once(request)  # guard: the token is told once
    now = here.container.clock.now()
    expires = _end_of(new, request.state.token, now)
    token, secret = here.container.users.issue(
        name,
        TokenKind.PROGRAM,
        new.label,
        now=now,
        expires_at=expires,
        made_with=request.state.token.makes_with,
        claim=claim,
    )
    return IssuedToken(**_token_row(token).model_dump(), token=secret)


@router.delete("/tokens/{token_id}", status_code=204, operation_id="revokeToken")
def revoke_token(
    token_id: TokenId,
    request: Request,
    here: Here,
    access: AnyUser,
    alone: Annotated[
        bool,
        Query(description="those that were made with it stay; not for who asks with it, or with one of them"),
    ] = False,
) -> None:
    """Makes a token worthless from the next request on, with all tokens and logins that were made with it;
    those who are not admin, their own only."""
    users = here.container.users
    own = any(token.id == token_id for token in users.tokens_of(access.user.name))
    if not own and not access.user.is_server_admin:  # guard: others' tokens are not theirs
        raise UnknownUser(token_id)
    now = here.container.clock.now()
    users.revoke(token_id, now=now, alone=alone, asked_with=request.state.token.id)


def _end_of(new: NewToken, made_with: Token, now: datetime) -> datetime | None:
    """When the new token ends. `RequestRefused` if that is later than it may be."""
    latest = made_with.issues_until
    if new.days is None:
        return latest
    expires = now + timedelta(days=new.days)
    if latest is not None and expires > latest:  # guard: who has a token for a day does not keep it for ever
        raise RequestRefused(
            f"your own token ends at {timestamp(latest)}, and none that you make holds longer; "
            "leave `days` out for one that ends then, or ask with a token that holds longer",
            "days",
        )
    return expires


def _ensure_own(access: Access, name: str) -> None:
    if access.user.name != name:
        access.ensure_server_admin()  # guard: other users are a server admin's business


def _named(here: Service, name: str) -> User:
    found = next((user for user in here.container.users.list() if user.name == name), None)
    if found is None:
        raise UnknownUser(name)
    return found


def _row(user: User) -> UserRow:
    return UserRow(
        id=user.id,
        name=user.name,
        role=user.role,
        projects=dict(user.projects),
        created=timestamp(user.created_at),
    )


def _token_row(token: Token) -> TokenRow:
    expires = token.expires_at
    return TokenRow(
        id=token.id,
        kind=token.kind,
        label=token.label,
        created=timestamp(token.created_at),
        expires=None if expires is None else timestamp(expires),
        made_with=token.made_with,
    )
