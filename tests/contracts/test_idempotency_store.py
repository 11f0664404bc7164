"""Answers to requests with a key: one process handles each request, and its answer is repeated."""

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


def test_repeats_an_answer_to_the_same_request_of_the_same_user(
    store: SqlIdempotencyStore,
) -> None:
    store.finish(begun(store), ANSWER)
    assert store.begin("ada", "k", "request", now=NOW + PATIENCE) == ANSWER
    with pytest.raises(KeyReused):
        store.begin("ada", "k", "another", now=NOW)
    begun(store, user="bob")
    begun(store, "other key")


def test_only_one_process_handles_a_running_request(store: SqlIdempotencyStore) -> None:
    begun(store)
    with pytest.raises(RequestUnderWay):
        store.begin("ada", "k", "request", now=NOW + PATIENCE - MOMENT)
    with pytest.raises(KeyReused):
        store.begin("ada", "k", "another", now=NOW)


def test_the_next_process_handles_a_released_request(store: SqlIdempotencyStore) -> None:
    store.release(begun(store))
    begun(store)


def test_a_silent_process_loses_its_request(store: SqlIdempotencyStore) -> None:
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


def test_one_of_many_concurrent_requests_is_handled(store: SqlIdempotencyStore) -> None:
    claims: list[IdempotencyClaim | StoredResponse] = []

    def come(number: int) -> None:
        with suppress(RequestUnderWay):
            claims.append(store.begin("ada", "k", "request", now=NOW + number * MOMENT))

    hammer(come)
    assert len(claims) == 1


def test_stores_no_secret_used_as_a_key(store: SqlIdempotencyStore, database: Database) -> None:
    claim = begun(store, "sk-live-0123456789abcdefghijklmnop")
    store.finish(claim, ANSWER)
    with database.read() as connection:
        kept = connection.execute(select(idempotency_keys)).mappings().one()
    assert "sk-live" not in repr(dict(kept))


@dataclass
class Maker:
    """Creates something for a request: `make` returns its id, `count` how many there are."""

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


def test_finds_the_result_of_a_request_without_an_answer(store: SqlIdempotencyStore, maker: Maker) -> None:
    dead = begun(store)
    made = maker.make(dead)
    heir = begun(store)
    assert (dead.made, heir.made) == (None, made)
    store.release(heir)
    assert begun(store).made == made
    with pytest.raises(KeyReused):
        store.begin("ada", "k", "another", now=NOW)


def test_a_process_without_the_claim_creates_nothing(
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


def test_creates_nothing_for_an_answered_or_released_request(
    store: SqlIdempotencyStore, maker: Maker
) -> None:
    answered, released = begun(store), begun(store, "other key")
    store.finish(answered, ANSWER)
    store.release(released)
    for over in (answered, released):
        with pytest.raises(RequestUnderWay):
            maker.make(over)
    assert maker.count() == 0


def test_a_result_is_forgotten_after_a_day(store: SqlIdempotencyStore, database: Database) -> None:
    maker = _plans(database)
    maker.make(begun(store))
    anew = store.begin("ada", "k", "another", now=NOW + KEPT + MOMENT)
    assert isinstance(anew, IdempotencyClaim)
    assert anew.made is None
    maker.make(anew)
    assert maker.count() == 2


def test_only_the_owner_of_the_claim_removes_the_result(
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


def test_one_of_many_takeovers_creates_the_result(store: SqlIdempotencyStore, database: Database) -> None:
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
