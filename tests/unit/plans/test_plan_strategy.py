"""Strategize for actions with fixed steps: the complete request of the user."""

from __future__ import annotations

from typing import Any

import pytest

from cleveragents.core.actions.model import Check
from cleveragents.core.errors import PlanError
from cleveragents.core.policy import Capability, Verdict
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.strategy import Strategy
from cleveragents.plans.ports.plans import PlanDraft
from tests.plan_bench import PlanBench

ACTION = """
name: tests/all
arguments:
  word: {type: string}
execute:
  steps:
    - tool: write
      name: the word
      with: {path: word.txt, content: "${word}"}
    - tool: command
      shell: true
      continue_on_failure: true
      expect_exit: [0, 2]
      with: {command: "exit 2"}
checks:
  - name: the file
    command: test -e word.txt
profile: cautious
budget: {seconds: 60, steps: 5}
sandbox:
  setup: {command: "true", key: [word.txt], paths: [kept]}
  include: [local.env]
invariants: [nothing else changes]
"""


def asked(plans: PlanBench, action: str, **request: Any) -> Plan:
    """Return a plan of that action, without the bench's own strategies."""
    new = PlanDraft("a goal", action, str(plans.repository), request)
    plans.adapt = lambda run: plans.parts.run()
    return plans.work(plans.parts.lifecycle.create(new))


def test_a_typed_command_needs_no_further_approval(plans: PlanBench) -> None:
    plan = asked(plans, "builtin/command", arguments={"argv": ["touch", "x.txt"]}, profile="manual")
    assert plan.state is PlanState.COMPLETE, plan.error
    assert plans.diff(plan, "--name-only").split() == ["x.txt"]


def test_a_command_starts_in_the_users_directory(plans: PlanBench) -> None:
    plan = asked(plans, "builtin/command", arguments={"argv": ["touch", "x.txt"]}, directory="folder")
    assert plans.diff(plan, "--name-only").split() == ["folder/x.txt"]


def test_uses_the_default_profile(plans: PlanBench) -> None:
    plan = asked(plans, "builtin/replace", arguments={"pattern": "alpha", "replacement": "beta"})
    assert plan.state is PlanState.COMPLETE, plan.error
    policy = Strategy.from_json(plan.strategy).policy
    assert (policy.name, policy.verdict(Capability.APPLY)) == ("supervised", Verdict.ASK)


def test_the_strategy_contains_all_of_the_action(plans: PlanBench) -> None:
    plans.parts.actions(plans.repository).create(ACTION, "a test", replace=True)
    plan = asked(
        plans, "tests/all", arguments={"word": "hello"}, profile="trusted", checks=["true"], include=["more"]
    )
    strategy = Strategy.from_json(plan.strategy)
    assert [(step.tool, step.granted) for step in strategy.steps] == [("write", False), ("command", False)]
    assert strategy.steps[0].name == "the word"
    assert "exit 2" in strategy.steps[1].name
    assert strategy.steps[0].arguments["content"] == "hello"
    assert strategy.steps[1].continue_on_failure
    assert strategy.steps[1].expect_exit == (0, 2)
    assert [check.name for check in strategy.checks] == ["the file", "true"]
    assert strategy.checks[1] == Check("true", "true")
    assert (strategy.profile, strategy.action_profile) == ("trusted", "cautious")
    assert strategy.setup is not None
    assert (strategy.setup.command, strategy.setup.paths) == ("true", ("kept",))
    assert strategy.include == ("local.env", "more")
    assert (strategy.limit_seconds, strategy.limit_steps) == (60, 5)
    assert strategy.invariants == ("nothing else changes",)
    # `cautious` asks before anything is installed, whatever the user's own profile says.
    assert plan.state is PlanState.WAITING


@pytest.mark.parametrize(
    ("action", "arguments", "said"),
    [
        ("builtin/no-such", {}, "no-such"),
        ("builtin/replace", {"patern": "x"}, "patern"),
    ],
)
def test_reports_an_impossible_request_before_it_starts(
    plans: PlanBench, action: str, arguments: dict[str, str], said: str
) -> None:
    plan = asked(plans, action, arguments=arguments)
    assert plan.phase_state == (Phase.STRATEGIZE, PlanState.ERRORED)
    assert said in str(plan.error)
    assert plan.id not in plans.parts.sandboxes.sizes()
    with pytest.raises(PlanError, match="no result yet"):
        plans.apply(plan)


def test_an_action_that_needs_an_actor_says_so(plans: PlanBench) -> None:
    text = "name: tests/actor\nexecute: {actor: tests/thinker}\n"
    plans.parts.actions(plans.repository).create(text, "a test", replace=True)
    plan = asked(plans, "tests/actor")
    assert plan.state is PlanState.ERRORED
    assert "tests/thinker" in str(plan.error)
