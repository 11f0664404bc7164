"""A plan's model calls: reserved, made, settled; the fallback; what a cancelled call leaves behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from cleveragents.application.ports.budgets import Reservation
from cleveragents.application.ports.models import ModelFacts, ModelReply, ModelRequest
from cleveragents.application.services.model_calls import CallName, ModelCalls
from cleveragents.domain.budget import Limits, Price, Spend
from cleveragents.domain.conversation import Message, Role, Usage
from cleveragents.errors import (
    BudgetExhausted,
    CleverAgentsError,
    ModelRefused,
    ModelUnavailable,
    PriceUnknown,
    UnknownModel,
)
from cleveragents.infrastructure.clock import SystemClock
from cleveragents.infrastructure.identifiers import UlidSource
from cleveragents.infrastructure.persistence.database import open_database
from cleveragents.infrastructure.persistence.sql_budget_store import SqlBudgetStore

CHEAP = Price(1, 10)
TOOK = Usage(80, 20)
NAME = CallName("think.1", "a/b", "think")
QUESTION = (Message(Role.USER, "?"),)


@dataclass
class FakeModel:
    """Reads 100 tokens, says `words`, and then what it was told to do."""

    name: str
    price: Price | None = CHEAP
    usage: Usage | None = TOOK
    words: tuple[str, ...] = ("yes",)
    error: Exception | None = None
    hangs: asyncio.Event | None = None
    asked: list[ModelRequest] = field(default_factory=list)

    @property
    def facts(self) -> ModelFacts:
        return ModelFacts(self.name, 8_000, 4_000, self.price)

    def count_tokens(self, request: ModelRequest) -> int:
        return 100

    async def reply(self, request: ModelRequest, on_token: Callable[[str], None] | None = None) -> ModelReply:
        self.asked.append(request)
        for word in self.words:
            if on_token is not None:
                on_token(word)
        if self.hangs is not None:
            self.hangs.set()
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return ModelReply(Message(Role.ASSISTANT, "".join(self.words)), self.name, self.usage)


@dataclass
class FakeModels:
    """The models that a test has."""

    models: dict[str, FakeModel]

    def get(self, name: str) -> FakeModel:
        if name not in self.models:
            raise UnknownModel(name, "there is none")
        return self.models[name]

    def facts(self, name: str) -> ModelFacts:
        return self.get(name).facts

    def known(self) -> list[ModelFacts]:
        return [model.facts for model in self.models.values()]


@pytest.fixture
def budgets(tmp_path: Path) -> Iterator[SqlBudgetStore]:
    with open_database(f"sqlite:///{tmp_path}/store.db") as database:
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


def limit(budgets: SqlBudgetStore, limits: Limits) -> None:
    budgets.open("plan", limits, now=SystemClock().now())


def test_a_call_counts_what_it_took(budgets: SqlBudgetStore) -> None:
    heard: list[str] = []
    reply = ask(calls(budgets, FakeModel("m/a", words=("y", "es"))), heard=heard)
    view = budgets.view("plan")
    assert (reply.message.text, heard) == ("yes", ["y", "es"])
    assert (view.spent, view.reserved) == (Spend(80 + 200, 100, 1), Spend())
    [call] = budgets.calls_of("plan")
    assert (call.actor, call.node, call.model, call.usage) == ("a/b", "think", "m/a", Usage(80, 20))


def test_a_provider_that_does_not_say_what_it_took_costs_the_worst_case(budgets: SqlBudgetStore) -> None:
    ask(calls(budgets, FakeModel("m/a", usage=None)))
    assert budgets.view("plan").spent == Spend(100 + 10_000, 1_100, 1)


def test_a_price_that_nobody_knows_is_not_nothing(budgets: SqlBudgetStore) -> None:
    limit(budgets, Limits(picodollars=10**9))
    model = FakeModel("m/a", price=None)
    with pytest.raises(PriceUnknown):
        ask(calls(budgets, model))
    assert not model.asked


def test_a_call_that_might_not_fit_is_not_made(budgets: SqlBudgetStore) -> None:
    limit(budgets, Limits(tokens=500))
    model = FakeModel("m/a")
    with pytest.raises(BudgetExhausted):
        ask(calls(budgets, model))
    assert not model.asked


@pytest.mark.parametrize("limits", [Limits(tokens=800), Limits(picodollars=100 + 7_000)])
def test_a_shorter_answer_is_asked_for_where_the_budget_leaves_no_more(
    budgets: SqlBudgetStore, limits: Limits
) -> None:
    limit(budgets, limits)
    model = FakeModel("m/a")
    ask(calls(budgets, model))
    assert model.asked[0].max_output_tokens == 700


def test_the_fallback_answers_where_the_first_does_not(budgets: SqlBudgetStore) -> None:
    dead = FakeModel("m/a", words=(), error=ModelUnavailable("m/a", "busy"))
    reply = ask(calls(budgets, dead, FakeModel("m/b"), fallback="m/b"))
    assert reply.model == "m/b"
    assert [call.model for call in budgets.calls_of("plan")] == ["m/a", "m/b"]
    assert budgets.view("plan").spent == Spend(80 + 200, 100, 2)


def test_no_answer_is_made_of_two_halves(budgets: SqlBudgetStore) -> None:
    broken = FakeModel("m/a", words=("half",), error=ModelUnavailable("m/a", "cut off"))
    second = FakeModel("m/b")
    with pytest.raises(ModelUnavailable):
        ask(calls(budgets, broken, second, fallback="m/b"))
    assert not second.asked
    assert budgets.view("plan").spent.tokens == 1_100


@pytest.mark.parametrize("error", [ModelRefused("m/a", "no key"), ModelUnavailable("m/a", "busy")])
def test_what_never_answered_costs_no_tokens(budgets: SqlBudgetStore, error: CleverAgentsError) -> None:
    with pytest.raises(type(error)):
        ask(calls(budgets, FakeModel("m/a", words=(), error=error)))
    view = budgets.view("plan")
    assert (view.spent, view.reserved) == (Spend(0, 0, 1), Spend())


def test_a_cancelled_call_counts_at_its_worst_and_leaves_nothing_reserved(budgets: SqlBudgetStore) -> None:
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
    """The database is busy, so the cancel comes first and the leave to spend afterwards."""
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
