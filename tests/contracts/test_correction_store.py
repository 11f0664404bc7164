"""Corrections: numbered without a gap, in one transaction with the superseded decisions and the moves."""

from __future__ import annotations

import threading

import pytest

from cleveragents.core.decision import DecisionState, NewDecision
from cleveragents.core.errors import IllegalPlanMove, StaleFence, StalePlan, UnknownPlan
from cleveragents.core.identifiers import Fence
from cleveragents.plans.model.correction import NewCorrection, descendants
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.ports.plans import PlanFacts
from cleveragents.plans.store.sql_decision_store import SqlCorrectionStore, SqlDecisionStore
from cleveragents.storage.database import Database
from tests.contracts.plan_stand import LATER, NOW, PlanStand

BACK = ((Phase.STRATEGIZE, PlanState.QUEUED),)
AT_REST = (*BACK, (Phase.STRATEGIZE, PlanState.PROCESSING), (Phase.STRATEGIZE, PlanState.WAITING))
WRONG = NewCorrection(
    guidance="use a file \ud800\0",
    decision=2,
    superseded=(2, 3),
    checkpoint=4,
    outcome="tree",
)
ADDED = NewCorrection(guidance="and document it", by_itself=True)


@pytest.fixture
def stand(database: Database) -> PlanStand:
    return PlanStand(database)


@pytest.fixture
def store(database: Database, stand: PlanStand) -> SqlCorrectionStore:
    return SqlCorrectionStore(database, stand.identifiers)


@pytest.fixture
def decisions(database: Database, stand: PlanStand) -> SqlDecisionStore:
    return SqlDecisionStore(database, stand.identifiers)


@pytest.fixture
def plan(stand: PlanStand, decisions: SqlDecisionStore) -> Plan:
    """Return a plan whose Execute phase is running, with three decisions, each from the one before."""
    plan = stand.processing()
    made = [NewDecision(f"{n}?", "so", parent=n - 1 or None) for n in (1, 2, 3)]
    decisions.add(plan.id, made, key="strategize", now=NOW)
    return plan


def _states(decisions: SqlDecisionStore, plan: Plan) -> list[DecisionState]:
    return [decision.state for decision in decisions.of_plan(plan.id)]


def test_a_correction_supersedes_and_moves_the_plan_atomically(
    store: SqlCorrectionStore, decisions: SqlDecisionStore, stand: PlanStand, plan: Plan
) -> None:
    waits = PlanFacts(waiting_for={"for": "correction"})
    kept, moved = store.add(plan, WRONG, AT_REST, waits, now=LATER)
    assert (moved.phase_state, moved.waiting_for) == (
        (Phase.STRATEGIZE, PlanState.WAITING),
        {"for": "correction"},
    )
    assert stand.plans.get(plan.id) == moved
    active, superseded = DecisionState.ACTIVE, DecisionState.SUPERSEDED
    assert _states(decisions, plan) == [active, superseded, superseded]
    assert store.of_plan(plan.id) == [kept]
    assert (kept.number, kept.created_at, kept.made.superseded) == (1, LATER, (2, 3))
    assert (kept.made.decision, kept.made.checkpoint, kept.made.outcome) == (2, 4, "tree")
    assert kept.made.guidance.startswith("use a file ")
    assert not kept.made.by_itself
    told = [kind for kind, _, _ in stand.events()]
    assert told.count("plan.corrected") == 1
    assert told.count("decision.superseded") == 2


def test_corrections_are_numbered_in_order_and_supersede_nothing_twice(
    store: SqlCorrectionStore, decisions: SqlDecisionStore, stand: PlanStand, plan: Plan
) -> None:
    _, moved = store.add(plan, WRONG, AT_REST, now=NOW)
    moved = stand.plans.move(moved, (Phase.STRATEGIZE, PlanState.QUEUED), now=NOW)
    moved = stand.plans.move(moved, (Phase.STRATEGIZE, PlanState.PROCESSING), now=NOW)
    kept, _ = store.add(
        moved, NewCorrection("again", superseded=(1, 2)), [(Phase.STRATEGIZE, PlanState.WAITING)], now=NOW
    )
    assert [one.number for one in store.of_plan(plan.id)] == [1, 2] == [1, kept.number]
    assert _states(decisions, plan) == [DecisionState.SUPERSEDED] * 3
    assert [kind for kind, _, _ in stand.events()].count("decision.superseded") == 3


def test_a_failed_correction_changes_nothing(store: SqlCorrectionStore, stand: PlanStand, plan: Plan) -> None:
    before = stand.rows()
    with pytest.raises(IllegalPlanMove):
        store.add(plan, WRONG, (*BACK, (Phase.APPLY, PlanState.APPLIED)), now=NOW)
    with pytest.raises(StaleFence):
        store.add(plan, WRONG, BACK, now=NOW, fence=Fence("a job of somebody else's", 1))
    assert stand.rows() == before
    stand.plans.move(plan, (Phase.EXECUTE, PlanState.COMPLETE), now=NOW)
    before = stand.rows()
    with pytest.raises(StalePlan):
        store.add(plan, WRONG, BACK, now=NOW)
    assert stand.rows() == before


def test_refuses_to_correct_a_deleted_plan(store: SqlCorrectionStore, stand: PlanStand, plan: Plan) -> None:
    _, moved = store.add(plan, ADDED, BACK, now=NOW)
    assert store.of_plan(plan.id)[0].made.by_itself
    stand.plans.delete(moved, now=NOW)
    assert not store.of_plan(plan.id)
    with pytest.raises(UnknownPlan):
        store.add(moved, ADDED, BACK, now=NOW)


def test_one_of_two_concurrent_corrections_fails(
    store: SqlCorrectionStore, stand: PlanStand, plan: Plan
) -> None:
    at_once = threading.Barrier(2, timeout=30)
    said: list[str] = []

    def correct(made: NewCorrection) -> None:
        at_once.wait()
        try:
            store.add(plan, made, BACK, now=NOW)
        except StalePlan:
            said.append("stale")
        else:
            said.append("corrected")

    threads = [threading.Thread(target=correct, args=(made,)) for made in (WRONG, ADDED)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(said) == ["corrected", "stale"]
    assert [one.number for one in store.of_plan(plan.id)] == [1]


def test_finds_all_descendants_of_a_decision(decisions: SqlDecisionStore, plan: Plan) -> None:
    decisions.add(plan.id, [NewDecision("4?", "so", parent=1)], key="more", now=NOW)
    made = decisions.of_plan(plan.id)
    assert descendants(made, 2) == (2, 3)
    assert descendants(made, 1) == (1, 2, 3, 4)
    assert descendants(list(reversed(made)), 4) == (4,)
