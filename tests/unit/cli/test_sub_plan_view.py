"""What a parent does next, from what is known of its tasks: decided without looking at anything."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.strategy import Strategy, Task
from cleveragents.plans.model.sub_plan import (
    ParentAction,
    TaskStatus,
    TreeView,
    child_versions,
    has_news,
    is_at_rest,
    waits_for_sub_plans,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
E = Phase.EXECUTE


def child(key: str, state: PlanState, phase: Phase = E, *, version: int = 1, waits: Any = None) -> Plan:
    return Plan(key, "g", "a/b", "/r", phase, state, version, NOW, NOW, key=key, waiting_for=waits)


def sub(*needs: int) -> Task:
    return Task("part", needs=needs, sub_plan=True)


def own(*needs: int) -> Task:
    return Task("own", needs=needs)


def view(*tasks: Task, children: Mapping[str, PlanState] | None = None, **facts: Any) -> TreeView:
    known = {key: child(key, state) for key, state in (children or {}).items()}
    fail_fast = facts.pop("fail_fast", False)
    return TreeView(Strategy((), tasks=tasks, fail_fast=fail_fast), known, **facts)


def step(*tasks: Task, **facts: Any) -> tuple[str, tuple[int, ...]]:
    found = view(*tasks, **facts).step()
    return found.act.value, found.numbers


RUNNING, DONE, FAILED = PlanState.PROCESSING, PlanState.COMPLETE, PlanState.ERRORED
CANCELLED, WAITS = PlanState.CANCELLED, PlanState.WAITING


def test_all_that_needs_nothing_begins_at_once() -> None:
    assert step(sub(), sub(), sub(1)) == ("start", (1, 2))


def test_finished_sub_plans_are_merged_in_order_first() -> None:
    children = {"1": RUNNING, "2": DONE, "3": DONE}
    assert step(sub(), sub(), sub(), sub(), own(), children=children) == ("merge", (2, 3))


def test_a_sub_plan_starts_when_its_needs_are_merged() -> None:
    assert step(sub(), sub(1), children={"1": RUNNING}) == ("wait", (1,))
    assert step(sub(), sub(1), children={"1": DONE}, merged=frozenset("1")) == ("start", (2,))


def test_own_tasks_are_done_while_others_run() -> None:
    assert step(sub(), own(), own(1), children={"1": RUNNING}) == ("do", (2,))
    assert step(sub(), own(), own(1), children={"1": RUNNING}, done={2}) == ("wait", (1,))
    merged = frozenset("1")
    assert step(sub(), own(), own(1), children={"1": DONE}, merged=merged, done={2}) == ("do", (3,))
    assert step(sub(), own(), children={"1": DONE}, merged=merged, done={2}) == ("end", ())


def test_one_that_was_made_and_never_queued_is_started_again() -> None:
    strategy = Strategy((), tasks=(sub(),))
    made = {"1": child("1", PlanState.QUEUED, Phase.ACTION)}
    assert TreeView(strategy, made).step().act is ParentAction.START


def test_other_sub_plans_continue_after_a_failure_reported_at_the_end() -> None:
    tasks = sub(), sub(), sub(1), sub(3), sub()
    assert step(*tasks, children={"1": FAILED, "2": RUNNING}) == ("start", (5,))
    children = {"1": FAILED, "2": RUNNING, "5": RUNNING}
    assert step(*tasks, children=children) == ("wait", (2, 5))
    children = {"1": FAILED, "2": DONE, "5": DONE}
    assert step(*tasks, children=children, merged=frozenset("25")) == ("fail", (1,))
    task_statuses = view(*tasks, children=children, merged=frozenset("25")).task_statuses()
    assert [task_statuses[number] for number in (3, 4)] == [TaskStatus.BLOCKED, TaskStatus.BLOCKED]


@pytest.mark.parametrize("broken", [FAILED, CANCELLED, PlanState.REJECTED])
def test_with_fail_fast_the_others_are_stopped_and_then_waited_for(broken: PlanState) -> None:
    tasks = sub(), sub(), sub(), own()
    children = {"1": broken, "2": RUNNING}
    assert step(*tasks, children=children, fail_fast=True) == ("stop", (2,))
    assert step(*tasks, children=children, fail_fast=True, told={2}) == ("wait", (2,))
    children = {"1": broken, "2": CANCELLED}
    assert step(*tasks, children=children, fail_fast=True) == ("fail", (1, 2))


def test_finished_sub_plans_are_merged_despite_a_failure() -> None:
    assert step(sub(), sub(), children={"1": FAILED, "2": DONE}, fail_fast=True) == ("merge", (2,))


def test_a_part_left_out_takes_its_dependents_with_it() -> None:
    tasks = sub(), sub(1), own(2), sub()
    children = {"1": CANCELLED}
    assert step(*tasks, children=children) == ("start", (4,))
    found = view(*tasks, children=children, left_out=frozenset("1"))
    assert list(found.task_statuses().values()) == [
        TaskStatus.LEFT_OUT,
        TaskStatus.LEFT_OUT,
        TaskStatus.LEFT_OUT,
        TaskStatus.READY,
    ]
    assert step(*tasks[:3], children=children, left_out=frozenset("1")) == ("end", ())


def test_a_circle_of_needs_is_not_waited_for() -> None:
    assert step(sub(2), sub(1)) == ("start", (1,))
    assert step(sub(2), sub(1), children={"1": DONE}, merged=frozenset("1")) == ("start", (2,))


@pytest.mark.parametrize(
    ("phase", "state", "rests"),
    [
        (Phase.STRATEGIZE, PlanState.QUEUED, False),
        (Phase.STRATEGIZE, PlanState.COMPLETE, False),
        (Phase.STRATEGIZE, PlanState.ERRORED, True),
        (E, PlanState.PROCESSING, False),
        (E, PlanState.COMPLETE, True),
        (E, PlanState.CANCELLED, True),
    ],
)
def test_a_plan_is_at_rest_when_no_worker_should_run_it(phase: Phase, state: PlanState, rests: bool) -> None:
    assert is_at_rest(child("1", state, phase)) is rests


def test_one_that_waits_for_its_own_parts_rests_only_when_a_person_is_asked() -> None:
    works = child("1", WAITS, waits={"for": "sub-plans", "asks": []})
    asks = child("1", WAITS, waits={"for": "sub-plans", "asks": [{"what": "leave"}]})
    assert waits_for_sub_plans(works)
    assert not is_at_rest(works)
    assert is_at_rest(asks)
    assert is_at_rest(child("1", WAITS, waits={"for": "leave"}))


def test_news_are_sub_plans_at_rest_since_the_last_look() -> None:
    running, failed = child("1", RUNNING, version=3), child("2", FAILED, version=5)
    parent = child("p", WAITS, waits={"for": "sub-plans", "seen": child_versions([running, failed])})
    assert not has_news(parent, [running, failed])
    assert not has_news(parent, [child("1", RUNNING, version=4), failed])
    assert has_news(parent, [child("1", DONE, version=4), failed])
    # Nobody waits for a part of what was corrected since.
    assert not has_news(parent, [running, failed, child("3", DONE)])
