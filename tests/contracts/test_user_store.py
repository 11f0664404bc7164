"""Users and tokens: known by a digest alone, each step with its event, and never without an admin."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import event, select, text

from cleveragents.access.model.user import Role, TokenKind
from cleveragents.access.store.sql_user_store import SqlUserStore
from cleveragents.core.errors import (
    AlreadyThere,
    InvalidName,
    NotAuthenticated,
    RequestRefused,
    StillUsed,
    UnknownUser,
)
from cleveragents.core.identifiers import UlidSource
from cleveragents.core.text.redaction import redact_content_text, redact_text
from cleveragents.storage.database import Database, open_database
from cleveragents.storage.service_tables import tokens
from cleveragents.storage.tables import METADATA, outbox
from tests.races.hammer import hammer

NOW = datetime(2026, 11, 15, 12, 0, 0, 123456, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
PROGRAM, BROWSER = TokenKind.PROGRAM, TokenKind.BROWSER

postgresql_only = pytest.mark.parametrize(
    "database_url", [pytest.param("postgresql", marks=pytest.mark.postgres)], indirect=True
)


@pytest.fixture
def store(database: Database) -> SqlUserStore:
    return SqlUserStore(database, UlidSource())


def told(database: Database) -> list[tuple[str, str, dict[str, object]]]:
    """Type, subject and facts of every event, in order."""
    columns = select(outbox.c.event_type, outbox.c.subject, outbox.c.payload).order_by(outbox.c.number)
    with database.read() as connection:
        return [(kind, subject, json.loads(facts)) for kind, subject, facts in connection.execute(columns)]


def everything(database: Database) -> str:
    """All that is in the database, as one text."""
    with database.read() as connection:
        return repr([list(connection.execute(select(table))) for table in METADATA.tables.values()])


def test_users_come_back_as_they_were_added_by_name(store: SqlUserStore, database: Database) -> None:
    zoe = store.add("zoe", Role.VIEWER, now=NOW)
    ada = store.add("ada", Role.ADMIN, now=LATER)
    assert store.list() == [ada, zoe]
    assert (ada.name, ada.role, ada.created_at) == ("ada", Role.ADMIN, LATER)
    assert told(database) == [
        ("user.added", zoe.id, {"name": "zoe", "project": "default", "role": "viewer"}),
        ("user.added", ada.id, {"name": "ada", "role": "admin"}),
    ]


def test_a_name_is_given_once_and_must_be_one(store: SqlUserStore, database: Database) -> None:
    store.add("ada", Role.ADMIN, now=NOW)
    with pytest.raises(AlreadyThere):
        store.add("ada", Role.VIEWER, now=NOW)
    for wrong in ("", "Ada", "a b", "../x", "a\0", "a" * 65, "\ud800"):
        with pytest.raises(InvalidName):
            store.add(wrong, Role.VIEWER, now=NOW)
    assert len(store.list()) == 1
    assert len(told(database)) == 1


def test_a_token_tells_whose_it_is_for_what_it_is_made(store: SqlUserStore, database: Database) -> None:
    ada = store.add("ada", Role.OPERATOR, now=NOW)
    token, secret = store.issue("ada", PROGRAM, "laptop", now=NOW)
    assert store.known_by(secret, PROGRAM, now=LATER) == (ada, token)
    assert store.known_by(secret, BROWSER, now=LATER) is None
    assert store.known_by(secret + "x", PROGRAM, now=LATER) is None
    assert store.known_by("\ud800\0", PROGRAM, now=LATER) is None
    facts = {"name": "ada", "access": token.id, "kind": "program", "label": "laptop"}
    assert told(database)[1:] == [("access.given", ada.id, facts)]


def test_a_secret_that_is_given_is_given_once(store: SqlUserStore) -> None:
    store.add("ada", Role.ADMIN, now=NOW)
    store.issue("ada", TokenKind.PROGRAM, "", now=NOW, secret="s" * 43)
    with pytest.raises(AlreadyThere) as refused:
        store.issue("ada", TokenKind.PROGRAM, "", now=NOW, secret="s" * 43)
    assert "sss" not in str(refused.value)
    assert len(store.tokens_of("ada")) == 1


def test_of_a_token_nothing_is_kept_that_could_be_used(store: SqlUserStore, database: Database) -> None:
    store.add("ada", Role.ADMIN, now=NOW)
    secrets = [store.issue("ada", kind, "x", now=NOW)[1] for kind in (PROGRAM, BROWSER)]
    kept = everything(database)
    assert "ada" in kept
    for secret in secrets:
        # Also no long part of it: half of one would be enough to find the rest.
        assert not any(secret[at : at + 16] in kept for at in range(len("agents_sk_"), len(secret) - 16))


def test_tokens_are_all_different_long_and_masked_wherever_we_mask(store: SqlUserStore) -> None:
    store.add("ada", Role.ADMIN, now=NOW)
    secrets = {store.issue("ada", PROGRAM, "", now=NOW)[1] for _ in range(5)}
    assert len(secrets) == 5
    for secret in secrets:
        random = secret.removeprefix("agents_sk_")
        assert len(bytes.fromhex(random)) == 32
        for masked in (redact_text(f"it is {secret}, see?"), redact_content_text(f"it is {secret}, see?")):
            assert random not in masked


def test_a_token_ends_when_it_expires_and_is_forgotten_with_the_next(store: SqlUserStore) -> None:
    store.add("ada", Role.VIEWER, now=NOW)
    token, secret = store.issue("ada", BROWSER, "b", now=NOW, expires_at=LATER)
    just_before = LATER - timedelta(microseconds=1)
    known = store.known_by(secret, BROWSER, now=just_before)
    assert known is not None
    assert known[1] == token
    assert store.known_by(secret, BROWSER, now=LATER) is None
    fresh, _ = store.issue("ada", BROWSER, "b", now=LATER)
    assert store.tokens_of("ada") == [fresh]


def test_a_revoked_token_is_worthless_at_once_and_others_are_not(
    store: SqlUserStore, database: Database
) -> None:
    ada = store.add("ada", Role.VIEWER, now=NOW)
    first, gone = store.issue("ada", PROGRAM, "", now=NOW)
    _, stays = store.issue("ada", PROGRAM, "", now=NOW)
    store.revoke(first.id, now=LATER)
    assert store.known_by(gone, PROGRAM, now=NOW) is None
    assert store.known_by(stays, PROGRAM, now=NOW) is not None
    assert told(database)[-1] == ("access.revoked", ada.id, {"name": "ada", "access": first.id})
    for wrong in (first.id, "no\0token"):
        for alone in (False, True):
            with pytest.raises(UnknownUser):
                store.revoke(wrong, now=LATER, alone=alone)


def test_a_token_is_revoked_with_the_one_that_it_was_made_with(
    store: SqlUserStore, database: Database
) -> None:
    ada = store.add("ada", Role.ADMIN, now=NOW)
    bob = store.add("bob", Role.VIEWER, now=NOW)
    first, _ = store.issue("ada", PROGRAM, "", now=NOW)
    login, _ = store.issue("ada", BROWSER, "", now=NOW, made_with=first.id)
    assert (first.makes_with, login.makes_with) == (first.id, first.id)
    second, _ = store.issue("bob", PROGRAM, "", now=NOW, made_with=login.makes_with)
    third, _ = store.issue("bob", PROGRAM, "", now=NOW, made_with=second.id)
    assert store.tokens_of("bob") == [second, third]
    # Alone, as when it is replaced: what was made with it is from then on of what it was made with.
    assert store.revoke(second.id, now=LATER, alone=True) == [second.id]
    assert [token.made_with for token in store.tokens_of("bob")] == [first.id]
    gone = store.revoke(first.id, now=LATER)
    assert (gone[0], set(gone)) == (first.id, {first.id, login.id, third.id})
    assert store.tokens_of("ada") == store.tokens_of("bob") == []
    revoked = [event[1:] for event in told(database) if event[0] == "access.revoked"]
    assert (bob.id, {"name": "bob", "access": third.id}) in revoked
    assert (ada.id, {"name": "ada", "access": login.id}) in revoked
    with pytest.raises(NotAuthenticated):
        store.issue("ada", PROGRAM, "", now=NOW, made_with=first.id)


class Meanwhile:
    """Something that somebody else does in the middle of what a test does: it has come to its end, or waits
    for a row that is held, before the test's own goes on."""

    def __init__(self, database: Database, work: Callable[[], object]) -> None:
        self._database = database
        self._thread = threading.Thread(target=work)
        self._begun = False

    def __call__(self) -> None:
        if self._begun:
            return
        self._begun = True
        self._thread.start()
        while self._thread.is_alive() and not self._is_waiting():
            self._thread.join(0.001)

    def end(self) -> None:
        self._thread.join(60)
        assert self._begun
        assert not self._thread.is_alive()

    def _is_waiting(self) -> bool:
        query = text(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        with self._database.read() as connection:
            return bool(connection.execute(query).scalar_one())

    def reach(self, name: str) -> None:
        if name == "store.write.before_commit":
            self()


@postgresql_only
def test_of_two_tokens_in_a_line_that_are_revoked_alone_at_once_none_breaks_the_line(
    store: SqlUserStore, database: Database, database_url: str
) -> None:
    """Otherwise tokens below it would refer to a missing token and outlive those above."""
    first, second, third, last = line_of(store, 4)
    meanwhile = Meanwhile(database, lambda: store.revoke(third, now=LATER, alone=True))
    with open_database(database_url, faults=meanwhile) as other:
        SqlUserStore(other, UlidSource()).revoke(second, now=LATER, alone=True)
        meanwhile.end()
    assert [(token.id, token.made_with) for token in store.tokens_of("ada")] == [(first, None), (last, first)]


@postgresql_only
def test_revoking_a_token_between_does_not_detach_tokens_from_a_stolen_one(
    store: SqlUserStore, database: Database, database_url: str
) -> None:
    stolen, between, last = line_of(store, 3)
    with open_database(database_url) as other, open_database(database_url) as watched:
        thief = SqlUserStore(other, UlidSource())
        meanwhile = Meanwhile(
            watched, lambda: thief.revoke(between, now=LATER, alone=True, asked_with=stolen)
        )

        def looked(connection: object, cursor: object, statement: str, *_: object) -> None:
            if "made_with" in statement:
                meanwhile()

        event.listen(database._backend._engine, "after_cursor_execute", looked)
        with pytest.raises(RequestRefused):
            store.revoke(stolen, now=LATER, alone=True, asked_with=last)
        meanwhile.end()
    assert [(token.id, token.made_with) for token in store.tokens_of("ada")] == [
        (stolen, None),
        (last, stolen),
    ]


def test_a_revoked_token_cannot_revoke_another_alone(
    store: SqlUserStore,
) -> None:
    """The issuer of that token is no longer known."""
    stolen, asked_with = line_of(store, 2)
    kept, _ = store.issue("ada", PROGRAM, "", now=NOW, made_with=stolen)
    store.revoke(asked_with, now=LATER)
    with pytest.raises(NotAuthenticated):
        store.revoke(stolen, now=LATER, alone=True, asked_with=asked_with)
    assert [token.id for token in store.tokens_of("ada")] == [stolen, kept.id]


def line_of(store: SqlUserStore, length: int) -> list[str]:
    """Tokens, each made with the one before."""
    store.add("ada", Role.ADMIN, now=NOW)
    made: list[str] = []
    for _ in range(length):
        token, _ = store.issue("ada", PROGRAM, "", now=NOW, made_with=made[-1] if made else None)
        made.append(token.id)
    return made


def test_tokens_issued_for_others_are_revoked_with_their_issuer(
    store: SqlUserStore, database: Database
) -> None:
    for name in ("ada", "eve"):
        store.add(name, Role.ADMIN, now=NOW)
    hers, _ = store.issue("eve", PROGRAM, "", now=NOW)
    store.issue("ada", PROGRAM, "", now=NOW, made_with=hers.id)
    own, _ = store.issue("ada", PROGRAM, "", now=NOW)
    store.remove("eve", now=LATER)
    assert store.tokens_of("ada") == [own]
    assert [event[0] for event in told(database)[-2:]] == ["access.revoked", "user.removed"]


def test_a_removed_user_is_gone_with_all_tokens(store: SqlUserStore, database: Database) -> None:
    store.add("ada", Role.ADMIN, now=NOW)
    bob = store.add("bob", Role.OPERATOR, now=NOW)
    _, secret = store.issue("bob", PROGRAM, "", now=NOW)
    store.remove("bob", now=LATER)
    assert [user.name for user in store.list()] == ["ada"]
    assert store.known_by(secret, PROGRAM, now=NOW) is None
    assert told(database)[-1] == ("user.removed", bob.id, {"name": "bob"})
    with database.read() as connection:
        assert connection.execute(select(tokens)).all() == []
    again = store.add("bob", Role.VIEWER, now=LATER)
    assert again.id != bob.id
    assert store.tokens_of("bob") == []


def test_a_role_holds_from_the_next_question_on(store: SqlUserStore, database: Database) -> None:
    store.add("ada", Role.ADMIN, now=NOW)
    bob = store.add("bob", Role.VIEWER, now=NOW)
    _, secret = store.issue("bob", PROGRAM, "", now=NOW)
    assert store.set_role("bob", Role.OPERATOR, now=LATER).role is Role.OPERATOR
    known = store.known_by(secret, PROGRAM, now=NOW)
    assert known is not None
    assert known[0].role is Role.OPERATOR
    assert told(database)[-1] == ("user.added", bob.id, {"name": "bob", "role": "operator"})
    store.set_role("bob", Role.OPERATOR, now=LATER)
    assert len(told(database)) == 4, "what was so already is no news"


def test_the_last_admin_stays_one(store: SqlUserStore) -> None:
    store.add("ada", Role.ADMIN, now=NOW)
    store.add("bob", Role.OPERATOR, now=NOW)
    for act in (
        lambda: store.remove("ada", now=NOW),
        lambda: store.set_role("ada", Role.OPERATOR, now=NOW),
    ):
        with pytest.raises(StillUsed):
            act()
    store.set_role("ada", Role.ADMIN, now=NOW)
    store.set_role("bob", Role.ADMIN, now=NOW)
    store.remove("ada", now=NOW)
    assert [(user.name, user.role) for user in store.list()] == [("bob", Role.ADMIN)]


def test_of_two_admins_who_take_each_others_role_one_stays(store: SqlUserStore) -> None:
    names = ["ada", "bob"]
    for name in names:
        store.add(name, Role.VIEWER, now=NOW)

    def demote(number: int) -> None:
        with suppress(StillUsed):
            store.set_role(names[number], Role.VIEWER, now=NOW)

    for _ in range(8):
        for name in names:
            store.set_role(name, Role.ADMIN, now=NOW)
        hammer(demote, threads=2)
        assert [user.role for user in store.list()].count(Role.ADMIN) == 1


def test_an_unknown_user_gets_no_token(store: SqlUserStore) -> None:
    for wrong in ("ada", "a\0", ""):
        for act in (
            lambda name=wrong: store.issue(name, PROGRAM, "", now=NOW),
            lambda name=wrong: store.tokens_of(name),
            lambda name=wrong: store.remove(name, now=NOW),
            lambda name=wrong: store.set_role(name, Role.ADMIN, now=NOW),
        ):
            with pytest.raises(UnknownUser):
                act()


def test_a_token_of_ones_own_must_be_long(store: SqlUserStore) -> None:
    ada = store.add("ada", Role.ADMIN, now=NOW)
    own = "x" * 43
    token, secret = store.issue("ada", PROGRAM, "given", now=NOW, secret=own)
    assert secret == own
    assert store.known_by(own, PROGRAM, now=NOW) == (ada, token)
    for weak in ("", "x" * 42, "x" * 50 + " y", "x" * 257, "é" * 50):
        with pytest.raises(InvalidName) as refused:
            store.issue("ada", PROGRAM, "given", now=NOW, secret=weak)
        assert not weak or weak not in str(refused.value)


def test_a_label_is_kept_whatever_it_is(store: SqlUserStore) -> None:
    store.add("ada", Role.ADMIN, now=NOW)
    token, _ = store.issue("ada", PROGRAM, "\ud800\0" + "l" * 500, now=NOW)
    assert store.tokens_of("ada") == [token]
    assert len(token.label) <= 200


def test_a_secret_in_a_label_is_masked_before_it_is_stored(store: SqlUserStore, database: Database) -> None:
    store.add("ada", Role.VIEWER, now=NOW)
    secret = "sk-live-0123456789abcdefghijklmnop"
    token, _ = store.issue("ada", TokenKind.PROGRAM, f"{'x' * 180} {secret}", now=NOW)
    assert "sk-live-0123" not in everything(database)
    assert [kept.label for kept in store.tokens_of("ada")] == [token.label]
