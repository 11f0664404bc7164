"""Users of a server, their tokens, and their roles in projects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from enum import Enum

from msgspec import Struct, field

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
"""The visible projects of a user; None: all of them."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._@-]{0,63}")


class Role(str, Enum):
    """The roles, in ascending order. Each has all rights of the roles before it."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def may(self, needed: Role) -> bool:
        """Return whether this role includes `needed`."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


class TokenKind(str, Enum):
    """The kind of a token: sent by a program, or the cookie of a browser."""

    PROGRAM = "program"
    BROWSER = "browser"


class User(Struct, frozen=True):
    """A user of the server, with a role in each of their projects.

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
        """Whether the user manages users, projects and workers, and may act in every project."""
        return self.role is Role.ADMIN

    @property
    def scope(self) -> ProjectScope:
        """The projects that the user can see; None means all projects."""
        return None if self.is_server_admin else frozenset(self.projects)

    def role_in(self, project: str) -> Role | None:
        """Return the user's role in the project; None if the user is not a member."""
        return Role.ADMIN if self.is_server_admin else self.projects.get(project)

    def may(self, needed: Role, project: str) -> bool:
        """Return whether the user's role in the project is sufficient."""
        role = self.role_in(project)
        return role is not None and role.may(needed)


def role_outside(projects: Mapping[str, Role]) -> Role:
    """Return the role that a user who is not a server admin has outside their projects: `operator` if they
    are an operator or admin of any project, else `viewer`.
    """
    operates = any(role.may(Role.OPERATOR) for role in projects.values())
    return Role.OPERATOR if operates else Role.VIEWER


class Token(Struct, frozen=True):
    """A token without its secret, of which only a digest is stored.

    Tokens issued with this token expire at `issues_until` at the latest, so that a limited token cannot issue
    an unlimited one. A browser session has the limit of the token that was used to log in. `made_with` is the
    id of the program token that issued this token. By default, revoking the issuer also revokes this token.
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
        """The `made_with` of tokens issued with this token: its own id, or for a browser session the token
        that was used to log in.
        """
        return self.id if self.kind is TokenKind.PROGRAM else self.made_with


def is_user_name(text: str) -> bool:
    """Return whether the name is valid for a user: short, of lower-case letters, digits and `._@-`."""
    return _NAME.fullmatch(text) is not None


def ensure_user_name(name: str) -> None:
    """Raise `InvalidName` unless the name is valid for a user."""
    if not is_user_name(name):
        raise InvalidName("user", name, "at most 64 lower-case letters, digits and ._@-")
