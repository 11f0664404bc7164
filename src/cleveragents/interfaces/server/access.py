"""Who asks, and whether they may: routes say `who: Viewer`, `who: Operator` or `who: Admin`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from cleveragents.domain.user import Role, User
from cleveragents.errors import NotAllowed, NotAuthenticated

__all__ = ["Admin", "Needs", "Operator", "Viewer"]


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


Viewer = Annotated[User, Depends(Needs(Role.VIEWER))]
Operator = Annotated[User, Depends(Needs(Role.OPERATOR))]
Admin = Annotated[User, Depends(Needs(Role.ADMIN))]
