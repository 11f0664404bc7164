"""Where users of a server and their tokens are kept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from cleveragents.access.model.user import Role, Token, TokenKind, User
from cleveragents.storage.answers import Claim

__all__ = ["UserStore"]


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
