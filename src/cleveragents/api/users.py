"""Users of a server, their roles and their tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from cleveragents.access.model.project import is_name
from cleveragents.access.model.user import Role, TokenKind, ensure_user_name, is_user_name
from cleveragents.api.format import timestamp
from cleveragents.api.views import Page, page_of, shown, view, view_of
from cleveragents.core.errors import RequestRefused, UnknownProject, UnknownUser

if TYPE_CHECKING:
    from cleveragents.access.model.user import Token, User
    from cleveragents.api.access import Access
    from cleveragents.api.transport import HttpTransport
    from cleveragents.core.json_value import JsonValue
    from cleveragents.storage.idempotency import IdempotencyClaim

__all__ = ["HttpUsers", "IssuedTokenView", "LocalUsers", "TokenView", "UserView", "Users"]

_EXAMPLE = "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1C"
_MOMENT = "2026-11-15T03:34:49Z"
_TOKEN_ID = re.compile(r"[0-9A-Za-z]{1,64}")


@view
class UserView:
    """A user of the server."""

    id: str = shown(examples=[_EXAMPLE])
    name: str = shown(examples=["ada"])
    role: Role = shown("admin: a server admin; else the highest role in any project, at most operator")
    projects: Mapping[str, Role] = shown(
        "the role in each project of the user", examples=[{"shop": "operator"}]
    )
    created: datetime = shown(examples=[_MOMENT])


@view
class TokenView:
    """A token or a session, without its secret."""

    id: str = shown(examples=[_EXAMPLE])
    kind: TokenKind
    label: str = shown(examples=["laptop"])
    created: datetime = shown(examples=[_MOMENT])
    expires: datetime | None = shown(examples=[None])
    made_with: str | None = shown(
        "the token that issued this one; revoking it revokes this one, too", examples=[None]
    )


@view
class IssuedTokenView(TokenView):
    """A new token with its secret, which is shown once."""

    token: str = shown(examples=["agents_sk_0f3c…"])


class Users(Protocol):
    """The users of a server. Managing them needs a server admin; every user manages their own tokens."""

    def list(self, *, limit: int = 100, after: str | None = None) -> Page[UserView]:
        """Return one page of users, by name. Raises `NotAllowed`."""

    def get(self, name: str) -> UserView:
        """Return a user. Raises `UnknownUser`; `NotAllowed` for another user, unless the acting user is a
        server admin.
        """

    def add(self, name: str, role: Role = Role.VIEWER, *, project: str | None = None) -> UserView:
        """Add a user with this role in the project, or in `default`; `admin` without a project is a server
        admin.

        Raises `AlreadyThere`, `InvalidName`, `UnknownProject`, `NotAllowed`.
        """

    def set_role(self, name: str, role: Role) -> UserView:
        """Make a user a server admin (`admin`), or give them the role in each of their projects. Takes effect
        with the user's next request.

        Raises `UnknownUser`, `NotAllowed`; `StillUsed` if no server admin would be left.
        """

    def remove(self, name: str) -> None:
        """Remove a user with all tokens.

        Raises `UnknownUser`, `NotAllowed`; `StillUsed` for the last admin.
        """

    def tokens(self, name: str, *, limit: int = 100, after: str | None = None) -> Page[TokenView]:
        """Return one page of a user's tokens and sessions, oldest first.

        Raises `UnknownUser`, `NotAllowed`.
        """

    def issue_token(self, name: str, *, label: str = "", days: int | None = None) -> IssuedTokenView:
        """Issue a token for a program, valid for `days` or without limit.

        The new token expires at the latest with the token that issued it, and is revoked together with that
        token. Raises `UnknownUser`, `NotAllowed`; `RequestRefused` if the new token would outlive its issuer.
        """

    def revoke_token(self, token_id: str, *, alone: bool = False) -> None:
        """Revoke a token and, unless `alone`, all tokens that were issued with it.

        Raises `UnknownUser` if the token does not exist, or belongs to another user and the acting user is
        not a server admin; `RequestRefused` with `alone` if the request was made with this token or with a
        token issued with it.
        """


class LocalUsers:
    """Users in the database of this process. Any thread may use it."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._clock = access.container.clock
        self._store = access.container.users

    def list(self, *, limit: int = 100, after: str | None = None) -> Page[UserView]:
        self._access.ensure_server_admin()
        return page_of(map(user_view, self._store.list()), lambda user: user.name, limit, after)

    def get(self, name: str) -> UserView:
        self._ensure_own(name)
        found = next((user for user in self._store.list() if user.name == name), None)
        if found is None:
            raise UnknownUser(name)
        return user_view(found)

    def add(self, name: str, role: Role = Role.VIEWER, *, project: str | None = None) -> UserView:
        self._access.ensure_server_admin()
        return user_view(self._store.add(name, role, now=self._clock.now(), project=project))

    def set_role(self, name: str, role: Role) -> UserView:
        self._access.ensure_server_admin()
        return user_view(self._store.set_role(name, role, now=self._clock.now()))

    def remove(self, name: str) -> None:
        self._access.ensure_server_admin()
        self._store.remove(name, now=self._clock.now())

    def tokens(self, name: str, *, limit: int = 100, after: str | None = None) -> Page[TokenView]:
        self._ensure_own(name)
        return page_of(map(token_view, self._store.tokens_of(name)), lambda token: token.id, limit, after)

    def issue_token(
        self, name: str, *, label: str = "", days: int | None = None, claim: IdempotencyClaim | None = None
    ) -> IssuedTokenView:
        """Issue a token as `Users.issue_token`. With a `claim`, the token is stored as the result of that
        request.
        """
        self._ensure_own(name)
        made_with = self._access.token
        now = self._clock.now()
        token, secret = self._store.issue(
            name,
            TokenKind.PROGRAM,
            label,
            now=now,
            expires_at=_end_of(days, made_with, now),
            made_with=None if made_with is None else made_with.makes_with,
            claim=claim,
        )
        return view_of(IssuedTokenView, _token_json(token) | {"token": secret})

    def revoke_token(self, token_id: str, *, alone: bool = False) -> None:
        user, asked_with = self._access.user, self._access.token
        if not user.is_server_admin:
            own = any(token.id == token_id for token in self._store.tokens_of(user.name))
            if not own:  # guard: tokens of other users are out of reach
                raise UnknownUser(token_id)
        used = None if asked_with is None else asked_with.id
        self._store.revoke(token_id, now=self._clock.now(), alone=alone, asked_with=used)

    def _ensure_own(self, name: str) -> None:
        if self._access.user.name != name:
            self._access.ensure_server_admin()  # guard: only a server admin manages other users


class HttpUsers:
    """Users of a server."""

    def __init__(self, http: HttpTransport) -> None:
        self._http = http

    def list(self, *, limit: int = 100, after: str | None = None) -> Page[UserView]:
        return self._http.page(UserView, "/users", limit, after)

    def get(self, name: str) -> UserView:
        return view_of(UserView, self._http.get(f"/users/{_known(name)}"))

    def add(self, name: str, role: Role = Role.VIEWER, *, project: str | None = None) -> UserView:
        ensure_user_name(name)
        if project is not None and not is_name(project):
            raise UnknownProject(project)
        body = {"name": name, "role": role.value, "project": project}
        return view_of(UserView, self._http.post("/users", body))

    def set_role(self, name: str, role: Role) -> UserView:
        return view_of(UserView, self._http.patch(f"/users/{_known(name)}", {"role": role.value}))

    def remove(self, name: str) -> None:
        self._http.delete(f"/users/{_known(name)}")

    def tokens(self, name: str, *, limit: int = 100, after: str | None = None) -> Page[TokenView]:
        return self._http.page(TokenView, f"/users/{_known(name)}/tokens", limit, after)

    def issue_token(self, name: str, *, label: str = "", days: int | None = None) -> IssuedTokenView:
        body = {"label": label, "days": days}
        return view_of(IssuedTokenView, self._http.post(f"/users/{_known(name)}/tokens", body))

    def revoke_token(self, token_id: str, *, alone: bool = False) -> None:
        if not _TOKEN_ID.fullmatch(token_id):  # guard: not the address of something else
            raise UnknownUser(token_id)
        self._http.delete(f"/tokens/{token_id}", alone=alone or None)


def user_view(user: User) -> UserView:
    """Return the view of a user."""
    fields: dict[str, JsonValue] = {
        "id": user.id,
        "name": user.name,
        "role": user.role.value,
        "projects": {name: role.value for name, role in sorted(user.projects.items())},
        "created": timestamp(user.created_at),
    }
    return view_of(UserView, fields)


def token_view(token: Token) -> TokenView:
    """Return the view of a token."""
    return view_of(TokenView, _token_json(token))


def _token_json(token: Token) -> dict[str, JsonValue]:
    return {
        "id": token.id,
        "kind": token.kind.value,
        "label": token.label,
        "created": timestamp(token.created_at),
        "expires": None if token.expires_at is None else timestamp(token.expires_at),
        "made_with": token.made_with,
    }


def _known(name: str) -> str:
    """Return the name. Raises `UnknownUser` if it is invalid."""
    if not is_user_name(name):  # guard: not the address of something else
        raise UnknownUser(name)
    return name


def _end_of(days: int | None, made_with: Token | None, now: datetime) -> datetime | None:
    """Return when a new token expires. Raises `RequestRefused` if it would outlive its issuing token."""
    latest = None if made_with is None else made_with.issues_until
    if days is None:
        return latest
    expires = now + timedelta(days=days)
    if latest is not None and expires > latest:  # guard: a limited token stays limited
        raise RequestRefused(
            f"your own token expires at {timestamp(latest)}, and a new token cannot outlive it; "
            "omit `days`, or use a token that expires later",
            "days",
        )
    return expires
