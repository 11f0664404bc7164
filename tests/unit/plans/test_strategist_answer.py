"""Reading of a strategist's answer, and its prompt: models miscount, and that does no harm."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from cleveragents.core.decision import Decision, DecisionState, NewDecision
from cleveragents.core.json_value import JsonValue, freeze
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.model.correction import (
    Correction,
    NewCorrection,
    checkpoint_for,
    kept_tasks,
    part_of,
    tasks_since,
    undone_with,
)
from cleveragents.plans.model.strategy import Strategy, Task
from cleveragents.plans.strategize import (
    PlanningHistory,
    StepOptions,
    decisions_in,
    tasks_in,
    unread_in,
    words_for,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WHOLE = Task("whole", round=1)


def terms(*kept: int, sub_plans: int = 9) -> StepOptions:
    tasks = {number: Task(f"kept {number}") for number in kept}
    return StepOptions(tasks, round=1, decisions=frozenset({1, 2}), sub_plans=sub_plans, otherwise=WHOLE)


def decision(
    number: int, *, checkpoint: int | None = None, held: bool = True, parent: int | None = None
) -> Decision:
    state = DecisionState.ACTIVE if held else DecisionState.SUPERSEDED
    said = NewDecision(f"{number}?", "so", checkpoint=checkpoint, parent=parent)
    return Decision("p", number, said, state, NOW)


def made(number: int, step: str | None, state: CallState = CallState.ENDED) -> ToolCall:
    return ToolCall("p", number, f"c{number}", "write", {}, state, NOW, step=step)


@pytest.mark.parametrize(
    ("said", "parents"),
    [
        ([{}, {}, {}], [2, 5, 5]),
        ([{"parent": 3}, {"parent": 6}, {"parent": 6}], [3, 5, 6]),
        ([{"parent": 5}, {"parent": 4}, {"parent": 99}], [2, 5, 5]),
        ([{"parent": True}, {"parent": "3"}, {"parent": None}, 7, "no object"], [2, 5, 5]),
        ("nothing", []),
        (None, []),
    ],
)
def test_a_decision_follows_from_a_valid_or_earlier_one(said: object, parents: list[int | None]) -> None:
    found = decisions_in(freeze(said), "me", first=5, held=[2, 3], parent=2)
    assert [one.parent for one in found] == parents


def test_reads_the_valid_fields_of_a_decision() -> None:
    said: JsonValue = freeze(
        [
            {
                "question": "How?",
                "choice": "so",
                "rationale": "it fits",
                "confidence": 7,
                "alternatives": [{"choice": "else", "reason": "no"}, "what?"],
            },
            {"confidence": "very", "alternatives": "none"},
        ]
    )
    one, other = decisions_in(said, "me", first=1, held=[], parent=None)
    assert (one.question, one.choice, one.rationale, one.confidence) == ("How?", "so", "it fits", 1.0)
    assert [(a.choice, a.reason) for a in one.alternatives] == [("else", "no")]
    assert (one.parent, other.parent, other.confidence, other.alternatives) == (None, 1, None, ())
    assert one.made_by == "me"


def test_orders_new_steps_after_kept_ones() -> None:
    said = freeze(
        [
            {
                "title": "last",
                "instructions": "x",
                "needs": [3, 3, 1, 9, True, "2"],
                "decisions": [2, 2, 7, "1"],
            },
            {"title": "second", "needs": [3]},
            {"title": "first", "sub_plan": True},
        ]
    )
    tasks = tasks_in(said, terms(1, 2, sub_plans=1))
    assert [(task.name, task.needs, task.round) for task in tasks] == [
        ("kept 1", (), 0),
        ("kept 2", (), 0),
        ("first", (), 1),
        ("last", (3,), 1),
        ("second", (3,), 1),
    ]
    assert (tasks[2].sub_plan, tasks[3].decisions) == (True, (2,))


def test_the_name_of_a_step_is_one_line() -> None:
    tasks = tasks_in(freeze([{"title": "write it\napplied to 1 file"}, {"title": " \n"}]), terms())
    assert [task.name for task in tasks] == ["write it applied to 1 file", "step 2"]


def test_new_steps_fill_the_places_of_reverted_ones() -> None:
    said = freeze([{"title": "a"}, {"title": "b", "needs": [1]}, {"title": "c", "needs": [2]}])
    tasks = tasks_in(said, terms(2, 4))
    assert [task.name for task in tasks] == ["a", "kept 2", "b", "kept 4", "c"]
    assert [task.needs for task in tasks] == [(), (), (1,), (), (3,)]


def test_kept_tasks_move_up_and_keep_their_names() -> None:
    kept = {1: Task("a"), 4: Task("d", needs=(1, 2)), 5: Task("e", needs=(4,), sub_plan=True)}
    one = replace(terms(), kept=kept)
    tasks = tasks_in(freeze([{"title": "new"}]), one)
    numbered = [(task.part(n), task.name, task.needs) for n, task in enumerate(tasks, start=1)]
    assert numbered == [("1", "a", ()), ("2~1", "new", ()), ("4", "d", (1,)), ("5", "e", (3,))]
    # And again in the next round, after the strategy was stored and read.
    read = Strategy.from_json(Strategy((), tasks=tasks).to_json()).tasks
    later = tasks_in(freeze([{"title": "more"}]), replace(one, round=2, kept=dict(enumerate(read, start=1))))
    assert [task.part(n) for n, task in enumerate(later, start=1)] == ["1", "2~1", "4", "5", "5~2"]


def test_kept_tasks_without_steps_need_no_default_task() -> None:
    for said in (None, freeze([])):
        assert [task.name for task in tasks_in(said, terms(1))] == ["kept 1"]
        assert tasks_in(said, terms()) == (WHOLE,)


def test_finds_unknown_keys_of_steps() -> None:
    steps = [{"title": "a", "decision": [1]}, {"instructions": "b", "sub_plan": True, "why": "c"}, "words"]
    assert unread_in(freeze(steps)) == ["decision", "why"]
    assert unread_in(freeze([{"title": "a", "instructions": "b", "needs": [], "decisions": []}])) == []


def test_limits_the_number_of_sub_plans() -> None:
    said = freeze([{"sub_plan": True}, {"sub_plan": "yes"}, {"sub_plan": True}, {"sub_plan": True}])
    for most, expected in ((2, [True, False, True, False]), (0, [False] * 4)):
        assert [task.sub_plan for task in tasks_in(said, terms(sub_plans=most))] == expected
    assert tasks_in(None, terms()) == (WHOLE,)
    assert tasks_in(freeze([{}]), terms())[0].name == "step 1"


def test_the_first_prompt_contains_only_the_sub_plan_limit() -> None:
    assert words_for(PlanningHistory((), (), {}, ()), 0) == "No step may be a sub-plan."
    assert words_for(PlanningHistory((), (), {}, ()), 3).startswith("At most 3 steps may be sub-plans")


def test_the_prompt_contains_the_findings_of_the_review() -> None:
    correction = Correction("p", 1, NewCorrection("too slow", superseded=(1,), by_itself=True), NOW)
    nameless = Correction("p", 2, NewCorrection("still too slow", by_itself=True), NOW)
    told = words_for(PlanningHistory([decision(1, held=False)], [correction, nameless], {}, ()), 0)
    assert "1. 1? -> so\nThe review of the result says:\ntoo slow" in told
    assert "\n\nThe review of the result says:\nstill too slow" in told
    assert "hold." not in told
    assert "Done already" not in told
    assert "Planned before, " not in told


# ── The work of a decision ────────────────────────────────────────────────────────────────────────

TASKS = (Task("a", decisions=(1,)), Task("b", decisions=(2,)), Task("c", round=1, decisions=(3,)))
CALLS = [
    made(1, "setup"),
    made(2, "1.x"),
    made(3, "1+1.x"),
    made(4, "2.x"),
    made(5, None),
    made(6, "3~1.x"),
    made(7, "mend-1.x"),
]


@pytest.mark.parametrize(
    ("numbers", "expected"), [([1], 2), ([2], 4), ([3], 6), ([2, 3], 4), ([9], 2), ([], 2)]
)
def test_the_checkpoint_is_the_first_call_of_its_task(numbers: list[int], expected: int) -> None:
    strategy = Strategy((), tasks=TASKS)
    assert checkpoint_for(strategy, CALLS, [decision(number) for number in numbers]) == expected


def test_a_task_that_names_no_decision_carries_out_any() -> None:
    strategy = Strategy((), tasks=(Task("a"), *TASKS[1:]))
    assert checkpoint_for(strategy, CALLS, [decision(3)]) == 2


def test_the_checkpoint_of_an_executors_decision_is_its_call() -> None:
    strategy = Strategy((), tasks=TASKS)
    assert checkpoint_for(strategy, CALLS, [decision(4, checkpoint=6)]) == 6
    assert checkpoint_for(strategy, CALLS, [decision(2), decision(4, checkpoint=6)]) == 4
    assert checkpoint_for(strategy, CALLS, [decision(3), decision(4, checkpoint=4)]) == 4
    gone = [made(6, "3~1.x", CallState.REVERTED)]
    assert checkpoint_for(strategy, gone, [decision(4, checkpoint=6)]) is None


def test_reverted_work_is_neither_begun_nor_kept() -> None:
    gone = [*CALLS[:3], made(4, "2.x", CallState.REVERTED)]
    assert [*kept_tasks(TASKS, gone)] == [1]
    assert [*kept_tasks(TASKS, CALLS).values()] == [*TASKS]
    assert kept_tasks(TASKS, []) == {}
    assert [task.name for task in tasks_since(Strategy((), tasks=TASKS), CALLS, 4)] == ["b", "c"]


def test_decisions_of_reverted_calls_are_superseded() -> None:
    every = [
        decision(1),
        decision(2),
        decision(3),
        decision(4, checkpoint=6),
        decision(5, checkpoint=3, parent=2),
        decision(6, parent=4),
    ]
    strategy = Strategy((), tasks=TASKS)

    def undone(number: int) -> tuple[list[int], int | None]:
        superseded, checkpoint = undone_with(strategy, CALLS, every, number)
        return [one.number for one in superseded], checkpoint

    assert undone(3) == ([3, 4, 6], 6)
    # A decision that followed from it is carried out by earlier calls, so more is reverted.
    assert undone(2) == ([2, 4, 5, 6], 3)
    assert undone(4) == ([4, 5, 6], 2)


def test_keeps_a_task_without_calls_before_one_with_calls() -> None:
    assert [*kept_tasks(TASKS, [made(1, "2.x")])] == [1, 2]
    assert [*kept_tasks(TASKS, [made(1, "3~1.x")])] == [3]
    split = (Task("a", sub_plan=True), Task("b"))
    assert [*kept_tasks(split, [made(1, "2.x")])] == [2]
    assert [*kept_tasks(split, [made(1, "merge-1")])] == [1]
    assert part_of(made(1, "merge-1~2")) == "1~2"
    assert part_of(made(1, None)) is None
