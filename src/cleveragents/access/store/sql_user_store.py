"""Users and their tokens in a database.

A token is 256 random bits and cannot be guessed, so a fast digest is as safe as a slow one. Redaction
recognizes a token by its format.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, delete, or_, select, update
from sqlalchemy.sql.dml import ReturningInsert

from cleveragents.access.model.project import DEFAULT_PROJECT
from cleveragents.access.model.user import Role, Token, TokenKind, User, ensure_user_name, role_outside
from cleveragents.access.store.sql_project_store import hold_project, put_member, roles_of
from cleveragents.core.errors import (
    AlreadyThere,
    InvalidName,
    NotAuthenticated,
    RequestRefused,
    StillUsed,
    UnknownUser,
)
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.core.identifiers import IdentifierSource
from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.redaction import redact_text
from cleveragents.storage.columns import is_storable, kept_text, microseconds, moment
from cleveragents.storage.database import Database
from cleveragents.storage.idempotency import IdempotencyClaim
from cleveragents.storage.inserts import insert_into
from cleveragents.storage.outbox import append_to_outbox
from cleveragents.storage.rows import record_in, row_of
from cleveragents.storage.service_tables import members, tokens, users
from cleveragents.storage.sql_idempotency_store import keep_made

__all__ = ["SqlUserStore", "new_secret"]

_LABEL_CHARACTERS = 200
_GIVEN = re.compile(r"[!-~]{43,256}")


def _keeping(dialect: str) -> ReturningInsert[tuple[str]]:
    """Return an insert that does nothing if the name exists. Of two concurrent inserts, the second inserts no
    row.
    """
    return insert_into(users, dialect).on_conflict_do_nothing().returning(users.c.id)


def new_secret() -> str:
    """Return 256 random bits in the format that redaction recognizes."""
    return f"agents_sk_{secrets.token_hex(32)}"


class SqlUserStore:
    """Users and tokens. Every method is one transaction that includes its event.

    Only the digest of a secret is stored; the secret is returned once, when it is issued. Stateless except
    for the database, so any thread may share it.
    """

    def __init__(
        self,
        database: Database,
        identifiers: IdentifierSource,
        new_secret: Callable[[], str] = new_secret,
    ) -> None:
        self._database = database
        self._identifiers = identifiers
        self._new_secret = new_secret

    def add(self, name: str, role: Role, *, now: datetime, project: str | None = None) -> User:
        """Add a user and make them a member of the project, or of the default project, with this role.
        Without a project, the role `admin` makes the user a server admin.

        Raises `AlreadyThere`, `InvalidName`, `UnknownProject`.
        """
        ensure_user_name(name)
        user_id = self._identifiers.new()
        everywhere = role is Role.ADMIN and project is None
        joined = {} if everywhere else {project or DEFAULT_PROJECT: role}
        user = User(user_id, name, Role.ADMIN if everywhere else role_outside(joined), now, joined)
        row = {"id": user.id, "name": name, "role": user.role.value, "created_at": microseconds(now)}

        def unit(connection: Connection) -> None:
            if connection.execute(_keeping(connection.dialect.name), row).first() is None:
                raise AlreadyThere("user", name)
            facts: dict[str, JsonValue] = {"role": role.value}
            for place in joined:
                hold_project(connection, place)
                put_member(connection, place, user.id, role)
                facts["project"] = place
            self._tell(connection, EventType.USER_ADDED, user, now, facts)

        self._database.write(unit)
        return user

    def set_role(self, name: str, role: Role, *, now: datetime) -> User:
        """Make the user a server admin (`admin`), or give them the role in each of their projects; if they
        are in no project, in the default project.

        Takes effect with the next request. Raises `UnknownUser`; `StillUsed` if no server admin would be
        left.
        """

        def unit(connection: Connection) -> User:
            user = _held(connection, name)
            if role is not Role.ADMIN:
                _ensure_another_admin(connection, user)
            places = {} if role is Role.ADMIN else dict.fromkeys(user.projects or (DEFAULT_PROJECT,), role)
            if role is user.role and places in ({}, user.projects):
                return user
            connection.execute(update(users).where(users.c.id == user.id).values(role=role.value))
            for place in places:  # guard: a lower role applies to every project
                put_member(connection, place, user.id, role)
            changed = User(user.id, user.name, role, user.created_at, places or user.projects)
            self._tell(connection, EventType.USER_ADDED, changed, now, {"role": role.value})
            return changed

        return self._database.write(unit)

    def remove(self, name: str, *, now: datetime) -> None:
        """Remove the user with all their tokens, and all tokens that were issued with their tokens. Raises
        `UnknownUser`; `StillUsed` for the last admin.
        """

        def unit(connection: Connection) -> None:
            user = _held(connection, name)
            _ensure_another_admin(connection, user)
            for token in _delete(connection, tokens.c.user_id == user.id):  # guard: invalid at once
                if token.user_id != user.id:
                    self._tell_revoked(connection, token, now)
            connection.execute(delete(members).where(members.c.user_id == user.id))
            connection.execute(delete(users).where(users.c.id == user.id))
            self._tell(connection, EventType.USER_REMOVED, user, now, {})

        self._database.write(unit)

    def get(self, name: str) -> User:
        """Return the user with their current roles. Raises `UnknownUser`."""
        with self._database.read() as connection:
            return _named(connection, name)

    def list(self) -> Sequence[User]:
        """Return all users by name."""
        with self._database.read() as connection:
            return _users(connection, connection.execute(select(users).order_by(users.c.name)).all())

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
        claim: IdempotencyClaim | None = None,
    ) -> tuple[Token, str]:
        """Issue a token; return its record and its secret, which cannot be recovered.

        The secret is random unless given. Tokens that are issued with this token expire with it at the
        latest; for a browser session, they expire at `issues_until` at the latest. With a claim, the token is
        stored as the result of that request. Raises `UnknownUser`; `InvalidName` if the secret is too short;
        `AlreadyThere` if it is in use; `NotAuthenticated` if `made_with` is no longer valid;
        `RequestUnderWay` if another request took over the claim.
        """
        if secret is not None and not _GIVEN.fullmatch(secret):  # guard: it must not be guessable
            raise InvalidName("token", "***", "43 to 256 characters, without spaces: `openssl rand -hex 32`")
        text = secret or self._new_secret()
        token_id = self._identifiers.new()
        bound = expires_at if kind is TokenKind.PROGRAM else issues_until
        # Masked before it is cut: half a secret would not be recognized.
        described = redact_text(kept_text(label))[:_LABEL_CHARACTERS]  # guard: all users read it

        def unit(connection: Connection) -> Token:
            keep_made(connection, claim, token_id)  # guard: a repeated request creates nothing twice
            user = _held(connection, name)
            _ensure_still_there(connection, made_with)  # guard: else it outlives a revoked token
            # Otherwise expired sessions would be kept for ever.
            past = tokens.c.expires_at <= microseconds(now)
            connection.execute(delete(tokens).where(tokens.c.user_id == user.id, past))
            same = select(tokens.c.id).where(tokens.c.digest == _digest(text))
            if connection.execute(same).first() is not None:  # the user is locked: no other issues it
                raise AlreadyThere("token", "***")
            token = Token(token_id, user.id, kind, described, now, expires_at, bound, made_with)
            connection.execute(tokens.insert(), row_of(token, digest=_digest(text)))
            facts: dict[str, JsonValue] = {"access": token.id, "kind": kind.value, "label": described}
            self._tell(connection, EventType.ACCESS_GIVEN, user, now, facts)
            return token

        return self._database.write(unit), text

    def known_by(self, token: str, kind: TokenKind, *, now: datetime) -> tuple[User, Token] | None:
        """Return the user and the token of a secret; None if it is unknown, expired or revoked."""
        found = (
            select(tokens, users.c.name, users.c.role, users.c.created_at.label("since"))
            .join(users, users.c.id == tokens.c.user_id)
            .where(
                tokens.c.digest == _digest(token),
                tokens.c.kind == kind.value,
                or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > microseconds(now)),
            )
        )
        with self._database.read() as connection:
            row = connection.execute(found).first()
            if row is None:
                return None
            roles = roles_of(connection, [row.user_id])[row.user_id]
        return _with_roles(row.user_id, row.name, row.role, row.since, roles), record_in(Token, row._mapping)

    def tokens_of(self, name: str) -> Sequence[Token]:
        """Return the user's tokens, oldest first. Raises `UnknownUser`."""
        with self._database.read() as connection:
            user = _named(connection, name)
            wanted = select(tokens).where(tokens.c.user_id == user.id).order_by(tokens.c.id)
            return [record_in(Token, row) for row in connection.execute(wanted).mappings()]

    def revoke(
        self, token_id: str, *, now: datetime, alone: bool = False, asked_with: str | None = None
    ) -> Sequence[str]:
        """Revoke a token and all tokens issued with it, directly or not. Takes effect with the next request.
        Return the ids of the revoked tokens, this one first.

        With `alone`, the tokens issued with it stay valid and count as issued by its issuer. Raises
        `UnknownUser` if the token does not exist; `RequestRefused` for `alone` if `asked_with` is the token
        or was issued with it; `NotAuthenticated` if `asked_with` is no longer valid.
        """

        def unit(connection: Connection) -> Sequence[str]:
            if not is_storable(token_id):
                raise UnknownUser(token_id)
            if alone:
                _ensure_not_its_own(connection, token_id, asked_with)
                _hand_on(connection, token_id)
            gone = _delete(connection, tokens.c.id == token_id)
            if not gone:
                raise UnknownUser(token_id)
            for token in gone:
                self._tell_revoked(connection, token, now)
            return [token.id for token in gone]

        return self._database.write(unit)

    def _tell_revoked(self, connection: Connection, token: Any, now: datetime) -> None:
        user = _users(
            connection, [connection.execute(select(users).where(users.c.id == token.user_id)).one()]
        )[0]
        self._tell(connection, EventType.ACCESS_REVOKED, user, now, {"access": token.id})

    def _tell(
        self, connection: Connection, what: EventType, user: User, now: datetime, more: dict[str, JsonValue]
    ) -> None:
        facts: dict[str, JsonValue] = {"name": user.name, **more}
        append_to_outbox(connection, DomainEvent(what, user.id, self._identifiers.new(), now, facts))


def _delete(connection: Connection, which: ColumnElement[bool]) -> Sequence[Any]:
    """Delete these tokens and all tokens issued with them, directly or not; return their rows.

    Tokens are deleted generation by generation. Issuing a token locks its issuer, so tokens that are issued
    meanwhile are found in the next round.
    """
    gone: list[Any] = []
    while found := connection.execute(delete(tokens).where(which).returning(tokens)).all():
        gone += found
        which = tokens.c.made_with.in_([token.id for token in found])
    return gone


def _hand_on(connection: Connection, token_id: str) -> None:
    """Record this token's issuer as the issuer of all tokens issued with this token."""
    # Locked: its issuer may be about to be removed as well.
    found = connection.execute(_made_with(token_id)).first()
    if found is not None:
        theirs = update(tokens).where(tokens.c.made_with == token_id)
        connection.execute(theirs.values(made_with=found.made_with))


def _ensure_not_its_own(connection: Connection, token_id: str, asked_with: str | None) -> None:
    """Raise `RequestRefused` if the request was made with that token, or with one issued with it, directly or
    not.

    Without this check, a thief could issue tokens with a stolen token and make them outlive it. Every token
    of the chain of issuers is locked, so that none is removed meanwhile. Raises `NotAuthenticated` if the
    token of the request no longer exists.
    """
    _ensure_still_there(connection, asked_with)
    above = asked_with
    while above is not None:
        if above == token_id:  # guard: tokens of a thief go with the stolen one
            others = "use another token or an admin's token, or run the command on the server's machine"
            raise RequestRefused(
                f"this request is authenticated with that token, or with a token created from it; {others}",
                "alone",
            )
        row = connection.execute(_made_with(above)).first()
        above = None if row is None else row.made_with


def _made_with(token_id: str) -> Select[tuple[str | None]]:
    """Return a query for the issuer of the token that locks the token until the end of the transaction."""
    return select(tokens.c.made_with).where(tokens.c.id == token_id).with_for_update()


def _ensure_still_there(connection: Connection, token_id: str | None) -> None:
    if token_id is None:
        return
    wanted = select(tokens.c.id).where(tokens.c.id == token_id).with_for_update()
    if connection.execute(wanted).first() is None:
        raise NotAuthenticated("your token was just revoked; log in again or use another token")


def _digest(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _named(connection: Connection, name: str, *, held: bool = False) -> User:
    wanted = select(users).where(users.c.name == name)
    if held:
        wanted = wanted.with_for_update()
    row = connection.execute(wanted).first() if is_storable(name) else None
    if row is None:
        raise UnknownUser(name)
    return _users(connection, [row])[0]


def _held(connection: Connection, name: str) -> User:
    """Return the user, locked until the end of the transaction. Raises `UnknownUser`."""
    # All admins in one order: of two who demote each other, one waits and then sees the change.
    admins = select(users.c.id).where(users.c.role == Role.ADMIN.value).order_by(users.c.id)
    connection.execute(admins.with_for_update())
    return _named(connection, name, held=True)


def _ensure_another_admin(connection: Connection, user: User) -> None:
    if user.role is not Role.ADMIN:
        return
    others = select(users.c.id).where(users.c.role == Role.ADMIN.value, users.c.id != user.id)
    if connection.execute(others).first() is None:  # guard: one admin always remains
        raise StillUsed("user", user.name, "the user is the last admin; make another user admin first")


def _users(connection: Connection, rows: Sequence[Any]) -> Sequence[User]:
    roles = roles_of(connection, [row.id for row in rows])
    return [_with_roles(row.id, row.name, row.role, row.created_at, roles[row.id]) for row in rows]


def _with_roles(user_id: str, name: str, stored: str, created_at: int, projects: Mapping[str, Role]) -> User:
    # The stored role marks server admins only; other users have the roles of their projects.
    role = Role.ADMIN if Role(stored) is Role.ADMIN else role_outside(projects)
    return User(user_id, name, role, moment(created_at), projects)
