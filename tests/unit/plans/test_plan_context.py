"""The context of plans: what actors start with, what they may request, and how much."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from cleveragents.config.settings import Settings
from cleveragents.context.plan_context import tokens_given
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.models.tokens import estimate_text
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from tests.actor_bench import actor, thinker
from tests.actor_plan_bench import (
    ActorPlanBench,
    accept,
    actor_plan_bench,
    answer,
    call,
    executes,
    reviews,
    rule,
    says,
    steps,
    strategizes,
)
from tests.cli_bench import git

COMPLETE = (Phase.EXECUTE, PlanState.COMPLETE)
ALONE = (None, "builtin/executor", None)
GOAL_FILE = '''def reach_goal(steps):
    """Reaches a goal, one step after the other."""
    return sum(steps) // 7
'''


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[ActorPlanBench]:
    with actor_plan_bench(tmp_path) as made:
        root = made.repository
        (root / "goals.py").write_text(GOAL_FILE, encoding="utf-8")
        git(root, "add", ".")
        git(root, "commit", "-qm", "Reach a goal step by step")
        yield made


def limited(bench: ActorPlanBench, **context: object) -> None:
    facts = msgspec.to_builtins(bench.settings)
    facts["context"] = {**facts["context"], **context}
    bench.settings = bench.container.settings = msgspec.convert(facts, Settings)


def results(bench: ActorPlanBench, plan: Plan, tool: str) -> list[ToolCall]:
    return [made for made in bench.calls(plan) if made.tool == tool]


def test_strategist_and_executor_start_with_relevant_context(bench: ActorPlanBench) -> None:
    """The script answers only a model that has seen the definition."""
    shown = {"first_user": r"sum\(steps\) // 7"}
    plan = bench.reached(
        strategizes(steps({"title": "goal", "instructions": "mend the goal"}), when=shown),
        executes(answer(call("write", path="b.txt", content="x")), says("done"), when=shown),
        reviews(accept()),
    )
    assert plan.phase_state == COMPLETE, plan.error


def test_the_executor_sees_the_changed_files(bench: ActorPlanBench) -> None:
    new = GOAL_FILE.replace("// 7", "// 11")
    plan = bench.reached(
        strategizes(
            steps(
                {"title": "first goal", "instructions": "mend the goal"},
                {"title": "second goal", "instructions": "mend the goal", "needs": [1]},
            )
        ),
        executes(
            answer(call("write", path="goals.py", content=new)), says("done"), when={"first_user": "// 7"}
        ),
        executes(
            answer(call("write", path="c.txt", content="x")), says("done"), when={"first_user": "// 11"}
        ),
        reviews(accept()),
    )
    assert plan.phase_state == COMPLETE, plan.error
    assert [made.arguments["path"] for made in bench.calls(plan)] == ["goals.py", "c.txt"]


def test_an_actor_requests_context_history_and_the_budget(bench: ActorPlanBench) -> None:
    plan = bench.reached(
        executes(
            answer(call("request_context", question="reach_goal", budget_tokens=400)),
            answer(call("query_history", question="goal step")),
            answer(call("query_history", path="goals.py", limit=1)),
            answer(call("get_context_budget")),
            says("done"),
        ),
        cast=ALONE,
    )
    assert plan.phase_state == COMPLETE, plan.error
    (asked,) = results(bench, plan, "request_context")
    assert isinstance(asked.result, Mapping)
    assert "sum(steps) // 7" in str(asked.result["text"])
    assert asked.result["files"][0] == "goals.py"
    alike, touching = results(bench, plan, "query_history")
    for made in (alike, touching):
        assert isinstance(made.result, Mapping)
        assert made.result["commits"][0]["message"] == "Reach a goal step by step"
        assert made.result["commits"][0]["paths"] == ("goals.py",)
    (left,) = results(bench, plan, "get_context_budget")
    assert isinstance(left.result, Mapping)
    assert left.result["given"] == asked.result["tokens"] > 0
    assert left.result["left"] == left.result["allowed"] - asked.result["tokens"]


PLANT = """
rm -f .git/objects/info/alternates
ln -s {secret} .git/objects/info/alternates
git config core.bare true
tree=1111111111111111111111111111111111111111
printf 'tree %s\\nauthor A <a> 1 +0000\\ncommitter A <a> 1 +0000\\n\\nx\\n' $tree > commit
name=$(git hash-object -t commit -w --literally commit)
echo $name > .git/HEAD
"""


def test_a_command_that_plants_a_git_directory_learns_nothing_from_context(
    bench: ActorPlanBench, tmp_path: Path
) -> None:
    """The error of git about a commit without a tree quoted every line of the file that alternates led to."""
    secret = tmp_path / "secret"
    secret.write_text("canary-line-one\ncanary-line-two\n", encoding="utf-8")
    plan = bench.reached(
        executes(
            answer(call("command", script=PLANT.format(secret=secret))),
            answer(call("request_context", question="reach_goal", budget_tokens=400)),
            answer(call("query_history", question="goal step")),
            says("done"),
        ),
        cast=ALONE,
    )
    made = bench.calls(plan)
    assert [one.tool for one in made] == ["command", "request_context", "query_history"]
    # Without isolation the command itself may read the file, but the host must not read it for the command.
    assert "canary" not in repr([(one.result, one.error) for one in made[1:]])
    (asked,) = results(bench, plan, "request_context")
    assert "sum(steps) // 7" in str(asked.result), "and the code is found all the same"


def test_limits_the_context_of_a_plan(bench: ActorPlanBench) -> None:
    limited(bench, plan_tokens=300)
    many = [answer(call("request_context", question="reach_goal", budget_tokens=200)) for _ in range(6)]
    plan = bench.reached(executes(*many, says("done")), cast=ALONE)
    made = results(bench, plan, "request_context")
    assert sum(tokens_given([one]) for one in made) <= 300
    refused = [one for one in made if one.state is CallState.FAILED]
    assert refused
    assert "has used its" in str(refused[-1].error)


def test_context_contains_no_secrets(bench: ActorPlanBench) -> None:
    key = "sk-ant-api03-" + "Ab1" * 30
    (bench.repository / "goals.py").write_text(f'{GOAL_FILE}\nGOAL_KEY = "{key}"\n', encoding="utf-8")
    plan = bench.reached(
        executes(answer(call("request_context", question="GOAL_KEY")), says("done")), cast=ALONE
    )
    (asked,) = results(bench, plan, "request_context")
    assert "GOAL_KEY" in str(asked.result)
    assert key not in json.dumps(str(asked.result))


def test_an_actor_without_a_place_for_context_causes_no_search(bench: ActorPlanBench) -> None:
    bench.actors["tests/plain"] = actor(thinker(), name="tests/plain")
    plan = bench.reached(rule(says("done")), cast=(None, "tests/plain", None))
    assert plan.phase_state == COMPLETE, plan.error
    assert not (bench.home / "state" / "index").exists()


def test_starts_without_context_if_there_is_none(bench: ActorPlanBench) -> None:
    """The index cannot be stored, because something else is in its place."""
    (bench.home / "state" / "index").write_text("not a directory", encoding="utf-8")
    plan = bench.reached(executes(says("done")), cast=ALONE)
    assert plan.phase_state == COMPLETE, plan.error
    assert any("context" in said for said in bench.said)


def test_files_and_notes_count_as_context_tokens(bench: ActorPlanBench) -> None:
    for number in range(30):
        path = bench.repository / f"goal_{number}_{'long' * 50}.py"
        path.write_text(f"def reach_goal_{number}(): ...\n", encoding="utf-8")
    plan = bench.reached(
        executes(answer(call("request_context", question="reach_goal", budget_tokens=100)), says("done")),
        cast=ALONE,
    )
    (asked,) = results(bench, plan, "request_context")
    assert isinstance(asked.result, Mapping)
    named = "\n".join([str(asked.result["text"]), *asked.result["files"], *asked.result["notes"]])
    assert estimate_text(named) <= int(asked.result["tokens"]) <= 100


def test_reports_a_first_large_index_once(bench: ActorPlanBench) -> None:
    for number in range(600):
        (bench.repository / f"m{number}.txt").write_text(f"{number}\n", encoding="utf-8")
    plan = bench.reached(executes(says("done")), cast=ALONE)
    assert plan.phase_state == COMPLETE, plan.error
    assert len([said for said in bench.said if "this happens once" in said]) == 1


def test_starting_context_can_be_switched_off(bench: ActorPlanBench) -> None:
    limited(bench, starting_tokens=0)
    plan = bench.reached(executes(says("done")), cast=ALONE)
    assert plan.phase_state == COMPLETE, plan.error
    assert not (bench.home / "state" / "index").exists()
