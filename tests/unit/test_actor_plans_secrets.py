"""What plans of actors keep, say and show a model: files as they are, and no secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from cleveragents.application.services.actor_tools import ActorTools
from cleveragents.domain.check import CheckVerdict
from cleveragents.domain.decision import Alternative
from cleveragents.domain.plan import Phase, PlanState
from cleveragents.domain.policy import profile
from cleveragents.domain.strategy import Strategy, Task
from tests.actor_plan_bench import (
    ActorPlanBench,
    accept,
    actor_plan_bench,
    answer,
    call,
    executes,
    reviews,
    says,
    steps,
    strategizes,
)
from tests.plan_bench import PlanBench
from tests.plan_bench import command as a_command

KEY = "sk-0123456789abcdefghij"
PLAIN = 'password = load_password("db")\nself.token = token\napi_key=os.environ["X"]\n'
CODE = f'{PLAIN}key = "{KEY}"\n'


@pytest.fixture
def worker(plans: PlanBench) -> ActorTools:
    plan = plans.done(a_command("true"))
    sandbox = plans.parts.sandboxes.open(plan.id)
    (sandbox.root / "code.py").write_text(CODE)
    (sandbox.root / "plain.py").write_text(PLAIN)
    execution = plans.parts._execution(plan, Strategy(()), sandbox, plans.owned_job(plan, None), None)
    return ActorTools(replace(execution, policy=profile("full-auto")))


def test_a_file_is_read_as_it_is_but_for_its_keys(worker: ActorTools) -> None:
    read = worker.use("read", {"path": "code.py"}, step="1.1").text
    found = worker.use("grep", {"pattern": "token|key"}, step="1.2").text
    assert CODE.replace(KEY, "***") in read
    assert "self.token = token" in found
    assert KEY not in read + found


def test_what_a_command_prints_is_masked_by_name_too(worker: ActorTools) -> None:
    printed = worker.use("command", {"script": f"echo PASSWORD=abcdef {KEY}"}, step="1.1").text
    assert "PASSWORD=***" in printed
    assert "abcdef" not in printed.replace(KEY, "")
    assert KEY not in printed


def test_a_file_that_was_read_can_be_written_back(worker: ActorTools) -> None:
    read = worker.use("read", {"path": "plain.py"}, step="1.1").value
    assert isinstance(read, Mapping)
    worker.use("write", {"path": "plain.py", "content": f"{read['content']}# more\n"}, step="1.2")
    assert (worker.execution.sandbox.root / "plain.py").read_text() == PLAIN + "# more\n"


# ── Plans ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[ActorPlanBench]:
    with actor_plan_bench(tmp_path) as made:
        yield made


def test_what_a_model_decides_and_plans_is_kept_and_said_without_keys(bench: ActorPlanBench) -> None:
    title = f"use {KEY}"
    made = {
        "question": f"With {KEY}?",
        "choice": f"yes, {KEY}",
        "rationale": f"{KEY} works",
        "alternatives": [{"choice": f"not {KEY}", "reason": f"{KEY} is old"}],
    }
    model = bench.script(
        strategizes(steps({"title": title, "instructions": f"{CODE}so"}, decisions=[made])),
        executes(says("done")),
    )
    plan = bench.work(bench.goal(model))
    assert plan.standing == (Phase.EXECUTE, PlanState.COMPLETE), plan.error
    kept = bench.parts.thinking.decisions.of_plan(plan.id)[1].made
    assert (kept.question, kept.choice, kept.rationale) == ("With ***?", "yes, ***", "*** works")
    assert kept.alternatives == (Alternative("not ***", "*** is old"),)
    task = Strategy.from_json(plan.strategy).tasks[0]
    assert task == Task("use ***", CODE.replace(KEY, "***") + "so")
    assert "planned: 1. use ***" in bench.said
    assert KEY not in "".join(bench.said)


def test_the_reviewer_sees_the_changes_without_keys(bench: ActorPlanBench) -> None:
    plan = bench.reached(
        strategizes(steps({"title": "t", "instructions": "i"})),
        executes(answer(call("write", path="code.py", content=CODE)), says("done")),
        reviews(accept(), when={"user": r'\+key = "\*\*\*"'}),
    )
    assert plan.standing == (Phase.EXECUTE, PlanState.COMPLETE), plan.error
    assert [run.verdict for run in bench.parts.check_runs.of_plan(plan.id)] == [CheckVerdict.PASSED]


def test_what_a_repository_tells_actors_is_told_without_keys(bench: ActorPlanBench) -> None:
    model = bench.script(executes(says("done"), when={"user": r"The key is \*\*\*\."}))
    alone = (None, "builtin/executor", None)
    plan = bench.work(bench.goal(model, cast=alone, invariants=(f"The key is {KEY}.",)))
    assert plan.standing == (Phase.EXECUTE, PlanState.COMPLETE), plan.error
