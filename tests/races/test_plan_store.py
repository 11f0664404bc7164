"""A plan and its calls move atomically, whichever thread or process moves them at the same time."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from cleveragents.core.actions.model import CheckRun, CheckVerdict
from cleveragents.core.errors import CleverAgentsError
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.ports.plans import PlanDraft
from cleveragents.plans.store.sql_plan_records import SqlCallStore, SqlCheckStore
from cleveragents.plans.store.sql_plan_store import SqlPlanStore
from cleveragents.storage.database import open_database
from cleveragents.storage.tables import check_runs, outbox
from cleveragents.testing.clock import CountingIdentifiers
from tests.contracts.databases import Child
from tests.races.explorers import Scenario, assert_caught, assert_holds
from tests.races.naive_plan_store import (
    LookThenMovePlanStore,
    LookThenWriteCallStore,
    UnheldCheckStore,
    UnversionedPlanStore,
)
from tests.races.one_connection import content_of, in_memory_database
from tests.races.plan_mover import CALLS
from tests.ready_database import ready_database

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROOT = Path(__file__).parents[2]

Act = Callable[["Shared"], Hashable]


@dataclass
class Stores:
    """The classes that a scenario runs on."""

    plans: type[SqlPlanStore] = SqlPlanStore
    calls: type[SqlCallStore] = SqlCallStore
    checks: type[SqlCheckStore] = SqlCheckStore


@dataclass
class Shared:
    """A plan in Strategize, its first call, which is pending, and the answers of each worker."""

    stores: Stores
    answers: dict[int, Hashable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        content, self.plan, self.asked, self.told_before = _beginning()
        self.database = in_memory_database(content)
        identifiers = CountingIdentifiers("new")
        self.plans = self.stores.plans(self.database, identifiers)
        self.calls = self.stores.calls(self.database, identifiers)
        self.checks = self.stores.checks(self.database, identifiers)

    def count(self, table: Any) -> int:
        with self.database.read() as connection:
            return int(connection.execute(select(func.count()).select_from(table)).scalar_one())

    def note(self, who: int, act: Act) -> None:
        try:
            self.answers[who] = act(self)
        except CleverAgentsError as error:
            self.answers[who] = type(error).__name__

    def outcome(self) -> Hashable:
        """Return the answers, the standing of plan and calls, the number of events and of recorded checks."""
        try:
            plan = self.plans.get(self.plan.id)
            stands: Hashable = (plan.state.value, plan.version)
        except CleverAgentsError as error:
            stands = type(error).__name__
        calls = tuple((c.number, c.state.value, c.approval) for c in self.calls.of_plan(self.plan.id))
        kept = (self.count(outbox) - self.told_before, self.count(check_runs))
        self.database.close()
        return (self.answers[0], self.answers[1], stands, calls, kept)


@cache
def _beginning() -> tuple[bytes, Plan, ToolCall, int]:
    with in_memory_database() as database:
        identifiers = CountingIdentifiers("old")
        plans, calls = SqlPlanStore(database, identifiers), SqlCallStore(database, identifiers)
        plan = plans.create(PlanDraft("g", "a/b", "/r"), now=NOW)
        for state in (PlanState.QUEUED, PlanState.PROCESSING):
            plan = plans.move(plan, (Phase.STRATEGIZE, state), now=NOW)
        asked = calls.add(plan.id, "w", {}, step="1", state=CallState.ASKED, now=NOW)
        with database.read() as connection:
            told = len(connection.execute(select(outbox.c.number)).all())
        return content_of(database), plan, asked, told


def move(state: PlanState) -> Act:
    return lambda shared: shared.plans.move(shared.plan, (Phase.STRATEGIZE, state), now=NOW).state.value


def delete(shared: Shared) -> Hashable:
    return shared.plans.delete(shared.plan, now=NOW)


def add(shared: Shared) -> Hashable:
    return shared.calls.add(shared.plan.id, "w", {}, step=None, state=CallState.STARTED, now=NOW).number


def answer(approval: str) -> Act:
    return lambda shared: shared.calls.answer(shared.plan.id, 1, approval, now=NOW).approval


def move_call(state: CallState) -> Act:
    return lambda shared: shared.calls.move(shared.asked, state, now=NOW).state.value


def check(shared: Shared) -> Hashable:
    return shared.checks.record(
        CheckRun(shared.plan.id, "c", "true", True, CheckVerdict.PASSED, "", "t", NOW)
    )


ASKED = ((1, "asked", None),)

# The possible outcomes of two concurrent steps. Each step that was made left one event, a refused one none.
PAIRS: dict[str, tuple[Act, Act, set[Hashable]]] = {
    "an end and a cancel": (move(PlanState.COMPLETE), move(PlanState.CANCELLED), {
        ("complete", "StalePlan", ("complete", 4), ASKED, (1, 0)),
        ("StalePlan", "cancelled", ("cancelled", 4), ASKED, (1, 0)),
    }),
    "two workers that take over": (move(PlanState.PROCESSING), move(PlanState.PROCESSING), {
        ("processing", "StalePlan", ("processing", 4), ASKED, (1, 0)),
        ("StalePlan", "processing", ("processing", 4), ASKED, (1, 0)),
    }),
    "a move and a deletion": (move(PlanState.COMPLETE), delete, {
        ("complete", "StalePlan", ("complete", 4), ASKED, (1, 0)),
        ("UnknownPlan", None, "UnknownPlan", (), (1, 0)),
    }),
    "two calls": (add, add, {
        (2, 3, ("processing", 3), (*ASKED, (2, "started", None), (3, "started", None)), (2, 0)),
        (3, 2, ("processing", 3), (*ASKED, (2, "started", None), (3, "started", None)), (2, 0)),
    }),
    "two answers": (answer("granted"), answer("denied"), {
        ("granted", "PlanError", ("processing", 3), ((1, "asked", "granted"),), (1, 0)),
        ("PlanError", "denied", ("processing", 3), ((1, "asked", "denied"),), (1, 0)),
    }),
    "an answer and an end of the call": (answer("denied"), move_call(CallState.FAILED), {
        ("denied", "failed", ("processing", 3), ((1, "failed", "denied"),), (2, 0)),
        ("PlanError", "failed", ("processing", 3), ((1, "failed", None),), (1, 0)),
    }),
    "two moves of a call": (move_call(CallState.STARTED), move_call(CallState.FAILED), {
        ("started", "StalePlan", ("processing", 3), ((1, "started", None),), (1, 0)),
        ("StalePlan", "failed", ("processing", 3), ((1, "failed", None),), (1, 0)),
    }),
    "a check and a deletion": (check, delete, {
        (None, None, "UnknownPlan", (), (2, 0)),
        ("UnknownPlan", None, "UnknownPlan", (), (1, 0)),
    }),
}  # fmt: skip

TWO_MOVES = ["an end and a cancel", "two workers that take over"]
CALL_PAIRS = ["two calls", "two answers", "an answer and an end of the call", "two moves of a call"]


def scenario(name: str, stores: Stores) -> Scenario[Shared]:
    first, second, outcomes = PAIRS[name]
    return Scenario(
        name=name,
        setup=lambda: Shared(stores),
        workers=[lambda shared: shared.note(0, first), lambda shared: shared.note(1, second)],
        outcome=Shared.outcome,
        allowed=lambda outcome: outcome in outcomes,
        reachable=frozenset(outcomes),
    )


@pytest.mark.parametrize("name", PAIRS)
def test_concurrent_steps_are_atomic(name: str) -> None:
    assert_holds(scenario(name, Stores()), effort=40)


@pytest.mark.parametrize("name", TWO_MOVES)
def test_moves_without_a_version_check_are_caught(name: str) -> None:
    assert_caught(scenario(name, Stores(plans=UnversionedPlanStore)), effort=120)


@pytest.mark.parametrize("name", [*TWO_MOVES, "a move and a deletion"])
def test_moves_with_an_early_version_check_are_caught(name: str) -> None:
    assert_caught(scenario(name, Stores(plans=LookThenMovePlanStore)), effort=120)


@pytest.mark.parametrize("name", CALL_PAIRS)
def test_catches_calls_that_are_numbered_after_a_check(name: str) -> None:
    assert_caught(scenario(name, Stores(calls=LookThenWriteCallStore)), effort=120)


def test_catches_a_check_that_outlives_its_plan() -> None:
    assert_caught(scenario("a check and a deletion", Stores(checks=UnheldCheckStore)), effort=120)


def test_one_of_many_processes_moves_the_plan_and_numbers_have_no_gap(
    tmp_path: Path,
) -> None:
    processes = 4
    url = ready_database(tmp_path / "plans.db")
    with open_database(url) as database:
        store = SqlPlanStore(database, CountingIdentifiers("PLAN"))
        plan = store.create(PlanDraft("g", "a/b", "/r"), now=NOW)
        children = [_start(url, plan.id, f"child{number}") for number in range(processes)]
        for child in children:
            child.wait_ready()
        for child in children:
            child.go()
        said = Counter(line for child in children for line in child.wait_end().splitlines())
        moved = store.get(plan.id)
    assert (moved.phase_state, moved.version) == ((Phase.STRATEGIZE, PlanState.QUEUED), 2)
    wanted = [f"call {number}" for number in range(1, processes * CALLS + 1)]
    assert said == Counter([*wanted, f"moved {moved.error}", *["StalePlan"] * (processes - 1)])


def _start(url: str, plan_id: str, name: str) -> Child:
    return Child(
        subprocess.Popen(
            [sys.executable, "-m", "tests.races.plan_mover", url, plan_id, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
    )
