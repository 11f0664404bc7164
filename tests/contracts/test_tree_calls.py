"""The call times of a tree of plans, over SQLite and PostgreSQL."""

from __future__ import annotations

from datetime import datetime

import pytest

from cleveragents.core.identifiers import Fence, WorkerIdentity
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.jobs.model.job import Job, NewJob
from cleveragents.jobs.store.sql_job_store import SqlJobStore
from cleveragents.models.model.budget import Spend
from cleveragents.models.store.sql_budget_store import SqlBudgetStore
from cleveragents.plans.history import seconds_of_tree
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.ports.plans import PlanDraft, PlanFacts, TreeLimits
from cleveragents.plans.store.sql_plan_records import SqlCallStore, SqlTreeCalls
from cleveragents.plans.store.sql_plan_store import SqlPlanStore
from cleveragents.storage.database import Database
from cleveragents.testing.clock import CountingIdentifiers, FakeClock


class Tree:
    """A root with two sub-plans, one of which has a sub-plan; each can run."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.clock = FakeClock()
        names = CountingIdentifiers("id")
        self.plans = SqlPlanStore(self.database, names)
        self.jobs = SqlJobStore(self.database, names)
        self.calls = SqlCallStore(self.database, names)
        self.budgets = SqlBudgetStore(self.database, names)
        root = self.plans.create(PlanDraft("goal", "tests/any", "/repo"), now=self.now)
        self.root, _ = self.working(root)
        self.left, _ = self.working(self.spawn(self.root, "left"))
        self.right, _ = self.working(self.spawn(self.root, "right"))
        self.below, self.job_below = self.working(self.spawn(self.left, "below"))

    @property
    def now(self) -> datetime:
        return self.clock.now()

    def working(self, plan: Plan) -> tuple[Plan, Job]:
        """Return the plan at Strategize, under its own running job."""
        self.jobs.submit(NewJob(f"job of {plan.id}"), now=self.now)
        job = self.jobs.claim(WorkerIdentity("w", "here", 1, 1), [f"job of {plan.id}"], now=self.now)
        assert job is not None
        for state in (PlanState.QUEUED, PlanState.PROCESSING):
            facts = PlanFacts(job_id=job.id)
            plan = self.plans.move(plan, (Phase.STRATEGIZE, state), facts, now=self.now)
        return plan, job

    def spawn(self, parent: Plan, key: str) -> Plan:
        assert parent.job_id is not None
        fence = Fence(parent.job_id, 1)
        new = PlanDraft("part", "tests/any", "/repo")
        return self.plans.spawn(parent, new, key, TreeLimits(), now=self.now, fence=fence)

    def begin(self, plan: Plan, state: CallState = CallState.STARTED) -> ToolCall:
        return self.calls.add(plan.id, "command", {}, step="1", state=state, now=self.now)

    def think(self, plan: Plan) -> object:
        named = {"key": str(self.now), "actor": "a", "node": "n", "model": "m"}
        return self.budgets.reserve(plan.root, plan.id, Spend(steps=1), now=self.now, **named)

    def spent(self) -> float:
        return seconds_of_tree(SqlTreeCalls(self.database).of_tree(self.root.id), self.now)


@pytest.fixture
def tree(database: Database) -> Tree:
    return Tree(database)


def test_counts_calls_of_tools_and_models_in_the_whole_tree(tree: Tree) -> None:
    one = tree.begin(tree.left)
    tree.clock.advance(10)
    two = tree.think(tree.below)
    tree.clock.advance(10)
    tree.calls.move(one, CallState.ENDED, now=tree.now)
    tree.clock.advance(5)
    tree.budgets.settle(two, Spend(steps=1), None, now=tree.now)
    tree.clock.advance(1000)  # nothing runs
    three = tree.begin(tree.right)
    tree.clock.advance(3)
    tree.calls.move(three, CallState.FAILED, error="no", now=tree.now)
    assert tree.spent() == 28


def test_another_tree_spends_its_own_time(tree: Tree) -> None:
    other, _ = tree.working(tree.plans.create(PlanDraft("goal", "tests/any", "/repo"), now=tree.now))
    call = tree.begin(other)
    tree.clock.advance(10)
    tree.calls.move(call, CallState.ENDED, now=tree.now)
    assert tree.spent() == 0


def test_counts_running_calls_of_the_tree(tree: Tree) -> None:
    tree.begin(tree.left)
    tree.think(tree.right)
    tree.clock.advance(10)
    assert tree.spent() == 10


def test_calls_of_a_dead_worker_do_not_count(tree: Tree) -> None:
    tree.begin(tree.below)
    tree.think(tree.below)
    tree.clock.advance(86400)
    tree.jobs.reclaim(tree.job_below.id, 1, 0, error="dead", now=tree.now)
    assert tree.spent() == 0, "nobody works on it"
    tree.clock.advance(1)
    assert tree.jobs.claim(WorkerIdentity("v", "here", 2, 1), [tree.job_below.kind], now=tree.now) is not None
    assert tree.spent() == 0, "somebody does again, and has not looked at what was left"
    tree.budgets.forfeit(tree.below.id, now=tree.now)
    assert tree.spent() == 0


def test_waiting_for_approval_does_not_count(tree: Tree) -> None:
    call = tree.begin(tree.left, CallState.ASKED)
    tree.clock.advance(3600)
    call = tree.calls.answer(tree.left.id, call.number, "granted", now=tree.now)
    call = tree.calls.move(call, CallState.STARTED, now=tree.now)
    tree.clock.advance(4)
    tree.calls.move(call, CallState.ENDED, result={"seconds": 3.75}, now=tree.now)
    assert tree.spent() == 3.75
