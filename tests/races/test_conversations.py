"""One turn at a time, and one plan for one call, whichever processes run a conversation concurrently."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache

from sqlalchemy import Connection, select

from cleveragents.conversations.model import (
    Conversation,
    NewConversation,
    NewTurn,
    Observed,
    PlanLink,
    TurnState,
)
from cleveragents.conversations.store import SqlConversationStore
from cleveragents.core.errors import ConversationBusy, Remedy, RequestRefused, RequestUnderWay, StaleTurn
from cleveragents.core.identifiers import TurnFence, WorkerIdentity
from cleveragents.models.model.budget import BudgetLimits, Spend, lowered_limit
from cleveragents.models.store.sql_budget_store import SqlBudgetStore, limits_of, raise_budget
from cleveragents.plans.ports.plans import PlanDraft
from cleveragents.plans.store.sql_plan_store import SqlPlanStore
from cleveragents.storage.conversation_tables import conversation_turns, conversations
from cleveragents.storage.database import Database
from cleveragents.storage.idempotency import IdempotencyClaim
from cleveragents.storage.tables import plans
from cleveragents.testing.clock import CountingIdentifiers
from tests.races.explorers import Scenario, assert_caught, assert_holds
from tests.races.one_connection import content_of, in_memory_database

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ANN, BOB = WorkerIdentity("ann", "here", 1, 1), WorkerIdentity("bob", "here", 2, 2)


class LookThenBeginStore(SqlConversationStore):
    """Looks for a running turn in one transaction, and begins a turn in another."""

    def begin(
        self,
        conversation_id: str,
        new: NewTurn,
        owner: WorkerIdentity,
        *,
        now: datetime,
        abandoned: Observed | None = None,
        claim: IdempotencyClaim | None = None,
    ) -> Conversation:
        seen = self.get(conversation_id)
        if seen.owner is not None:
            raise ConversationBusy(seen.id, seen.turns)
        return super().begin(conversation_id, new, owner, now=now, claim=claim)

    def _taken(
        self,
        connection: Connection,
        conversation_id: str,
        owner: WorkerIdentity,
        abandoned: Observed | None,
        now: datetime,
    ) -> Conversation:
        lease = connection.execute(select(conversations.c.fence, conversations.c.beat)).one()
        return super()._taken(connection, conversation_id, owner, Observed(*lease), now)


class UnfencedStore(SqlConversationStore):
    """Stores the end of a turn without a look at the fence."""

    def end(
        self,
        fence: TurnFence,
        state: TurnState,
        *,
        answer: str = "",
        error: str | None = None,
        remedies: Sequence[Remedy] = (),
        now: datetime,
    ) -> None:
        super().end(
            TurnFence(fence.conversation_id, fence.turn, self.get(fence.conversation_id).fence),
            state,
            answer=answer,
            error=error,
            remedies=remedies,
            now=now,
        )


class UnclaimedStore(SqlConversationStore):
    """Looks whether the call was made, and claims nothing."""

    def claim(self, fence: TurnFence, step: str, link: PlanLink, *, now: datetime) -> IdempotencyClaim:
        with self._database.read() as connection:
            made = connection.execute(select(plans.c.id)).scalar()
        return IdempotencyClaim("nobody", step, 0, made)


class LookThenRaiseStore(SqlConversationStore):
    """Looks at the limits in one transaction, and raises them in another."""

    def raise_limits(self, conversation_id: str, limits: BudgetLimits, *, now: datetime) -> Conversation:
        with self._database.read() as connection:
            present = limits_of(connection, conversation_id)
        if lowered_limit(present, limits) is not None:
            raise RequestRefused("lower", "limits")
        self._database.write(
            lambda connection: raise_budget(connection, self._identifiers, conversation_id, limits, now)
        )
        return self.get(conversation_id)


@cache
def _beginning() -> tuple[bytes, str]:
    with in_memory_database() as database:
        store = SqlConversationStore(database, CountingIdentifiers("old"))
        made = store.create(NewConversation("default", "/r"), now=NOW)
        return content_of(database), made.id


@dataclass
class Shared:
    """A conversation, and what its processes were told."""

    store: type[SqlConversationStore]
    told: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        content, self.id = _beginning()
        self.database: Database = in_memory_database(content)
        identifiers = CountingIdentifiers("new")
        self.talks = self.store(self.database, identifiers)
        self.plans = SqlPlanStore(self.database, identifiers)

    def send(self, owner: WorkerIdentity) -> None:
        try:
            self.talks.begin(self.id, NewTurn("hello"), owner, now=NOW)
            self.told[owner.id] = "began"
        except ConversationBusy:
            self.told[owner.id] = "busy"

    def states(self) -> tuple[str, ...]:
        query = select(conversation_turns.c.state).order_by(conversation_turns.c.number)
        with self.database.read() as connection:
            return tuple(connection.execute(query).scalars())

    def close(self) -> None:
        self.database.close()


def sent_twice(store: type[SqlConversationStore]) -> Scenario[Shared]:
    def outcome(shared: Shared) -> Hashable:
        told = tuple(sorted(shared.told.values())), shared.states()
        shared.close()
        return told

    allowed: frozenset[Hashable] = frozenset({(("began", "busy"), ("running",))})
    return Scenario(
        name="two senders",
        setup=lambda: Shared(store),
        workers=[lambda shared: shared.send(ANN), lambda shared: shared.send(BOB)],
        outcome=outcome,
        allowed=lambda found: found in allowed,
        reachable=allowed,
    )


def test_of_two_senders_one_gets_the_turn() -> None:
    assert_holds(sent_twice(SqlConversationStore), effort=40)


def test_a_store_that_looks_before_it_begins_is_caught() -> None:
    assert_caught(sent_twice(LookThenBeginStore), effort=120)


@dataclass
class Abandoned(Shared):
    """A conversation whose owner seems dead, and ends its turn at the last moment."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.held = self.talks.begin(self.id, NewTurn("hello"), ANN, now=NOW)

    def end(self) -> None:
        try:
            self.talks.end(self.held.held, TurnState.ANSWERED, answer="hi", now=NOW)
            self.told["end"] = "stored"
        except StaleTurn:
            self.told["end"] = "refused"

    def take_over(self) -> None:
        self.talks.begin(self.id, NewTurn("again"), BOB, now=NOW, abandoned=self.held.observed)


def taken_over(store: type[SqlConversationStore]) -> Scenario[Abandoned]:
    def outcome(shared: Abandoned) -> Hashable:
        with shared.database.read() as connection:
            owner = _owner(connection)
        told = shared.told["end"], shared.states(), owner
        shared.close()
        return told

    allowed: frozenset[Hashable] = frozenset(
        {
            ("stored", ("answered", "running"), "bob"),
            ("refused", ("interrupted", "running"), "bob"),
        }
    )
    return Scenario(
        name="a late end and a take-over",
        setup=lambda: Abandoned(store),
        workers=[Abandoned.end, Abandoned.take_over],
        outcome=outcome,
        allowed=lambda found: found in allowed,
        reachable=allowed,
    )


def _owner(connection: Connection) -> str | None:
    return connection.execute(select(conversations.c.owner_id)).scalar()


def test_a_late_owner_changes_nothing_after_a_take_over() -> None:
    assert_holds(taken_over(SqlConversationStore), effort=40)


def test_a_store_without_a_fence_is_caught() -> None:
    assert_caught(taken_over(UnfencedStore), effort=120)


@dataclass
class Starting(Abandoned):
    """Two owners of one turn, one after the other, that both come to the call that starts a plan."""

    def start(self, held: Conversation) -> None:
        link = PlanLink("", "start_plan", held.turns, "digest")
        try:
            claim = self.talks.claim(held.held, "1.main.1", link, now=NOW)
            if claim.made is None:
                self.plans.create(PlanDraft("g", "a/b", "/r"), now=NOW, claim=self._real(claim))
        except (StaleTurn, RequestUnderWay):
            return

    def _real(self, claim: IdempotencyClaim) -> IdempotencyClaim | None:
        return None if claim.user_id == "nobody" else claim

    def start_late(self) -> None:
        self.start(self.held)

    def start_again(self) -> None:
        self.start(self.talks.take(self.id, BOB, now=NOW, abandoned=self.held.observed))


def started_twice(store: type[SqlConversationStore]) -> Scenario[Starting]:
    def outcome(shared: Starting) -> Hashable:
        with shared.database.read() as connection:
            count = len(connection.execute(select(plans.c.id)).all())
        shared.close()
        return count

    return Scenario(
        name="two owners that start a plan",
        setup=lambda: Starting(store),
        workers=[Starting.start_late, Starting.start_again],
        outcome=outcome,
        allowed=lambda found: found == 1,
        reachable=frozenset({1}),
    )


def test_a_call_of_two_owners_starts_one_plan() -> None:
    assert_holds(started_twice(SqlConversationStore), effort=40)


def test_a_store_that_claims_nothing_is_caught() -> None:
    assert_caught(started_twice(UnclaimedStore), effort=120)


class Raising(Shared):
    """A conversation whose budget two people raise while a turn spends of it."""

    def raise_to(self, steps: int) -> None:
        try:
            self.talks.raise_limits(self.id, BudgetLimits(steps=steps), now=NOW)
        except RequestRefused:
            self.told["lower"] = "refused"

    def spend(self) -> None:
        budgets = SqlBudgetStore(self.database, CountingIdentifiers("call"))
        worst = Spend(0, 6, 1)
        call = budgets.reserve(self.id, self.id, worst, key="k", actor="a", node="n", model="m", now=NOW)
        budgets.settle(call, Spend(0, 5, 1), None, now=NOW)


def raised(
    store: type[SqlConversationStore], other: Callable[[Raising], None], found: Hashable
) -> Scenario[Raising]:
    def outcome(shared: Raising) -> Hashable:
        view = SqlBudgetStore(shared.database, CountingIdentifiers("look")).view(shared.id)
        shared.close()
        return view.limits.steps, view.spent.tokens, view.spent.steps, view.reserved.steps

    allowed = frozenset({found})
    return Scenario(
        name="a raise, and a raise or a call",
        setup=lambda: Raising(store),
        workers=[lambda shared: shared.raise_to(9), other],
        outcome=outcome,
        allowed=lambda found: found in allowed,
        reachable=allowed,
    )


def raised_twice(store: type[SqlConversationStore]) -> Scenario[Raising]:
    return raised(store, lambda shared: shared.raise_to(5), (9, 0, 0, 0))


def test_the_higher_of_two_raised_limits_stays() -> None:
    assert_holds(raised_twice(SqlConversationStore), effort=40)


def test_a_raise_loses_no_spending_and_a_call_no_raise() -> None:
    assert_holds(raised(SqlConversationStore, Raising.spend, (9, 5, 1, 0)), effort=40)


def test_a_store_that_looks_before_it_raises_is_caught() -> None:
    assert_caught(raised_twice(LookThenRaiseStore), effort=120)
