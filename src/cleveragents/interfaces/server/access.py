"""Who asks, and whether they may: routes say `who: Viewer`, `who: Operator` or `who: Admin`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request

from cleveragents.domain.user import Role, User
from cleveragents.errors import NotAllowed, NotAuthenticated

if TYPE_CHECKING:
    from starlette.requests import Request as AnyRequest

    from cleveragents.application.container import Container
    from cleveragents.domain.user import Token

__all__ = ["Admin", "Needs", "Operator", "Viewer", "is_still_known"]


@dataclass(frozen=True, slots=True)
class Needs:
    """Gives the user whom the gates found, if their role is enough. `NotAuthenticated`, `NotAllowed`."""

    role: Role

    def __call__(self, request: Request) -> User:
        user: User | None = getattr(request.state, "user", None)
        if user is None:
            raise NotAuthenticated("send one in the header Authorization, as Bearer, or log in at /login")
        if not user.role.may(self.role):  # guard: each role may what it may
            raise NotAllowed(user.name, user.role.value, self.role.value)
        return user


def is_still_known(request: AnyRequest, container: Container) -> bool:
    """Whether the token with which this was asked still holds. For what lasts: it was looked at once, when
    the request came, and may have ended or been taken away since."""
    secret: str | None = request.state.secret
    token: Token | None = request.state.token
    if secret is None or token is None:
        return False
    return container.users.known_by(secret, token.kind, now=container.clock.now()) is not None


Viewer = Annotated[User, Depends(Needs(Role.VIEWER))]
Operator = Annotated[User, Depends(Needs(Role.OPERATOR))]
Admin = Annotated[User, Depends(Needs(Role.ADMIN))]
