"""Who asks, and whether they may: routes say `who: Viewer`, `who: Operator` or `who: Admin`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Request

from cleveragents.domain.user import Role, User
from cleveragents.errors import NotAllowed, NotAuthenticated

__all__ = ["Admin", "Operator", "Viewer"]


def _needs(role: Role) -> Callable[[Request], User]:
    def check(request: Request) -> User:
        user: User | None = getattr(request.state, "user", None)
        if user is None:
            raise NotAuthenticated("send one in the header Authorization, as Bearer, or log in at /login")
        if not user.role.may(role):  # guard: each role may what it may
            raise NotAllowed(user.name, user.role.value, role.value)
        return user

    return check


Viewer = Annotated[User, Depends(_needs(Role.VIEWER))]
Operator = Annotated[User, Depends(_needs(Role.OPERATOR))]
Admin = Annotated[User, Depends(_needs(Role.ADMIN))]
