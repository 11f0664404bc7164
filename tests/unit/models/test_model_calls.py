"""A plan's model calls: reserved, made, settled; the fallback; what a cancelled call leaves behind."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cleveragents.core.clock import SystemClock
from cleveragents.core.errors import (
    BudgetExhausted,
    CleverAgentsError,
    ModelRefused,
    ModelUnavailable,
    PriceUnknown,
    UnknownModel,
    UsageLimited,
)
from cleveragents.core.identifiers import UlidSource
from cleveragents.models.calls import CallName, ModelCalls, OpenCallsOfTrees
from cleveragents.models.model.attachment import Attachment
from cleveragents.models.model.budget import BudgetLimits, Price, Spend
from cleveragents.models.model.conversation import Message, MessageRole, Usage
from cleveragents.models.ports import BudgetState, ModelFacts, ModelReply, ModelRequest, Reservation
from cleveragents.models.store.sql_budget_store import SqlBudgetStore
from cleveragents.plans.actors.actor_tools import PlanActorHost
from cleveragents.storage.database import open_database
from cleveragents.testing.clock import FakeClock
from tests.attached_files import PNG
from tests.ready_database import ready_database

CHEAP = Price(1, 10)
TOOK = Usage(80, 20)
NAME = CallName("think.1", "a/b", "think")
QUESTION = (Message(MessageRole.USER, "?"),)


@dataclass
class FakeModel:
    """A model that reads 100 tokens, says `words`, and then behaves as configured."""

    name: str
    price: Price | None = CHEAP
    usage: Usage | None = TOOK
    words: tuple[str, ...] = ("yes",)
    error: Exception | None = None
    hangs: asyncio.Event | None = None
    go: asyncio.Event | None = None
    asked: list[ModelRequest] = field(default_factory=list)
    image_tokens: int | None = None

    @property
    def facts(self) -> ModelFacts:
        return ModelFacts(self.name, 8_000, 4_000, self.price, image_tokens=self.image_tokens)

    def count_tokens(self, request: ModelRequest) -> int:
        return 100

    async def reply(self, request: ModelRequest, on_token: Callable[[str], None] | None = None) -> ModelReply:
        self.asked.append(request)
        for word in self.words:
            if on_token is not None:
                on_token(word)
        if self.hangs is not None:
            self.hangs.set()
            await (self.go or asyncio.Event()).wait()
        if self.error is not None:
            raise self.error
        return ModelReply(Message(MessageRole.ASSISTANT, "".join(self.words)), self.name, self.usage)


@dataclass
class FakeModels:
    """The models of a test; `opened` holds the thread that first asked for each."""

    models: dict[str, FakeModel]
    opened: dict[str, str] = field(default_factory=dict)

    def get(self, name: str) -> FakeModel:
        if name not in self.models:
            raise UnknownModel(name, "there is none")
        self.opened.setdefault(name, threading.current_thread().name)
        return self.models[name]

    def get_nowait(self, name: str) -> FakeModel | None:
        return self.models[name] if name in self.opened else None

    def facts(self, name: str) -> ModelFacts:
        return self.get(name).facts

    def known(self) -> list[ModelFacts]:
        return [model.facts for model in self.models.values()]


@pytest.fixture
def budgets(tmp_path: Path) -> Iterator[SqlBudgetStore]:
    with open_database(ready_database(tmp_path / "store.db")) as database:
        yield SqlBudgetStore(database, UlidSource())


def calls(budgets: SqlBudgetStore, *models: FakeModel, fallback: str | None = None) -> ModelCalls:
    return ModelCalls(
        models=FakeModels({model.name: model for model in models}),
        budgets=budgets,
        clock=SystemClock(),
        plan_id="plan",
        root_id="plan",
        fallback=fallback,
    )


def ask(
    of: ModelCalls, model: str = "m/a", tokens: int = 1_000, heard: list[str] | None = None
) -> ModelReply:
    request = ModelRequest(messages=QUESTION, max_output_tokens=tokens)
    listener = None if heard is None else heard.append
    return asyncio.run(of.reply(model, request, NAME, listener))


def limit(budgets: SqlBudgetStore, limits: BudgetLimits) -> None:
    budgets.open("plan", limits, now=SystemClock().now())


def test_a_call_counts_its_actual_usage(budgets: SqlBudgetStore) -> None:
    heard: list[str] = []
    reply = ask(calls(budgets, FakeModel("m/a", words=("y", "es"))), heard=heard)
    view = budgets.view("plan")
    assert (reply.message.text, heard) == ("yes", ["y", "es"])
    assert (view.spent, view.reserved) == (Spend(80 + 200, 100, 1), Spend())
    [call] = budgets.calls_of("plan")
    assert (call.actor, call.node, call.model, call.usage) == ("a/b", "think", "m/a", Usage(80, 20))


def test_unreported_usage_costs_the_worst_case(budgets: SqlBudgetStore) -> None:
    ask(calls(budgets, FakeModel("m/a", usage=None)))
    assert budgets.view("plan").spent == Spend(100 + 10_000, 1_100, 1)


def test_an_unknown_price_is_not_zero(budgets: SqlBudgetStore) -> None:
    limit(budgets, BudgetLimits(picodollars=10**9))
    model = FakeModel("m/a", price=None)
    with pytest.raises(PriceUnknown):
        ask(calls(budgets, model))
    assert not model.asked


def test_a_call_that_might_exceed_the_limit_is_not_made(budgets: SqlBudgetStore) -> None:
    limit(budgets, BudgetLimits(tokens=500))
    model = FakeModel("m/a")
    with pytest.raises(BudgetExhausted):
        ask(calls(budgets, model))
    assert not model.asked


def test_no_model_is_called_after_the_plans_time_limit(budgets: SqlBudgetStore) -> None:
    left = [1.0, 0.0]
    model = FakeModel("m/a")
    of = replace(calls(budgets, model), seconds_left=lambda: left.pop(0))
    ask(of)
    with pytest.raises(BudgetExhausted, match="the time limit is reached"):
        ask(of)
    assert (len(model.asked), budgets.view("plan").spent.steps) == (1, 1)


@pytest.mark.parametrize("limits", [BudgetLimits(tokens=800), BudgetLimits(picodollars=100 + 7_000)])
def test_a_shorter_answer_is_requested_for_a_small_budget(
    budgets: SqlBudgetStore, limits: BudgetLimits
) -> None:
    limit(budgets, limits)
    model = FakeModel("m/a")
    ask(calls(budgets, model))
    assert model.asked[0].max_output_tokens == 700


def test_a_model_is_opened_off_the_loop_and_known_at_once_from_then_on(budgets: SqlBudgetStore) -> None:
    budgets.open("plan", BudgetLimits(), now=SystemClock().now())
    of = calls(budgets, FakeModel("m/a"), FakeModel("m/b"), fallback="m/b")
    host = PlanActorHost("part", "m/a", of, tools=None)
    assert host.models_nowait(None) is None
    ask(of)
    assert of.models.opened["m/a"] != threading.current_thread().name
    assert host.models_nowait(None) is None, "who stands in may have to answer, too"
    of.models.get("m/b")
    assert host.models_nowait(None) == host.models(None)
    assert [facts.name for facts in host.models_nowait("m/b") or ()] == ["m/b"]


def test_no_attachment_goes_to_a_fallback_that_does_not_take_it(budgets: SqlBudgetStore) -> None:
    dead = FakeModel("m/a", words=(), error=ModelUnavailable("m/a", "down"), image_tokens=9)
    blind, seeing = FakeModel("m/b"), FakeModel("m/c", image_tokens=9)
    files = (Attachment.of("a.png", PNG),)
    request = ModelRequest(messages=QUESTION, max_output_tokens=1, attachments=files)
    with pytest.raises(ModelUnavailable, match="m/a"):
        asyncio.run(calls(budgets, dead, blind, fallback="m/b").reply("m/a", request, NAME))
    assert blind.asked == []
    reply = asyncio.run(calls(budgets, dead, seeing, fallback="m/c").reply("m/a", request, NAME))
    assert (reply.model, seeing.asked[0].attachments) == ("m/c", files)


def test_the_fallback_answers_where_the_first_does_not(budgets: SqlBudgetStore) -> None:
    dead = FakeModel("m/a", words=(), error=ModelUnavailable("m/a", "busy"))
    reply = ask(calls(budgets, dead, FakeModel("m/b"), fallback="m/b"))
    assert reply.model == "m/b"
    assert [call.model for call in budgets.calls_of("plan")] == ["m/a", "m/b"]
    assert budgets.view("plan").spent == Spend(80 + 200, 100, 2)


DOWN = ModelUnavailable("m", "down")
LATER, SOONER, UNKNOWN = (UsageLimited("m", "quota", seconds) for seconds in (200.0, 100.0, None))


@pytest.mark.parametrize(
    ("first", "last", "raised"),
    [
        (DOWN, SOONER, DOWN),
        (SOONER, DOWN, SOONER),
        (LATER, SOONER, SOONER),
        (SOONER, LATER, SOONER),
        (UNKNOWN, LATER, LATER),
    ],
)
def test_a_plan_waits_only_for_a_limit_that_decides(
    budgets: SqlBudgetStore, first: ModelUnavailable, last: ModelUnavailable, raised: ModelUnavailable
) -> None:
    """A short outage of the model ends before the limit of the fallback resets."""
    models = [FakeModel("m/a", words=(), error=first), FakeModel("m/b", words=(), error=last)]
    with pytest.raises(ModelUnavailable) as caught:
        ask(calls(budgets, *models, fallback="m/b"))
    assert caught.value is raised


def test_an_answer_never_mixes_two_models(budgets: SqlBudgetStore) -> None:
    broken = FakeModel("m/a", words=("half",), error=ModelUnavailable("m/a", "cut off"))
    second = FakeModel("m/b")
    with pytest.raises(ModelUnavailable):
        ask(calls(budgets, broken, second, fallback="m/b"))
    assert not second.asked
    assert budgets.view("plan").spent.tokens == 1_100


@pytest.mark.parametrize("error", [ModelRefused("m/a", "no key"), ModelUnavailable("m/a", "busy")])
def test_a_call_without_an_answer_costs_no_tokens(budgets: SqlBudgetStore, error: CleverAgentsError) -> None:
    with pytest.raises(type(error)):
        ask(calls(budgets, FakeModel("m/a", words=(), error=error)))
    view = budgets.view("plan")
    assert (view.spent, view.reserved) == (Spend(0, 0, 1), Spend())


def test_a_cancelled_call_counts_at_its_worst_case_and_reserves_nothing(budgets: SqlBudgetStore) -> None:
    async def cancelled() -> None:
        model = FakeModel("m/a", hangs=asyncio.Event())
        assert model.hangs is not None
        request = ModelRequest(messages=QUESTION, max_output_tokens=1_000)
        task = asyncio.create_task(calls(budgets, model).reply("m/a", request, NAME))
        await model.hangs.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    view = budgets.view("plan")
    assert (view.spent.tokens, view.reserved) == (1_100, Spend())


def test_a_call_that_is_cancelled_while_it_is_reserved_leaves_nothing_reserved(
    budgets: SqlBudgetStore,
) -> None:
    """The database is busy, so the cancel comes first and the reservation afterwards."""
    waiting, go = threading.Event(), threading.Event()

    class Slow(SqlBudgetStore):
        def reserve(self, *where: Any, **call: Any) -> Reservation:
            waiting.set()
            assert go.wait(30)
            return super().reserve(*where, **call)

    model = FakeModel("m/a")
    of = replace(calls(budgets, model), budgets=Slow(budgets._database, UlidSource()))

    async def cancelled() -> None:
        request = ModelRequest(messages=QUESTION, max_output_tokens=1_000)
        task = asyncio.create_task(of.reply("m/a", request, NAME))
        assert await asyncio.to_thread(waiting.wait, 30)
        task.cancel()
        asyncio.get_running_loop().call_soon(go.set)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    view = budgets.view("plan")
    assert (view.spent, view.reserved) == (Spend(), Spend())
    assert [call.state for call in budgets.calls_of("plan")] == ["released"]
    assert not model.asked


# ── Usage of a failed call ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("error", "tokens"),
    [
        (ModelUnavailable("m/a", "no word in time", charged=True), 1_100),
        (ModelRefused("m/a", "a filter stopped it", charged=True, took=(80, 20, 0)), 100),
        (ModelUnavailable("m/a", "it broke off", charged=True, took=(90, 30, 10)), 120),
    ],
)
def test_a_failure_that_the_provider_may_charge_for_is_counted(
    budgets: SqlBudgetStore, error: CleverAgentsError, tokens: int
) -> None:
    with pytest.raises(type(error)):
        ask(calls(budgets, FakeModel("m/a", words=(), error=error)))
    view = budgets.view("plan")
    assert (view.spent.tokens, view.reserved) == (tokens, Spend())


def test_every_chargeable_attempt_is_reserved_and_counted(budgets: SqlBudgetStore) -> None:
    limit(budgets, BudgetLimits(tokens=2_500))
    paused: list[float] = []

    async def pause(seconds: float) -> None:
        paused.append(seconds)

    silent = FakeModel("m/a", words=(), error=ModelUnavailable("m/a", "no word", charged=True))
    with pytest.raises(BudgetExhausted):
        ask(replace(calls(budgets, silent), retries=5, sleep=pause))
    assert len(silent.asked) == 2  # the third would not have fitted, not even a shorter one
    assert (budgets.view("plan").spent.tokens, paused) == (2_200, [0.5, 1.0])


def test_nothing_is_tried_again_once_an_answer_would_be_late(budgets: SqlBudgetStore) -> None:
    silent = FakeModel("m/a", words=(), error=ModelUnavailable("m/a", "no word in time", charged=True))
    with pytest.raises(ModelUnavailable):
        ask(replace(calls(budgets, silent), retries=5, patience_seconds=0.1))
    assert len(silent.asked) == 1


def test_free_failures_are_retried_by_the_model(budgets: SqlBudgetStore) -> None:
    busy = FakeModel("m/a", words=(), error=ModelUnavailable("m/a", "busy"))
    half = FakeModel("m/b", words=("half",), error=ModelUnavailable("m/b", "cut off", charged=True))
    for model in (busy, half):
        with pytest.raises(ModelUnavailable):
            ask(replace(calls(budgets, model), retries=3), model.name)
        assert len(model.asked) == 1


def test_money_is_unknown_where_no_price_is_and_nothing_where_it_is_free(budgets: SqlBudgetStore) -> None:
    ask(calls(budgets, FakeModel("m/a", price=None)))
    ask(calls(budgets, FakeModel("m/b", price=Price(0, 0))), "m/b")
    assert [call.picodollars for call in budgets.calls_of("plan")] == [None, 0]


# ── Budget that running calls may return ──────────────────────────────────────────────────────────


class Refusing(SqlBudgetStore):
    """A store that signals when a reservation was refused."""

    def __init__(self, store: SqlBudgetStore) -> None:
        super().__init__(store._database, UlidSource())
        self.refused = threading.Event()

    def reserve(self, *where: Any, **call: Any) -> Reservation:
        try:
            return super().reserve(*where, **call)
        except BudgetExhausted:
            self.refused.set()
            raise


async def two_at_once(of: ModelCalls, slow: FakeModel, store: Refusing) -> asyncio.Task[ModelReply]:
    """Run two calls, of which the first is running and leaves no room for the second. The test ends or
    cancels the first.
    """
    request = ModelRequest(messages=QUESTION, max_output_tokens=1_000)
    first = asyncio.create_task(of.reply("m/slow", request, NAME), name="first")
    assert slow.hangs is not None
    await slow.hangs.wait()
    second = asyncio.create_task(of.reply("m/a", request, CallName("think.2", "a/b", "other")))
    assert await asyncio.to_thread(store.refused.wait, 30)
    first.add_done_callback(lambda done: done.cancelled() or done.exception())
    return second


def slow_and_quick(budgets: SqlBudgetStore) -> tuple[ModelCalls, FakeModel, FakeModel, Refusing]:
    limit(budgets, BudgetLimits(tokens=1_900))
    store = Refusing(budgets)
    slow = FakeModel("m/slow", hangs=asyncio.Event(), go=asyncio.Event())
    quick = FakeModel("m/a")
    return replace(calls(budgets, slow, quick), budgets=store), slow, quick, store


def test_a_call_without_room_waits_for_running_calls_and_is_made_in_full(budgets: SqlBudgetStore) -> None:
    async def both() -> FakeModel:
        of, slow, quick, store = slow_and_quick(budgets)
        second = await two_at_once(of, slow, store)
        assert slow.go is not None
        slow.go.set()
        await asyncio.wait_for(second, 30)
        return quick

    quick = asyncio.run(both())
    assert [request.max_output_tokens for request in quick.asked] == [1_000]  # not shortened for lack of room
    assert [call.state for call in budgets.calls_of("plan")] == ["settled", "settled"]
    assert budgets.view("plan").spent.tokens == 200


class Meeting(SqlBudgetStore):
    """The first two readers get the same value."""

    def __init__(self, store: SqlBudgetStore) -> None:
        super().__init__(store._database, UlidSource())
        self._both = threading.Barrier(2, timeout=30)
        self._looks = itertools.count()

    def view(self, root_id: str) -> BudgetState:
        seen = super().view(root_id)
        if next(self._looks) < 2:
            self._both.wait()
        return seen


def test_a_call_without_room_waits_for_the_call_that_has_the_rest(budgets: SqlBudgetStore) -> None:
    """Two calls find no running call, and room for one shorter answer. If the other gave up, the run would
    end.
    """
    limit(budgets, BudgetLimits(tokens=1_000))
    request = ModelRequest(messages=QUESTION, max_output_tokens=1_000)

    async def both() -> FakeModel:
        model = FakeModel("m/a", hangs=asyncio.Event(), go=asyncio.Event())
        of = replace(calls(budgets, model), budgets=Meeting(budgets))
        names = (CallName(f"think.{number}", "a/b", "think") for number in (1, 2))
        tasks = [asyncio.create_task(of.reply("m/a", request, name)) for name in names]
        assert model.hangs is not None
        assert model.go is not None
        await asyncio.wait_for(model.hangs.wait(), 30)
        model.go.set()
        await asyncio.wait_for(asyncio.gather(*tasks), 30)
        return model

    model = asyncio.run(both())
    assert [one.max_output_tokens for one in model.asked] == [900, 800]
    assert budgets.view("plan").spent.tokens == 200


def test_a_call_that_is_cancelled_while_it_waits_for_room_has_reserved_nothing(
    budgets: SqlBudgetStore,
) -> None:
    async def both() -> None:
        of, slow, quick, store = slow_and_quick(budgets)
        second = await two_at_once(of, slow, store)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert budgets.view("plan").reserved.tokens == 1_100
        assert not quick.asked
        assert slow.go is not None
        slow.go.set()
        [first] = [task for task in asyncio.all_tasks() if task.get_name() == "first"]
        await first

    asyncio.run(both())
    assert [call.state for call in budgets.calls_of("plan")] == ["settled"]


def test_a_running_call_is_waited_for_a_limited_time(budgets: SqlBudgetStore) -> None:
    async def both() -> None:
        of, slow, quick, store = slow_and_quick(budgets)
        second = await two_at_once(replace(of, patience_seconds=0.0), slow, store)
        await asyncio.wait_for(second, 30)
        assert [request.max_output_tokens for request in quick.asked] == [
            700
        ]  # the rest of the budget, without a wait
        [first] = [task for task in asyncio.all_tasks() if task.get_name() == "first"]
        first.cancel()
        await asyncio.wait({first}, timeout=30)

    asyncio.run(both())
    assert budgets.view("plan").spent.tokens == 1_200


def test_a_sibling_plans_call_in_this_process_is_waited_for(budgets: SqlBudgetStore) -> None:
    clock, trees = FakeClock(), OpenCallsOfTrees()

    async def both() -> FakeModel:
        of, slow, quick, _ = slow_and_quick(budgets)
        assert slow.go is not None
        told = slow.go

        async def pass_on(seconds: float) -> None:
            clock.advance(seconds)
            if clock.monotonic() - began > 60:
                told.set()
            await asyncio.sleep(0)

        began = clock.monotonic()
        sibling = replace(of, plan_id="sibling", open_calls=trees.of("plan"))
        waiting = replace(of, clock=clock, sleep=pass_on, open_calls=trees.of("plan"))
        request = ModelRequest(messages=QUESTION, max_output_tokens=1_000)
        first = asyncio.create_task(sibling.reply("m/slow", request, NAME))
        assert slow.hangs is not None
        await slow.hangs.wait()
        await asyncio.wait_for(waiting.reply("m/a", request, NAME), 30)
        await first
        return quick

    quick = asyncio.run(both())
    assert [request.max_output_tokens for request in quick.asked] == [1_000]


def test_the_plans_of_a_tree_share_a_count_while_it_is_in_use() -> None:
    trees = OpenCallsOfTrees()
    one = trees.of("root")
    one.begin()
    assert trees.of("root") is one
    assert trees.of("other").look().open == 0
    del one
    assert trees.of("root").look().open == 0


def test_no_call_waits_if_none_is_running(budgets: SqlBudgetStore) -> None:
    limit(budgets, BudgetLimits(tokens=500))

    async def never(seconds: float) -> None:
        raise AssertionError("it must not wait")

    with pytest.raises(BudgetExhausted):
        ask(replace(calls(budgets, FakeModel("m/a")), sleep=never))


def test_a_call_of_another_process_is_waited_for_briefly(budgets: SqlBudgetStore) -> None:
    limit(budgets, BudgetLimits(tokens=1_200))
    clock = FakeClock()
    other = budgets.reserve(
        "plan", "peer", Spend(0, 1_000, 1), key="k", actor="a/b", node="n", model="m/x", now=clock.now()
    )
    waited: list[float] = []

    async def pass_on(seconds: float) -> None:
        waited.append(seconds)
        clock.advance(seconds)

    of = replace(calls(budgets, FakeModel("m/a")), clock=clock, sleep=pass_on)
    with pytest.raises(BudgetExhausted):
        ask(of)
    assert 1.0 < sum(waited) < 10.0

    async def end_it(seconds: float) -> None:
        await asyncio.to_thread(budgets.settle, other, Spend(0, 10, 1), None, now=clock.now())

    ask(replace(of, sleep=end_it))
    assert budgets.view("plan").spent == Spend(80 + 200, 110, 2)
