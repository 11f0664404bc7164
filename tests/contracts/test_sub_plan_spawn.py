"""Sub-plans in the `SqlPlanStore` contract, over SQLite and PostgreSQL: created once, deleted with their
parent.
"""

from __future__ import annotations

import pytest

from cleveragents.core.errors import PlanError, StaleFence, StalePlan, TreeTooLarge, UnknownPlan
from cleveragents.core.identifiers import Fence, WorkerIdentity
from cleveragents.core.json_value import FrozenObject
from cleveragents.jobs.model.job import AttemptOutcome, JobState, NewJob
from cleveragents.jobs.store.sql_job_store import SqlJobStore
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.ports.plans import PlanDraft, TreeLimits
from cleveragents.storage.database import Database
from cleveragents.testing.clock import CountingIdentifiers
from tests.contracts.plan_stand import LATER, NOW, PlanStand

NEW = PlanDraft("a part", "a/b", "/r", FrozenObject({"start": "there"}))
LIMITS = TreeLimits(depth=2, fan_out=2)


class Family(PlanStand):
    """A parent that runs under a job."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.jobs = SqlJobStore(database, CountingIdentifiers("JOB"))
        self.jobs.submit(NewJob("any"), now=NOW)
        job = self.jobs.claim(WorkerIdentity("w", "h", 1, 1), ["any"], now=NOW)
        assert job is not None
        self.fence = Fence(job.id, job.fence)
        self.parent = self.begun(self.plan())

    def begun(self, plan: Plan) -> Plan:
        for state in (PlanState.QUEUED, PlanState.PROCESSING):
            plan = self.plans.move(plan, (Phase.STRATEGIZE, state), now=NOW)
        return plan

    def ended(self, plan: Plan) -> Plan:
        return self.plans.move(plan, (plan.phase, PlanState.CANCELLED), now=LATER)

    def spawn(self, key: str, parent: Plan | None = None) -> Plan:
        return self.plans.spawn(parent or self.parent, NEW, key, LIMITS, now=NOW, fence=self.fence)


@pytest.fixture
def family(database: Database) -> Family:
    return Family(database)


def test_a_sub_plan_knows_its_parent_and_is_listed_below_it(family: Family) -> None:
    made: list[Plan] = []
    told = family.told(lambda: made.append(family.spawn("1")))
    [child] = made
    assert [(kind, subject) for kind, subject, _ in told] == [
        ("plan.created", child.id),
        ("plan.spawned", family.parent.id),
    ]
    assert child.phase_state == (Phase.ACTION, PlanState.QUEUED)
    assert (child.parent_id, child.root, child.depth, child.key) == (
        family.parent.id,
        family.parent.id,
        1,
        "1",
    )
    assert child.request == NEW.request
    other = family.spawn("2")
    below = family.spawn("1", family.begun(child))
    assert (below.depth, below.root) == (2, family.parent.id)
    assert [one.id for one in family.plans.children(family.parent.id)] == [child.id, other.id]
    found = family.plans.children_of([family.parent.id, child.id, other.id, "nobody"])
    assert found == {
        one.id: family.plans.children(one.id) for one in (family.parent, family.plans.get(child.id))
    }
    assert found[child.id] == [below]
    assert family.plans.children_of([]) == {}
    assert family.plans.children(other.id) == []


def test_the_same_key_returns_the_same_sub_plan_with_one_event(family: Family) -> None:
    child = family.spawn("1")
    again: list[Plan] = []
    assert family.told(lambda: again.append(family.spawn("1"))) == []
    assert again == [child]
    moved = family.begun(child)
    assert family.spawn("1") == moved


def test_a_tree_keeps_its_limits(family: Family) -> None:
    first = family.begun(family.spawn("1"))
    family.spawn("2")
    before = family.rows()
    with pytest.raises(TreeTooLarge, match=r"the limit of 2 sub-plans is reached \(plan.max_fan_out\)"):
        family.spawn("3")
    assert family.rows() == before
    assert family.spawn("2").key == "2"
    deep = family.begun(family.spawn("1", first))
    with pytest.raises(TreeTooLarge, match=r"exceed the depth limit of 2 \(plan.max_depth\)"):
        family.spawn("1", deep)


def test_only_a_running_parent_gets_sub_plans(family: Family) -> None:
    family.spawn("1")
    before = family.parent
    stopped = family.ended(before)
    with pytest.raises(StalePlan):
        family.spawn("2")
    with pytest.raises(StalePlan):
        family.spawn("2", stopped)
    assert len(family.plans.children(stopped.id)) == 1


def test_only_the_owner_of_the_job_spawns_sub_plans(family: Family) -> None:
    family.jobs.finish(family.fence.job_id, 1, AttemptOutcome(JobState.SUCCEEDED), now=NOW)
    with pytest.raises(StaleFence):
        family.spawn("1")
    assert family.plans.children(family.parent.id) == []


def test_deletes_a_parent_with_all_plans_below(family: Family) -> None:
    kept = family.plan()
    before = family.rows()
    child = family.begun(family.spawn("1"))
    below = family.begun(family.spawn("1", child))
    family.fill(below)
    for one in (below, child):
        family.ended(one)
    parent = family.ended(family.parent)
    told = family.told(lambda: family.plans.delete(parent, now=LATER))
    assert [(kind, subject) for kind, subject, _ in told] == [
        ("plan.deleted", one.id) for one in (parent, child, below)
    ]
    for one in (parent, child, below):
        with pytest.raises(UnknownPlan):
            family.plans.get(one.id)
    rows = family.rows()
    assert family.plans.get(kept.id) == kept
    unchanged = set(before) - {"outbox", "plans", "jobs", "deleted_plans"}
    assert {name: rows[name] for name in unchanged} == {name: before[name] for name in unchanged}


def test_refuses_to_delete_a_parent_with_a_running_sub_plan(family: Family) -> None:
    child = family.begun(family.spawn("1"))
    below = family.begun(family.spawn("1", child))
    family.ended(child)
    parent = family.ended(family.parent)
    before = family.rows()
    with pytest.raises(PlanError, match=f"sub-plan {below.id} is running; cancel it first"):
        family.plans.delete(parent, now=LATER)
    assert family.rows() == before
