"""Users of a server: who they are, and what their role lets them do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from cleveragents.errors import InvalidName

__all__ = ["Role", "Token", "TokenKind", "User", "ensure_user_name"]

_NAME = re.compile(r"[a-z0-9][a-z0-9._@-]{0,63}")


class Role(str, Enum):
    """What somebody may do; each may all that those before it may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def may(self, needed: Role) -> bool:
        """Whether this role is enough for what `needed` is needed for."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


class TokenKind(str, Enum):
    """What a token is for: programs send it themselves, browsers have it as a cookie."""

    PROGRAM = "program"
    BROWSER = "browser"


@dataclass(frozen=True, slots=True)
class User:
    """Somebody whom the server knows."""

    id: str
    name: str
    role: Role
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Token:
    """What is known of a token: not the token itself, of which a digest alone is kept.

    No token that is made with this one holds longer than until `issues_until`: else one that ends could be
    made one that does not. A browser that logged in with a token has the bound of that, not of its session.
    `made_with` is the id of the program's token that it was made with; with that it is revoked.
    """

    id: str
    user_id: str
    kind: TokenKind
    label: str
    created_at: datetime
    expires_at: datetime | None = None
    issues_until: datetime | None = None
    made_with: str | None = None

    @property
    def makes_with(self) -> str | None:
        """What those that are made with it are made with: a login is another form of the token it is from."""
        return self.id if self.kind is TokenKind.PROGRAM else self.made_with


def ensure_user_name(name: str) -> None:
    """`InvalidName` unless it is short, lower case and of letters, digits and `._@-`."""
    if not _NAME.fullmatch(name):
        raise InvalidName("user", name, "letters, digits and ._@-, in lower case, at most 64 of them")
