"""Where users of a server and their tokens are kept.

Where projects and resources are kept.

What a repository brings along, and whether the user said that it may count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from cleveragents.access.model.project import Project, Resource, ResourceKind
from cleveragents.access.model.user import Role, Token, TokenKind, User
from cleveragents.storage.answers import Claim

__all__ = ["BroughtFile", "GivenTrust", "ProjectStore", "Survey", "TrustStore", "UserStore"]


class UserStore(Protocol):
    """Users and tokens. Every method is one atomic step with its event, from any thread and process.

    Of a token a digest is kept, never the token: it is seen once, by who issued it.
    """

    def add(self, name: str, role: Role, *, now: datetime, project: str | None = None) -> User:
        """A member of the project with that role, or of the default project. Without a project, `admin` is a
        server admin. `AlreadyThere`, `InvalidName`, `UnknownProject`."""
        ...

    def set_role(self, name: str, role: Role, *, now: datetime) -> User:
        """Make the user a server admin (`admin`), or give them the role in each of their projects, and in the
        default one if they have none. Holds from the next request on. `UnknownUser`; `StillUsed` if no server
        admin would be left."""
        ...

    def remove(self, name: str, *, now: datetime) -> None:
        """With all tokens, and all that were made with those. `UnknownUser`; `StillUsed` if nobody would be
        admin any more."""
        ...

    def list(self) -> Sequence[User]:
        """By name."""
        ...

    def issue(
        self,
        name: str,
        kind: TokenKind,
        label: str,
        *,
        now: datetime,
        expires_at: datetime | None = None,
        issues_until: datetime | None = None,
        made_with: str | None = None,
        secret: str | None = None,
        claim: Claim | None = None,
    ) -> tuple[Token, str]:
        """What is kept of the token, and the token itself, which nobody can learn again. It is random,
        unless `secret` says what it is. What a program makes with it ends when it ends; what a browser does,
        by `issues_until`. `UnknownUser`; `InvalidName` if the secret is too short, `AlreadyThere` if it is
        somebody's token; `NotAuthenticated` if the token that it is `made_with` is none any more. With a
        claim, kept as what was made for that request: `RequestUnderWay` if somebody took the claim over."""
        ...

    def known_by(self, token: str, kind: TokenKind, *, now: datetime) -> tuple[User, Token] | None:
        """Whose token it is, if it has neither expired nor been revoked."""
        ...

    def tokens_of(self, name: str) -> Sequence[Token]:
        """Oldest first. `UnknownUser`."""
        ...

    def revoke(
        self, token_id: str, *, now: datetime, alone: bool = False, asked_with: str | None = None
    ) -> Sequence[str]:
        """Worthless from the next request on, with all that were made with it, and with those; `alone`, they
        stay, as made with what it was made with. Returns which are, itself first. `UnknownUser` if there is
        none; `RequestRefused` if it is to be `alone`, and that is `asked_with` it or one below it,
        `NotAuthenticated` if with one that is none any more."""
        ...


class ProjectStore(Protocol):
    """Projects and their resources. Every method is one atomic step with its event."""

    def add(
        self,
        name: str,
        description: str = "",
        *,
        max_parallel: int | None = None,
        now: datetime,
        creator: User | None = None,
    ) -> Project:
        """The `creator` becomes its admin. `AlreadyThere`, `InvalidName`."""
        ...

    def get(self, name: str) -> Project:
        """`UnknownProject`."""
        ...

    def list(self) -> Sequence[Project]:
        """By name."""
        ...

    def remove(self, name: str, *, now: datetime) -> None:
        """Its memberships end. `UnknownProject`; `StillUsed` while it has resources or plans, and for the
        default project."""
        ...

    def add_resource(
        self,
        name: str,
        project: str,
        kind: ResourceKind,
        location: str,
        *,
        branch: str | None = None,
        now: datetime,
    ) -> Resource:
        """A directory is one of the machine whose store this is. `AlreadyThere`, `InvalidName`,
        `UnknownProject`."""
        ...

    def resource(self, name: str) -> Resource:
        """`UnknownResource`."""
        ...

    def resources(self, project: str | None = None) -> Sequence[Resource]:
        """Of a project, or all, by name."""
        ...

    def remove_resource(self, name: str, *, now: datetime) -> None:
        """Plans that run on it go on. `UnknownResource`."""
        ...


@dataclass(frozen=True, slots=True)
class BroughtFile:
    """A file as it was read, once: `trusted` speaks of this very content, so whoever uses the file uses
    `content` and does not read it again. `path` is relative to the root, with `/`."""

    path: str
    digest: str
    content: bytes
    trusted: bool


@dataclass(frozen=True, slots=True)
class Survey:
    """All that a repository brings along. `refused` are files that cannot be trusted, each with the reason;
    not all was looked at when one of them says so."""

    root: Path
    files: tuple[BroughtFile, ...]
    refused: tuple[tuple[str, str], ...] = ()

    @property
    def pending(self) -> tuple[BroughtFile, ...]:
        """What is not trusted as it is now."""
        return tuple(file for file in self.files if not file.trusted)


@dataclass(frozen=True, slots=True)
class GivenTrust:
    """A file's content that the user trusts."""

    path: str
    digest: str
    trusted_at: datetime


class TrustStore(Protocol):
    """Trust by place and content: a file that changed, or moved, asks again. Any thread may call it."""

    def look(self, root: Path, relative: str) -> BroughtFile | None:
        """The file as it is now, and whether that is trusted; None if there is none.

        `ConfigurationError` for one that leads out of the root, is no regular file or is too large.
        """
        ...

    def survey(self, root: Path) -> Survey:
        """Everything below the root that would need trust."""
        ...

    def give(self, root: Path, files: Sequence[BroughtFile]) -> Sequence[str]:
        """Trusts these contents, as they were read: a file that changed since is not trusted thereby.

        Returns the paths that were not trusted before. Kept together with its event.
        """
        ...

    def list(self) -> Sequence[GivenTrust]:
        """All that is trusted, by path."""
        ...

    def revoke(self, path: Path) -> Sequence[str]:
        """Trusts nothing at or below that path any more; returns the files that were trusted."""
        ...
