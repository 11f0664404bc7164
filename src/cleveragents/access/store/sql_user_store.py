"""Users and their tokens on a database.

A token is 256 random bits, so a plain digest of it is as good as a slow one: there is nothing to guess. It is
spelt such that every redaction of ours knows it by its shape, wherever somebody pastes it.
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
    """An insert; of two that come at once with one name, the second finds that it kept nothing."""
    return insert_into(users, dialect).on_conflict_do_nothing().returning(users.c.id)


def new_secret() -> str:
    """256 random bits, in a shape that is masked wherever we mask."""
    return f"agents_sk_{secrets.token_hex(32)}"


class SqlUserStore:
    """Users and tokens. Every method is one atomic step with its event, from any thread and process.

    Of a token a digest is kept, never the token: it is seen once, by who issued it. Stateless but for the
    database, so any thread may share it.
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
        """A member of the project with that role, or of the default project. Without a project, `admin` is a
        server admin. `AlreadyThere`, `InvalidName`, `UnknownProject`."""
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
        """Make the user a server admin (`admin`), or give them the role in each of their projects, and in the
        default one if they have none. Holds from the next request on. `UnknownUser`; `StillUsed` if no server
        admin would be left."""

        def unit(connection: Connection) -> User:
            user = _held(connection, name)
            if role is not Role.ADMIN:
                _ensure_another_admin(connection, user)
            places = {} if role is Role.ADMIN else dict.fromkeys(user.projects or (DEFAULT_PROJECT,), role)
            if role is user.role and places in ({}, user.projects):
                return user
            connection.execute(update(users).where(users.c.id == user.id).values(role=role.value))
            for place in places:  # guard: a smaller role holds in every project
                put_member(connection, place, user.id, role)
            changed = User(user.id, user.name, role, user.created_at, places or user.projects)
            self._tell(connection, EventType.USER_ADDED, changed, now, {"role": role.value})
            return changed

        return self._database.write(unit)

    def remove(self, name: str, *, now: datetime) -> None:
        """With all tokens, and all that were made with those. `UnknownUser`; `StillUsed` if nobody would be
        admin any more."""

        def unit(connection: Connection) -> None:
            user = _held(connection, name)
            _ensure_another_admin(connection, user)
            for token in _delete(connection, tokens.c.user_id == user.id):  # guard: worthless at once
                if token.user_id != user.id:
                    self._tell_revoked(connection, token, now)
            connection.execute(delete(members).where(members.c.user_id == user.id))
            connection.execute(delete(users).where(users.c.id == user.id))
            self._tell(connection, EventType.USER_REMOVED, user, now, {})

        self._database.write(unit)

    def list(self) -> Sequence[User]:
        """By name."""
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
        """What is kept of the token, and the token itself, which nobody can learn again. It is random,
        unless `secret` says what it is. What a program makes with it ends when it ends; what a browser does,
        by `issues_until`. `UnknownUser`; `InvalidName` if the secret is too short, `AlreadyThere` if it is
        somebody's token; `NotAuthenticated` if the token that it is `made_with` is none any more. With a
        claim, kept as what was made for that request: `RequestUnderWay` if somebody took the claim over."""
        if secret is not None and not _GIVEN.fullmatch(secret):  # guard: nobody can guess it
            raise InvalidName("token", "***", "43 to 256 characters, without spaces: `openssl rand -hex 32`")
        text = secret or self._new_secret()
        token_id = self._identifiers.new()
        bound = expires_at if kind is TokenKind.PROGRAM else issues_until
        # Masked before it is cut: half a secret would not be known for one.
        described = redact_text(kept_text(label))[:_LABEL_CHARACTERS]  # guard: a label is for everybody

        def unit(connection: Connection) -> Token:
            keep_made(connection, claim, token_id)  # guard: a request that is repeated makes nothing twice
            user = _held(connection, name)
            _ensure_still_there(connection, made_with)  # guard: else it outlives what is revoked meanwhile
            # Sessions of browsers that are over would otherwise be kept for ever.
            past = tokens.c.expires_at <= microseconds(now)
            connection.execute(delete(tokens).where(tokens.c.user_id == user.id, past))
            same = select(tokens.c.id).where(tokens.c.digest == _digest(text))
            if connection.execute(same).first() is not None:  # the user is held: nobody else gives it to them
                raise AlreadyThere("token", "***")
            token = Token(token_id, user.id, kind, described, now, expires_at, bound, made_with)
            connection.execute(tokens.insert(), row_of(token, digest=_digest(text)))
            facts: dict[str, JsonValue] = {"access": token.id, "kind": kind.value, "label": described}
            self._tell(connection, EventType.ACCESS_GIVEN, user, now, facts)
            return token

        return self._database.write(unit), text

    def known_by(self, token: str, kind: TokenKind, *, now: datetime) -> tuple[User, Token] | None:
        """Whose token it is, if it has neither expired nor been revoked."""
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
        """Oldest first. `UnknownUser`."""
        with self._database.read() as connection:
            user = _named(connection, name)
            wanted = select(tokens).where(tokens.c.user_id == user.id).order_by(tokens.c.id)
            return [record_in(Token, row) for row in connection.execute(wanted).mappings()]

    def revoke(
        self, token_id: str, *, now: datetime, alone: bool = False, asked_with: str | None = None
    ) -> Sequence[str]:
        """Worthless from the next request on, with all that were made with it, and with those; `alone`, they
        stay, as made with what it was made with. Returns which are, itself first. `UnknownUser` if there is
        none; `RequestRefused` if it is to be `alone`, and that is `asked_with` it or one below it,
        `NotAuthenticated` if with one that is none any more."""

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
    """Deletes those tokens, and all that were made with them, and with those; returns their rows.

    One generation after the other: who makes one with a token holds that, so what is made while this waits
    is found by the next look.
    """
    gone: list[Any] = []
    while found := connection.execute(delete(tokens).where(which).returning(tokens)).all():
        gone += found
        which = tokens.c.made_with.in_([token.id for token in found])
    return gone


def _hand_on(connection: Connection, token_id: str) -> None:
    """Those that were made with the token count as made with what it was made with itself."""
    # Held: it may be about to be handed on, too, and what it was made with gone.
    found = connection.execute(_made_with(token_id)).first()
    if found is not None:
        theirs = update(tokens).where(tokens.c.made_with == token_id)
        connection.execute(theirs.values(made_with=found.made_with))


def _ensure_not_its_own(connection: Connection, token_id: str, asked_with: str | None) -> None:
    """`RequestRefused` for who has that token, or one that was made with it: whoever stole it has those, too,
    and must not make them outlive it. Each is held: nobody takes one out of the line meanwhile.
    `NotAuthenticated` for who has one that is gone: it cannot be told what that was made with."""
    _ensure_still_there(connection, asked_with)
    above = asked_with
    while above is not None:
        if above == token_id:  # guard: what a thief made goes with what was stolen
            others = "another token that was not made with it, an admin's or one of the machine itself, can"
            raise RequestRefused(
                f"you asked with that very token, or one that was made with it; {others}", "alone"
            )
        row = connection.execute(_made_with(above)).first()
        above = None if row is None else row.made_with


def _made_with(token_id: str) -> Select[tuple[str | None]]:
    """What that one was made with, which stays so until this is committed."""
    return select(tokens.c.made_with).where(tokens.c.id == token_id).with_for_update()


def _ensure_still_there(connection: Connection, token_id: str | None) -> None:
    if token_id is None:
        return
    wanted = select(tokens.c.id).where(tokens.c.id == token_id).with_for_update()
    if connection.execute(wanted).first() is None:
        raise NotAuthenticated("yours was revoked a moment ago; log in again, or use another")


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
    """The user, whom nobody else changes until this is committed. `UnknownUser`."""
    # All admins, in one order: of two who would take each other's role away, one waits and then looks.
    admins = select(users.c.id).where(users.c.role == Role.ADMIN.value).order_by(users.c.id)
    connection.execute(admins.with_for_update())
    return _named(connection, name, held=True)


def _ensure_another_admin(connection: Connection, user: User) -> None:
    if user.role is not Role.ADMIN:
        return
    others = select(users.c.id).where(users.c.role == Role.ADMIN.value, users.c.id != user.id)
    if connection.execute(others).first() is None:  # guard: somebody can always let others in
        raise StillUsed("user", user.name, "nobody else is admin; make somebody else one first")


def _users(connection: Connection, rows: Sequence[Any]) -> Sequence[User]:
    roles = roles_of(connection, [row.id for row in rows])
    return [_with_roles(row.id, row.name, row.role, row.created_at, roles[row.id]) for row in rows]


def _with_roles(user_id: str, name: str, stored: str, created_at: int, projects: Mapping[str, Role]) -> User:
    # What is stored tells server admins from all others; those have the roles that their projects give them.
    role = Role.ADMIN if Role(stored) is Role.ADMIN else role_outside(projects)
    return User(user_id, name, role, moment(created_at), projects)
