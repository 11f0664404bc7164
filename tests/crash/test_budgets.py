"""One budget, many processes, some of which die in the middle of a call: it is never exceeded.

anthropics/claude-code#72732, #69395, #68619: agents that started agents spent hundreds of dollars, because
spending was not counted across the tree. anthropics/claude-code#94013: background agents had no limit at all.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cleveragents.core.errors import BudgetExhausted
from cleveragents.core.identifiers import UlidSource
from cleveragents.models.model.budget import BudgetLimits, Spend, exceeded
from cleveragents.models.store.sql_budget_store import SqlBudgetStore
from cleveragents.storage.database import open_database
from cleveragents.testing.clock import CountingIdentifiers
from tests.crash.programs.budget_spender import DEATHS, LIMIT, NOW, WANTED
from tests.fork_server import Forked
from tests.races.one_connection import in_memory_database
from tests.ready_database import ready_database

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "tests.crash.programs.budget_spender"]
PROCESSES = 8


def spent_by_all(url: str, *, store: str = "SqlBudgetStore", calls: int = 0) -> dict[str, Any]:
    with open_database(url) as database:
        SqlBudgetStore(database, UlidSource()).open("root", BudgetLimits(tokens=LIMIT), now=NOW)
    order = {"url": url, "store": store, "processes": PROCESSES, "calls": calls, "seed": 7}
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    with Forked(
        PROGRAM, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as ran:
        said, _ = ran.communicate(json.dumps(order), timeout=240)
    assert ran.returncode == 0
    return dict(json.loads(said))


def test_eight_processes_never_exceed_a_budget_even_if_killed(tmp_path: Path) -> None:
    url = ready_database(tmp_path / "budget.db")
    ended = spent_by_all(url, calls=40)
    # Those whose call was refused at that moment had no call to die in.
    assert set(ended["codes"][DEATHS:]) == {0}
    assert set(ended["codes"][:DEATHS]) <= {0, -signal.SIGKILL}
    assert max(one["most"] for one in ended["seen"]) <= LIMIT
    assert sum(one["refused"] for one in ended["seen"]) > 0
    with open_database(url) as database:
        budgets = SqlBudgetStore(database, UlidSource())
        for number in range(PROCESSES):
            budgets.forfeit(f"plan-{number}", now=NOW)
        view = budgets.view("root")
        assert (view.reserved, view.spent.tokens <= LIMIT) == (Spend(), True)
        calls = [call for number in range(PROCESSES) for call in budgets.calls_of(f"plan-{number}")]
        assert {call.state for call in calls} == {"settled", "released", "forfeited"}
        assert view.spent.steps == sum(call.state != "released" for call in calls)


def test_three_of_eight_concurrent_reservations_are_granted(tmp_path: Path) -> None:
    ended = spent_by_all(ready_database(tmp_path / "budget.db"))
    assert ended["codes"] == [0] * PROCESSES
    assert sum(one["given"] for one in ended["seen"]) == LIMIT // WANTED
    assert max(one["most"] for one in ended["seen"]) <= LIMIT


def test_this_test_catches_a_budget_counted_after_the_call(tmp_path: Path) -> None:
    """The common naive way: without reservations, all eight get the budget of three."""
    ended = spent_by_all(ready_database(tmp_path / "budget.db"), store="SettledLaterBudgetStore")
    assert sum(one["given"] for one in ended["seen"]) == PROCESSES
    assert max(one["most"] for one in ended["seen"]) > LIMIT


# ── Trees of plans ────────────────────────────────────────────────────────────────────────────────

ACTS = st.tuples(
    st.sampled_from(["reserve", "reserve", "settle", "release", "die", "grow", "more"]),
    st.integers(0, 7),
    st.integers(0, 40),
    st.integers(0, 40),
)


@given(
    limits=st.builds(
        BudgetLimits,
        picodollars=st.none() | st.integers(0, 200),
        tokens=st.none() | st.integers(0, 100),
        steps=st.none() | st.integers(0, 12),
    ),
    acts=st.lists(ACTS, max_size=40),
)
@settings(max_examples=30, deadline=None)
def test_a_plan_tree_never_exceeds_its_budget_whatever_it_does(
    limits: BudgetLimits, acts: list[tuple[str, int, int, int]]
) -> None:
    """Plans are created, spend and die; the expected values are plain sums over their calls."""
    with in_memory_database() as database:
        tree = Tree(SqlBudgetStore(database, CountingIdentifiers("call")), limits)
        for act, which, one, other in acts:
            getattr(tree, act)(which, one, other)
            tree.ensure_right()
        tree.end()


class Tree:
    """Plans below one root, and the expected sums of their calls."""

    def __init__(self, store: SqlBudgetStore, limits: BudgetLimits) -> None:
        self._store = store
        self._plans = ["root"]
        self._limits = limits
        self._held: list[Any] = []
        self._spent = Spend()
        self._numbers = 0
        store.open("root", limits, now=NOW)

    def grow(self, which: int, _one: int, _other: int) -> None:
        """Add a plan below an existing one: it opens the same budget with any limits."""
        self._plans.append(f"{self._plans[which % len(self._plans)]}.{len(self._plans)}")
        self._store.open("root", BudgetLimits(tokens=10**9), now=NOW)

    def reserve(self, which: int, tokens: int, money: int) -> None:
        plan = self._plans[which % len(self._plans)]
        self._numbers += 1
        worst = Spend(money, tokens, 1)
        reserved = sum((held.worst for held in self._held), Spend())
        fits = not exceeded(self._limits, self._spent + reserved + worst)
        try:
            held = self._store.reserve(
                "root",
                plan,
                worst,
                key=f"{len(self._held)}-{tokens}",
                actor="a",
                node="n",
                model="m",
                now=NOW,
            )
        except BudgetExhausted:
            assert not fits
            return
        assert fits
        self._held.append(held)

    def settle(self, which: int, tokens: int, money: int) -> None:
        if self._held:
            held = self._held.pop(which % len(self._held))
            spent = Spend(min(money, held.worst.picodollars), min(tokens, held.worst.tokens), 1)
            self._store.settle(held, spent, None, now=NOW)
            self._store.settle(held, held.worst, None, now=NOW)  # late, and therefore not counted
            self._spent = self._spent + spent

    def release(self, which: int, _one: int, _other: int) -> None:
        if self._held:
            self._store.release(self._held.pop(which % len(self._held)), now=NOW)

    def die(self, which: int, _one: int, _other: int) -> None:
        """Remove a worker; the next owner of its plan counts its reservations at their worst case."""
        plan = self._plans[which % len(self._plans)]
        lost = [held for held in self._held if held.plan_id == plan]
        self._held = [held for held in self._held if held.plan_id != plan]
        worst = sum((held.worst for held in lost), Spend())
        assert self._store.forfeit(plan, now=NOW) == worst
        self._spent = self._spent + worst

    def more(self, _which: int, tokens: int, _other: int) -> None:
        more = BudgetLimits(tokens=(self._limits.tokens or 0) + tokens)
        self._store.raise_limits("root", more, now=NOW)
        self._limits = BudgetLimits(self._limits.picodollars, more.tokens, self._limits.steps)

    def ensure_right(self) -> None:
        view = self._store.view("root")
        assert view.limits == self._limits
        assert view.spent == self._spent
        assert view.reserved == sum((held.worst for held in self._held), Spend())

    def end(self) -> None:
        for plan in self._plans:
            self._store.forfeit(plan, now=NOW)
        assert self._store.view("root").reserved == Spend()
