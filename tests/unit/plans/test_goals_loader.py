"""Goal files: their fields, and mistakes reported with line numbers."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cleveragents.core.errors import InvalidGoals
from cleveragents.core.json_value import FrozenObject, freeze
from cleveragents.plans.action_strategy import ActionStrategist
from cleveragents.plans.actions.builtins import builtin_actions
from cleveragents.plans.goals.loader import load_goals
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.strategy import RoleAssignment, Strategy, Task
from cleveragents.plans.model.sub_plan import Goals, SubGoal, circle_in

WHOLE = """\
goal: Ship it
max_parallel: 2
fail_fast: true
checks: [make test]
invariants: [never touch migrations/]
goals:
  - name: parser
    goal: |
      Write the parser
  - name: docs
    goal: Describe it
    needs: [parser, parser]
    actor: me/writer
    model: openai/gpt-4.1
    checks: [make docs]
    invariants: [never touch src/]
  - name: format
    action: builtin/command
    arguments: {argv: [ruff, format]}
    needs: [docs]
"""
NOW = datetime(2026, 11, 15, tzinfo=UTC)


def loaded(text: str, *, most: int = 32, wrong: dict[str, str] | None = None) -> Goals:
    return load_goals(text.encode(), "goals.yaml", most=most, judge=lambda one: (wrong or {}).get(one.name))


def problems_of(text: str, *, most: int = 32, wrong: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(InvalidGoals) as caught:
        loaded(text, most=most, wrong=wrong)
    assert caught.value.source == "goals.yaml"
    return list(caught.value.problems)


def test_reads_every_field_of_a_goal_file() -> None:
    goals = loaded(WHOLE)
    assert (goals.goal, goals.title, goals.max_parallel, goals.fail_fast) == ("Ship it", "Ship it", 2, True)
    assert (goals.checks, goals.invariants) == (("make test",), ("never touch migrations/",))
    parser, docs, command = goals.goals
    assert parser == SubGoal("parser", "Write the parser")
    assert (docs.needs, docs.actor, docs.model) == (("parser",), "me/writer", "openai/gpt-4.1")
    assert (docs.checks, docs.invariants) == (("make docs",), ("never touch src/",))
    assert (command.action, command.arguments) == ("builtin/command", {"argv": ("ruff", "format")})
    assert docs.to_json() == {
        "name": "docs",
        "goal": "Describe it",
        "action": None,
        "arguments": {},
        "needs": ("parser",),
        "actor": "me/writer",
        "model": "openai/gpt-4.1",
        "checks": ("make docs",),
        "invariants": ("never touch src/",),
    }


def test_names_the_plan_by_its_goals_without_an_overall_goal() -> None:
    assert loaded("goals: [{name: a, goal: x}, {name: b, goal: y}]").title == "2 goals: a, b"


def test_reports_every_mistake_in_the_order_of_the_lines() -> None:
    text = """\
gaol: Ship it
max_parallel: 0
goals:
  - name: parser
    gaol: Write the parser
  - name: docs
    goal: Describe it
    needs: [parse, zebra]
  - name: docs
    goal: x
    action: builtin/command
  - goal: ""
    needs: parser
  - name: bare
    arguments: {argv: [ls]}
  - just words
"""
    assert problems_of(text) == [
        "line 1: unknown key 'gaol'; did you mean 'goal'?",
        "line 2: 'max_parallel' should be greater than or equal to 1",
        "line 4: `goal` or `action` is missing; for example: goal: Describe the new option",
        "line 5: unknown key 'gaol'; did you mean 'goal'?",
        "line 8: unknown goal 'parse'; did you mean 'parser'?",
        "line 8: unknown goal 'zebra'; known: parser, bare",
        "line 9: two goals are named 'docs'; rename one",
        "line 11: give either `goal` or `action`, not both",
        "line 12: 'goal' is empty",
        "line 12: 'name' is missing; for example: name: docs",
        "line 13: 'needs' should be a list: [a, b]",
        "line 14: `goal` or `action` is missing; for example: goal: Describe the new option",
        "line 15: `arguments` need an `action`; name one, or describe the work in `goal`",
        "line 16: entry 6 of 'goals' should be a mapping: key: value",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the file is empty; begin it with `goals:`"),
        ("- a\n- b\n", "not a mapping; begin with `goals:`, or write one goal per line"),
        ("Write the docs\n", "not a mapping"),
        ("goal: x\n", "line 1: 'goals' is missing; for example: goals: [{name: docs"),
        ("goals: []\n", "line 1: 'goals' is empty"),
        ("goals:\n  - name: a\n\tgoal: x\n", "line 3: YAML does not allow tabs here"),
        ("goals: [{name: a, goal: x}\n", "line 2: expected ',' or ']'"),
        ("goals: [{name: a, goal: x, needs: [b]}]\n", "line 1: unknown goal 'b'; the file has no other goal"),
        ("goals: [{name: ' ', goal: x}]\n", "line 1: 'name' is empty"),
        (f"goals: [{{name: {'n' * 61}, goal: x}}]\n", "line 1: a name is one line of at most 60 characters"),
        ('goals: [{name: "a\\nb", goal: x}]\n', "line 1: a name is one line of at most 60 characters"),
        ("goals:\n- name: a\n  goal: Fix: it\n", "line 3: a colon and a space inside a text; put"),
        ('goals:\n- name: a\n  goal: "Fix\n- name: b\n', "line 3: the text that begins here has no closing"),
        ('goals:\n- name: a\n  goal: "Fix\n  x: "y"\n', "line 4: the line does not fit the lines before it"),
        ("goals: [{name: 7, goal: x}]\n", "line 1: 'name' should be text; put it in quotes"),
    ],
)
def test_refuses_other_files_with_a_remedy(text: str, problem: str) -> None:
    (found,) = problems_of(text)
    assert found.startswith(problem)


def test_a_goal_alone_is_one_goal() -> None:
    assert loaded("goals: [{name: a, goal: x}]").title == "1 goal: a"


def test_judges_a_goal_despite_other_mistakes() -> None:
    text = """\
goals:
  - {name: a, goal: x, needs: [zebra]}
  - {name: b, gaol: x}
  - {name: c, goal: x, action: y}
  - {name: d, goal: x}
"""
    wrong = {name: f"{name} is odd" for name in "abcd"}
    told = problems_of(text, wrong=wrong)
    assert [problem for problem in told if "is odd" in problem] == ["line 2: a is odd", "line 5: d is odd"]
    assert len(told) == 6


def test_names_every_cycle_of_needs() -> None:
    text = """\
goals:
  - {name: a, goal: x, needs: [b]}
  - {name: b, goal: x, needs: [a]}
  - {name: c, goal: x, needs: [c, a]}
"""
    first, second = problems_of(text)
    assert first.startswith("line 2: a needs b needs a: a cycle")
    assert second.startswith("line 4: c needs c: a cycle")


def test_names_a_cycle_of_needs() -> None:
    text = """\
goals:
  - {name: first, goal: x}
  - {name: a, goal: x, needs: [first, c]}
  - {name: b, goal: x, needs: [a]}
  - {name: c, goal: x, needs: [b]}
  - {name: last, goal: x, needs: [c]}
"""
    (problem,) = problems_of(text)
    assert problem == "line 3: a needs c needs b needs a: a cycle; remove one of these `needs`"
    assert problems_of("goals: [{name: a, goal: x, needs: [a]}]") == [
        "line 1: a needs a: a cycle; remove one of these `needs`"
    ]


@pytest.mark.parametrize(
    ("needs", "circle"),
    [
        ({}, ()),
        ({"a": ["b"], "b": ["c"], "c": []}, ()),
        ({"a": ["nobody"]}, ()),
        ({"a": ["b"], "b": ["b"]}, ("b", "b")),
        ({"c": ["d"], "d": ["c"], "a": ["c"]}, ("c", "d", "c")),
    ],
)
def test_finds_a_cycle_anywhere(needs: dict[str, list[str]], circle: tuple[str, ...]) -> None:
    assert circle_in(needs) == circle


def test_refuses_more_goals_than_allowed() -> None:
    entries = ", ".join(f"{{name: g{number}, goal: x}}" for number in range(4))
    (problem,) = problems_of(f"goals: [{entries}]", most=3)
    assert problem.startswith("line 1: 4 goals exceed the limit of 3; remove some, or raise")
    assert len(loaded(f"goals: [{entries}]", most=4).goals) == 4


def test_judges_each_goal_and_reports_its_line() -> None:
    found = problems_of(WHOLE, wrong={"docs": "docs: no such actor", "format": "format: no such action"})
    assert found == ["line 10: docs: no such actor", "line 17: format: no such action"]


# ── The resulting plans ───────────────────────────────────────────────────────────────────────────


def strategy_for(**request: object) -> Strategy:
    actions = {action.name: action for action in builtin_actions()}
    strategist = ActionStrategist(lambda name, resource: actions[name], lambda resource: ())
    frozen = freeze(request)
    assert isinstance(frozen, FrozenObject)
    plan = Plan(
        "P1", "g", "builtin/goals", "/x", Phase.STRATEGIZE, PlanState.PROCESSING, 1, NOW, NOW, request=frozen
    )
    return strategist(plan)


def test_goals_become_sub_plans_of_one_strategy() -> None:
    goals = [one.to_json() for one in loaded(WHOLE).goals]
    made = strategy_for(sub_goals=goals, max_parallel=2, fail_fast=True, checks=["make test"], model="m/n")
    assert [(task.name, task.instructions, task.needs) for task in made.tasks] == [
        ("parser", "Write the parser", ()),
        ("docs", "Describe it", (1,)),
        ("format", "", (2,)),
    ]
    assert all(task.sub_plan for task in made.tasks)
    assert made.tasks[2].request == {
        "action": "builtin/command",
        "arguments": {"argv": ("ruff", "format")},
        "actor": None,
        "model": None,
        "checks": (),
        "invariants": (),
    }
    assert (made.max_parallel, made.fail_fast) == (2, True)
    assert [check.command for check in made.checks] == ["make test"]
    assert made.casting == RoleAssignment(None, "builtin/executor", None, "m/n")
    assert Strategy.from_json(made.to_json()) == made


def test_goals_without_a_model_have_no_actor() -> None:
    made = strategy_for(sub_goals=[SubGoal("a", action="builtin/command").to_json()])
    assert made.casting is None
    assert (made.max_parallel, made.fail_fast) == (None, False)
    assert made.tasks == (Task("a", sub_plan=True, request=made.tasks[0].request),)
