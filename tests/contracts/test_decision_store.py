"""Decisions: numbered, recorded once, never erased."""

from __future__ import annotations

import pytest

from cleveragents.core.decision import Alternative, NewDecision
from cleveragents.core.errors import UnknownPlan
from cleveragents.plans.store.sql_decision_store import SqlDecisionStore
from cleveragents.storage.database import Database
from tests.contracts.plan_stand import NOW, PlanStand

ROOT = NewDecision(
    question="how?",
    choice="with a flag \ud800\0",
    rationale="users ask for it",
    alternatives=(Alternative("an option", "nobody finds it"),),
    confidence=0.75,
    made_by="builtin/strategist",
    checkpoint=3,
    context={"files": ["a.py"]},
)
CHILD = NewDecision(question="where?", choice="cli.py", parent=1)


@pytest.fixture
def stand(database: Database) -> PlanStand:
    return PlanStand(database)


@pytest.fixture
def store(database: Database, stand: PlanStand) -> SqlDecisionStore:
    return SqlDecisionStore(database, stand.identifiers)


def test_returns_decisions_in_order(store: SqlDecisionStore, stand: PlanStand) -> None:
    plan = stand.plan()
    store.add(plan.id, [ROOT, CHILD], key="1", now=NOW)
    first, second = store.of_plan(plan.id)
    assert (first.number, second.number, second.made) == (1, 2, CHILD)
    assert first.made.alternatives == ROOT.alternatives
    assert first.made.context == {"files": ("a.py",)}
    assert (first.made.confidence, first.made.checkpoint, first.created_at) == (0.75, 3, NOW)
    assert "with a flag" in first.made.choice


def test_a_repeated_run_decides_nothing_twice(store: SqlDecisionStore, stand: PlanStand) -> None:
    plan = stand.plan()
    again = [store.add(plan.id, [ROOT, CHILD], key="strategize", now=NOW) for _ in range(2)]
    assert again[0] == again[1] or [d.number for d in again[0]] == [d.number for d in again[1]]
    assert len(store.of_plan(plan.id)) == 2
    assert [kind for kind, _, _ in stand.events()].count("decision.made") == 2


def test_refuses_decisions_of_a_deleted_plan(store: SqlDecisionStore, stand: PlanStand) -> None:
    plan = stand.plan()
    store.add(plan.id, [ROOT], key="1", now=NOW)
    stand.plans.delete(plan, now=NOW)
    with pytest.raises(UnknownPlan):
        store.add(plan.id, [ROOT], key="2", now=NOW)
    assert not store.of_plan(plan.id)
