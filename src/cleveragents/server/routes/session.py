"""Routes of browser sessions: a token is exchanged for a cookie that no script can read."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from cleveragents import __version__
from cleveragents.access.model.user import Role, Token, TokenKind, User
from cleveragents.core.text.redaction import redact_text
from cleveragents.server.access import AnyUser
from cleveragents.server.middleware.idempotency import shown_once
from cleveragents.server.middleware.identity import COOKIE, refuse_stranger
from cleveragents.server.middleware.origin import csrf_word
from cleveragents.server.middleware.wire import address_of
from cleveragents.server.service import Here

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["session"])

_AGENT_CHARACTERS = 120


class Login(BaseModel):
    """A token issued by `agents user token`."""

    token: Annotated[str, Field(min_length=1, max_length=512, examples=["agents_sk_0f3c…"])]


class SessionUser(BaseModel):
    """A user with their roles."""

    name: str = Field(examples=["ada"])
    role: Role = Field(
        description="admin: a server admin; else the highest role in any project, at most operator"
    )
    projects: dict[str, Role] = Field(
        description="the role in each project of the user", examples=[{"shop": "operator"}]
    )


class SessionAccount(BaseModel):
    """The session: the user, and the CSRF token for requests that change something."""

    user: SessionUser
    csrf: str | None = Field(
        description="value of the header X-CSRF-Token; null for programs",
        examples=["5f0c…"],
    )
    version: str = Field(description="the version of the server", examples=["1.0.0"])


@router.post("/session", status_code=201, operation_id="logIn")
async def log_in(login: Login, request: Request, response: Response, here: Here) -> SessionAccount:
    """Log a browser in. The cookie is valid for `server.session_hours`, but no longer than the token."""
    container = here.container
    claim = shown_once(request)  # guard: the cookie's secret is returned once
    now = container.clock.now()
    found = await run_in_threadpool(lambda: container.users.known_by(login.token, TokenKind.PROGRAM, now=now))
    if found is None:
        refuse_stranger(request.app.state.strangers, address_of(request.scope))
    user, token = found
    lasting = timedelta(hours=container.settings.server.session_hours)
    if token.expires_at is not None:
        lasting = min(lasting, token.expires_at - now)  # guard: a session never outlives its token
    label = redact_text(request.headers.get("user-agent", "a browser"))[:_AGENT_CHARACTERS]
    _, secret = await run_in_threadpool(
        lambda: container.users.issue(
            user.name,
            TokenKind.BROWSER,
            label,
            now=now,
            expires_at=now + lasting,
            issues_until=token.issues_until,
            made_with=token.id,
            claim=claim,
        )
    )
    response.set_cookie(
        COOKIE,
        secret,
        max_age=int(lasting.total_seconds()),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return _account(user, secret)


@router.get("/session", operation_id="getSession")
def get_session(request: Request, access: AnyUser) -> SessionAccount:
    """Show the user of the request."""
    token: Token = request.state.token
    return _account(access.user, request.state.secret if token.kind is TokenKind.BROWSER else None)


@router.delete("/session", status_code=204, operation_id="logOut")
def log_out(request: Request, response: Response, here: Here, access: AnyUser) -> None:
    """Log the browser out: its cookie is invalid at once. Tokens of programs stay valid."""
    token: Token = request.state.token
    if token.kind is TokenKind.BROWSER:
        here.container.users.revoke(token.id, now=here.container.clock.now())
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")


def _account(user: User, cookie: str | None) -> SessionAccount:
    return SessionAccount(
        user=SessionUser(name=user.name, role=user.role, projects=dict(user.projects)),
        csrf=None if cookie is None else csrf_word(cookie),
        version=__version__,
    )
