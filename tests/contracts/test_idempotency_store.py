"""Answers to requests with a key: each is worked on by one at a time, and given again as it was."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select

from cleveragents.access.model.user import Role, TokenKind
from cleveragents.access.store.sql_user_store import SqlUserStore
from cleveragents.core.errors import KeyReused, RequestUnderWay
from cleveragents.core.identifiers import UlidSource
from cleveragents.plans.model.correction import NewCorrection
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.ports.plans import PlanDraft
from cleveragents.plans.store.sql_decision_store import SqlCorrectionStore
from cleveragents.plans.store.sql_plan_store import SqlPlanStore
from cleveragents.storage.database import Database
from cleveragents.storage.idempotency import IdempotencyClaim, StoredResponse
from cleveragents.storage.service_tables import idempotency_keys
from cleveragents.storage.sql_idempotency_store import KEPT, PATIENCE, SqlIdempotencyStore
from cleveragents.storage.tables import outbox
from tests.races.hammer import hammer

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)
ANSWER = StoredResponse(201, "application/json", b'{"id": "\xff\0"}', "/api/x")


@pytest.fixture
def store(database: Database) -> SqlIdempotencyStore:
    return SqlIdempotencyStore(database)


def begun(
    store: SqlIdempotencyStore, key: str = "k", *, at: datetime = NOW, user: str = "ada"
) -> IdempotencyClaim:
    claim = store.begin(user, key, "request", now=at)
    assert isinstance(claim, IdempotencyClaim)
    return claim


def test_what_was_answered_is_answered_again_to_the_same_request_of_the_same_user(
    store: SqlIdempotencyStore,
) -> None:
    store.finish(begun(store), ANSWER)
    assert store.begin("ada", "k", "request", now=NOW + PATIENCE) == ANSWER
    with pytest.raises(KeyReused):
        store.begin("ada", "k", "another", now=NOW)
    begun(store, user="bob")
    begun(store, "other key")


def test_nobody_else_works_on_what_is_under_way(store: SqlIdempotencyStore) -> None:
    begun(store)
    with pytest.raises(RequestUnderWay):
        store.begin("ada", "k", "request", now=NOW + PATIENCE - MOMENT)
    with pytest.raises(KeyReused):
        store.begin("ada", "k", "another", now=NOW)


def test_what_was_released_is_worked_on_by_the_next(store: SqlIdempotencyStore) -> None:
    store.release(begun(store))
    begun(store)


def test_who_never_answers_is_taken_for_dead_and_comes_too_late(store: SqlIdempotencyStore) -> None:
    dead = begun(store)
    heir = begun(store, at=NOW + PATIENCE)
    store.finish(dead, StoredResponse(500, "", b"too late"))
    store.release(dead)
    with pytest.raises(RequestUnderWay):
        store.begin("ada", "k", "request", now=NOW + PATIENCE)
    store.finish(heir, ANSWER)
    store.finish(heir, StoredResponse(500, "", b"twice"))
    store.release(heir)
    assert store.begin("ada", "k", "request", now=NOW + PATIENCE) == ANSWER


def test_an_answer_is_forgotten_after_a_day(store: SqlIdempotencyStore) -> None:
    store.finish(begun(store), ANSWER)
    assert store.begin("ada", "k", "request", now=NOW + KEPT) == ANSWER
    begun(store, at=NOW + KEPT + MOMENT)


def test_of_many_that_come_at_once_one_works_on_it(store: SqlIdempotencyStore) -> None:
    claims: list[IdempotencyClaim | StoredResponse] = []

    def come(number: int) -> None:
        with suppress(RequestUnderWay):
            claims.append(store.begin("ada", "k", "request", now=NOW + number * MOMENT))

    hammer(come)
    assert len(claims) == 1


def test_a_secret_that_somebody_took_for_a_key_is_not_kept(
    store: SqlIdempotencyStore, database: Database
) -> None:
    claim = begun(store, "sk-live-0123456789abcdefghijklmnop")
    store.finish(claim, ANSWER)
    with database.read() as connection:
        kept = connection.execute(select(idempotency_keys)).mappings().one()
    assert "sk-live" not in repr(dict(kept))


@dataclass
class Maker:
    """What makes something for a request: `make` returns the id to find it by, `count` says how many there
    are."""

    make: Callable[[IdempotencyClaim], str]
    count: Callable[[], int]


def _plans(database: Database) -> Maker:
    plans = SqlPlanStore(database, UlidSource())
    new = PlanDraft("g", "a/b", "/r")
    return Maker(lambda claim: plans.create(new, now=NOW, claim=claim).id, lambda: len(plans.list()))


def _tokens(database: Database) -> Maker:
    users = SqlUserStore(database, UlidSource())
    users.add("ada", Role.VIEWER, now=NOW)
    return Maker(
        lambda claim: users.issue("ada", TokenKind.PROGRAM, "k", now=NOW, claim=claim)[0].id,
        lambda: len(users.tokens_of("ada")),
    )


def _corrections(database: Database) -> Maker:
    plans, corrections = SqlPlanStore(database, UlidSource()), SqlCorrectionStore(database, UlidSource())
    plan = plans.create(PlanDraft("g", "a/b", "/r"), now=NOW)
    made, way = NewCorrection(guidance="so"), [(Phase.STRATEGIZE, PlanState.QUEUED)]
    return Maker(
        lambda claim: corrections.add(plan, made, way, now=NOW, claim=claim)[1].id,
        lambda: len(corrections.of_plan(plan.id)),
    )


@pytest.fixture(params=[_plans, _tokens, _corrections])
def maker(request: pytest.FixtureRequest, database: Database) -> Maker:
    made: Maker = request.param(database)
    return made


def test_what_was_made_is_found_at_once_by_the_next_whatever_became_of_the_answer(
    store: SqlIdempotencyStore, maker: Maker
) -> None:
    dead = begun(store)
    made = maker.make(dead)
    heir = begun(store)
    assert (dead.made, heir.made) == (None, made)
    store.release(heir)
    assert begun(store).made == made
    with pytest.raises(KeyReused):
        store.begin("ada", "k", "another", now=NOW)


def test_who_was_taken_over_makes_nothing_any_more(
    store: SqlIdempotencyStore, maker: Maker, database: Database
) -> None:
    late = begun(store)
    heir = begun(store, at=NOW + PATIENCE)
    before = events(database)
    with pytest.raises(RequestUnderWay):
        maker.make(late)
    assert (maker.count(), events(database)) == (0, before)
    made = maker.make(heir)
    with pytest.raises(RequestUnderWay):
        maker.make(late)
    assert maker.count() == 1
    assert begun(store, at=NOW + PATIENCE).made == made


def test_nothing_is_made_for_what_was_answered_or_given_up(store: SqlIdempotencyStore, maker: Maker) -> None:
    answered, released = begun(store), begun(store, "other key")
    store.finish(answered, ANSWER)
    store.release(released)
    for over in (answered, released):
        with pytest.raises(RequestUnderWay):
            maker.make(over)
    assert maker.count() == 0


def test_what_was_made_is_forgotten_after_a_day(store: SqlIdempotencyStore, database: Database) -> None:
    maker = _plans(database)
    maker.make(begun(store))
    anew = store.begin("ada", "k", "another", now=NOW + KEPT + MOMENT)
    assert isinstance(anew, IdempotencyClaim)
    assert anew.made is None
    maker.make(anew)
    assert maker.count() == 2


def test_only_who_has_the_claim_takes_back_what_was_made(
    store: SqlIdempotencyStore, database: Database
) -> None:
    plans = SqlPlanStore(database, UlidSource())
    late = begun(store)
    plan = plans.create(PlanDraft("g", "a/b", "/r"), now=NOW, claim=late)
    heir = begun(store)
    with pytest.raises(RequestUnderWay):
        plans.delete(plan, now=NOW, claim=late)
    assert plans.list() == [plan]
    plans.delete(plan, now=NOW, claim=heir)
    with pytest.raises(RequestUnderWay):
        begun(store)
    store.release(heir)
    assert begun(store).made is None


def test_of_many_that_take_it_over_from_each_other_one_makes_it(
    store: SqlIdempotencyStore, database: Database
) -> None:
    maker = _plans(database)

    def come(number: int) -> None:
        with suppress(RequestUnderWay):
            claim = begun(store, at=NOW + number * PATIENCE)
            if claim.made is None:
                maker.make(claim)

    hammer(come)
    assert maker.count() == 1


def events(database: Database) -> int:
    with database.read() as connection:
        return len(connection.execute(select(outbox.c.number)).all())
