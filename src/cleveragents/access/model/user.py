"""Users of a server, their tokens, and their roles in projects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from cleveragents.core.errors import InvalidName

__all__ = [
    "ProjectScope",
    "Role",
    "Token",
    "TokenKind",
    "User",
    "ensure_user_name",
    "is_user_name",
    "role_outside",
]

ProjectScope = frozenset[str] | None
"""The projects that somebody can see; None: all of them."""

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
    """A user of the server, with a role in each project they are a member of.

    `role` is `admin` for a server admin, who may act in every project. Otherwise it is the highest of the
    roles in `projects`, and at most `operator`: the admin of a project has no rights outside of it.
    """

    id: str
    name: str
    role: Role
    created_at: datetime
    projects: Mapping[str, Role] = field(default_factory=dict)

    @property
    def is_server_admin(self) -> bool:
        """Whether they manage users, projects and workers, and may act in every project."""
        return self.role is Role.ADMIN

    @property
    def scope(self) -> ProjectScope:
        """The projects they can see; None: all."""
        return None if self.is_server_admin else frozenset(self.projects)

    def role_in(self, project: str) -> Role | None:
        """Their role in the project; None if they are no member of it."""
        return Role.ADMIN if self.is_server_admin else self.projects.get(project)

    def may(self, needed: Role, project: str) -> bool:
        """Whether their role in the project is enough."""
        role = self.role_in(project)
        return role is not None and role.may(needed)


def role_outside(projects: Mapping[str, Role]) -> Role:
    """The `User.role` of a member of these projects who is no server admin."""
    operates = any(role.may(Role.OPERATOR) for role in projects.values())
    return Role.OPERATOR if operates else Role.VIEWER


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


def is_user_name(text: str) -> bool:
    """Whether a user can have this name: short, lower case and of letters, digits and `._@-`."""
    return _NAME.fullmatch(text) is not None


def ensure_user_name(name: str) -> None:
    """`InvalidName` unless a user can have this name."""
    if not is_user_name(name):
        raise InvalidName("user", name, "letters, digits and ._@-, in lower case, at most 64 of them")
