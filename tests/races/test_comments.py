"""A person settles a comment while the agent answers it, and two servers claim the lease of a webhook."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache

from sqlalchemy import select, update

from cleveragents.core.errors import PlanError
from cleveragents.plans.comments import ensure_open
from cleveragents.plans.model.comment import Comment, CommentState, NewAnswer, NewComment
from cleveragents.plans.ports.plans import PlanDraft
from cleveragents.plans.store.sql_comment_store import SqlCommentStore
from cleveragents.plans.store.sql_plan_store import SqlPlanStore
from cleveragents.storage.columns import microseconds
from cleveragents.storage.service_tables import deliveries
from cleveragents.storage.sql_delivery_store import LEASE, SqlDeliveryStore
from cleveragents.testing.clock import CountingIdentifiers
from tests.races.explorers import Scenario, assert_caught, assert_holds
from tests.races.one_connection import content_of, in_memory_database

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SETTLED: frozenset[Hashable] = frozenset({("declined",), ("resolved", "declined")})


class LookThenAnswerStore(SqlCommentStore):
    """Looks at the comment in one transaction, and answers in another."""

    def answer(
        self,
        plan_id: str,
        number: int,
        made: NewAnswer,
        *,
        now: datetime,
        ensure: Callable[[Comment], None] = lambda comment: None,
    ) -> Comment:
        ensure(self.of_plan(plan_id)[number - 1])
        return super().answer(plan_id, number, made, now=now)


@dataclass
class Discussion:
    """An open comment."""

    store: type[SqlCommentStore]

    def __post_init__(self) -> None:
        content, self.plan_id = _beginning()
        self.database = in_memory_database(content)
        self.comments = self.store(self.database, CountingIdentifiers("later"))

    def decline(self) -> None:
        """A person declines the comment."""
        self.comments.answer(self.plan_id, 1, NewAnswer(CommentState.DECLINED, "ada"), now=NOW)

    def resolve(self) -> None:
        """The agent resolves the comment, unless a person has settled it."""
        made = NewAnswer(CommentState.RESOLVED, "builtin/solo", "done", by_actor=True)
        try:
            self.comments.answer(self.plan_id, 1, made, now=NOW, ensure=ensure_open)
        except PlanError:
            return

    def outcome(self) -> Hashable:
        (comment,) = self.comments.of_plan(self.plan_id)
        self.database.close()
        return tuple(one.made.state.value for one in comment.answers)


@cache
def _beginning() -> tuple[bytes, str]:
    with in_memory_database() as database:
        identifiers = CountingIdentifiers("first")
        plan = SqlPlanStore(database, identifiers).create(PlanDraft("g", "a/b", "/r"), now=NOW)
        SqlCommentStore(database, identifiers).add(plan.id, [NewComment("a digit", "ada")], now=NOW)
        return content_of(database), plan.id


def discussion(store: type[SqlCommentStore]) -> Scenario[Discussion]:
    return Scenario(
        name="a person and the agent settle a comment",
        setup=lambda: Discussion(store),
        workers=[Discussion.decline, Discussion.resolve],
        outcome=Discussion.outcome,
        allowed=lambda outcome: outcome in SETTLED,
        reachable=SETTLED,
    )


def test_the_agent_never_overrides_a_person() -> None:
    assert_holds(discussion(SqlCommentStore), effort=40)


def test_an_answer_that_looks_first_is_caught() -> None:
    assert_caught(discussion(LookThenAnswerStore), effort=80)


class LookThenClaimStore(SqlDeliveryStore):
    """Looks whether the lease is free in one transaction, and takes it in another."""

    def claim(self, receiver: str, owner: str, *, start: int, now: datetime) -> int | None:
        with self._database.read() as connection:
            until = connection.execute(select(deliveries.c.leased_until)).scalar_one()
        if until >= microseconds(now):
            return None
        mine = update(deliveries).values(owner=owner, leased_until=microseconds(now + LEASE))
        self._database.write(lambda connection: connection.execute(mine))
        return start


@dataclass
class Receiver:
    """A webhook whose lease has run out."""

    store: type[SqlDeliveryStore]
    claimed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.database = in_memory_database(_expired())
        self.deliveries = self.store(self.database)

    def claim(self, owner: str) -> None:
        if self.deliveries.claim("hook", owner, start=0, now=NOW) is not None:
            self.claimed.append(owner)

    def outcome(self) -> Hashable:
        self.database.close()
        return tuple(self.claimed)


@cache
def _expired() -> bytes:
    with in_memory_database() as database:
        SqlDeliveryStore(database).claim("hook", "gone", start=0, now=NOW - 2 * LEASE)
        return content_of(database)


def lease(store: type[SqlDeliveryStore]) -> Scenario[Receiver]:
    return Scenario(
        name="two servers claim a lease",
        setup=lambda: Receiver(store),
        workers=[lambda receiver: receiver.claim("a"), lambda receiver: receiver.claim("b")],
        outcome=Receiver.outcome,
        allowed=lambda outcome: len(outcome) == 1,
        reachable=frozenset({("a",), ("b",)}),
    )


def test_one_of_two_servers_gets_the_lease() -> None:
    assert_holds(lease(SqlDeliveryStore), effort=40)


def test_a_claim_that_looks_first_is_caught() -> None:
    assert_caught(lease(LookThenClaimStore), effort=80)
