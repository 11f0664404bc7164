"""Answers to requests with a key: each is worked on by one at a time, and given again as it was."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select

from cleveragents.application.ports.answers import Claim, KeptAnswer
from cleveragents.errors import KeyReused, RequestUnderWay
from cleveragents.infrastructure.persistence.database import Database
from cleveragents.infrastructure.persistence.service_tables import idempotency_keys
from cleveragents.infrastructure.persistence.sql_answer_store import KEPT, PATIENCE, SqlAnswerStore
from tests.races.hammer import hammer

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)
ANSWER = KeptAnswer(201, "application/json", b'{"id": "\xff\0"}', "/api/x")


@pytest.fixture
def store(database: Database) -> SqlAnswerStore:
    return SqlAnswerStore(database)


def begun(store: SqlAnswerStore, key: str = "k", *, at: datetime = NOW, user: str = "ada") -> Claim:
    claim = store.begin(user, key, "request", now=at)
    assert isinstance(claim, Claim)
    return claim


def test_what_was_answered_is_answered_again_to_the_same_request_of_the_same_user(
    store: SqlAnswerStore,
) -> None:
    store.finish(begun(store), ANSWER)
    assert store.begin("ada", "k", "request", now=NOW + PATIENCE) == ANSWER
    with pytest.raises(KeyReused):
        store.begin("ada", "k", "another", now=NOW)
    begun(store, user="bob")
    begun(store, "other key")


def test_nobody_else_works_on_what_is_under_way(store: SqlAnswerStore) -> None:
    begun(store)
    with pytest.raises(RequestUnderWay):
        store.begin("ada", "k", "request", now=NOW + PATIENCE - MOMENT)
    with pytest.raises(KeyReused):
        store.begin("ada", "k", "another", now=NOW)


def test_what_was_released_is_worked_on_by_the_next(store: SqlAnswerStore) -> None:
    store.release(begun(store))
    begun(store)


def test_who_never_answers_is_taken_for_dead_and_comes_too_late(store: SqlAnswerStore) -> None:
    dead = begun(store)
    heir = begun(store, at=NOW + PATIENCE)
    store.finish(dead, KeptAnswer(500, "", b"too late"))
    store.release(dead)
    with pytest.raises(RequestUnderWay):
        store.begin("ada", "k", "request", now=NOW + PATIENCE)
    store.finish(heir, ANSWER)
    store.finish(heir, KeptAnswer(500, "", b"twice"))
    store.release(heir)
    assert store.begin("ada", "k", "request", now=NOW + PATIENCE) == ANSWER


def test_an_answer_is_forgotten_after_a_day(store: SqlAnswerStore) -> None:
    store.finish(begun(store), ANSWER)
    assert store.begin("ada", "k", "request", now=NOW + KEPT) == ANSWER
    begun(store, at=NOW + KEPT + MOMENT)


def test_of_many_that_come_at_once_one_works_on_it(store: SqlAnswerStore) -> None:
    claims: list[Claim | KeptAnswer] = []

    def come(number: int) -> None:
        with suppress(RequestUnderWay):
            claims.append(store.begin("ada", "k", "request", now=NOW + number * MOMENT))

    hammer(come)
    assert len(claims) == 1


def test_a_secret_that_somebody_took_for_a_key_is_not_kept(store: SqlAnswerStore, database: Database) -> None:
    claim = begun(store, "sk-live-0123456789abcdefghijklmnop")
    store.finish(claim, ANSWER)
    with database.read() as connection:
        kept = connection.execute(select(idempotency_keys)).mappings().one()
    assert "sk-live" not in repr(dict(kept))
