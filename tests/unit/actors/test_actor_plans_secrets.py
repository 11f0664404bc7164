"""Data that plans with actors store, print and send to a model: files unchanged, and no secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from cleveragents.core.actions.model import CheckVerdict
from cleveragents.core.decision import Alternative
from cleveragents.core.errors import NeedsHuman
from cleveragents.core.policy import profile
from cleveragents.core.tool import CallState
from cleveragents.plans.actors.actor_tools import ActorTools
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.model.strategy import Strategy, Task
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


def test_a_file_is_read_unchanged_except_for_keys(worker: ActorTools) -> None:
    read = worker.use("read", {"path": "code.py"}, step="1.1").text
    found = worker.use("grep", {"pattern": "token|key"}, step="1.2").text
    assert CODE.replace(KEY, "***") in read
    assert "self.token = token" in found
    assert KEY not in read + found


def test_command_output_is_masked_by_name_too(worker: ActorTools) -> None:
    printed = worker.use("command", {"script": f"echo PASSWORD=abcdef {KEY}"}, step="1.1").text
    assert "PASSWORD=***" in printed
    assert "abcdef" not in printed.replace(KEY, "")
    assert KEY not in printed


def test_arguments_are_recorded_masked_and_used_unmasked(worker: ActorTools) -> None:
    worker.use("write", {"path": "new.py", "content": CODE}, step="1.1")
    worker.use("command", {"script": f"printf 'PASSWORD=abcdefgh {KEY}' > out.txt"}, step="1.2")
    worker.refuse("fly", {"to": KEY}, "there is no tool fly", step="1.3")
    root, execution = worker.execution.sandbox.root, worker.execution
    assert (root / "new.py").read_text() == CODE
    assert (root / "out.txt").read_text() == f"PASSWORD=abcdefgh {KEY}"
    written, ran, refused = execution.calls.of_plan(execution.sandbox.plan_id)[-3:]
    assert written.arguments == {"path": "new.py", "content": CODE.replace(KEY, "***")}
    assert "abcdefgh" not in str(ran.arguments)
    assert KEY not in str((ran.arguments, refused.arguments))


def test_an_interrupted_call_is_repeated_with_the_same_arguments(worker: ActorTools) -> None:
    """Not with the masked arguments of the record."""
    execution = worker.execution
    masked = {"path": "new.py", "content": CODE.replace(KEY, "***")}
    execution.calls.add(
        execution.sandbox.plan_id,
        "write",
        masked,
        step="1.1",
        state=CallState.STARTED,
        now=execution.clock.now(),
    )
    assert not worker.use("write", {"path": "new.py", "content": CODE}, step="1.1").failed
    assert (execution.sandbox.root / "new.py").read_text() == CODE


def test_approval_for_one_call_does_not_cover_another(worker: ActorTools) -> None:
    careful = ActorTools(replace(worker.execution, policy=profile("manual")))
    plan_id, calls = worker.execution.sandbox.plan_id, worker.execution.calls
    with pytest.raises(NeedsHuman):
        careful.use("write", {"path": "new.py", "content": CODE}, step="1.1")
    asked = calls.of_plan(plan_id)[-1]
    calls.answer(plan_id, asked.number, "granted", now=worker.execution.clock.now())
    with pytest.raises(NeedsHuman):
        careful.use("write", {"path": "other.py", "content": CODE}, step="1.1")
    root = worker.execution.sandbox.root
    assert not (root / "other.py").exists()


def test_approval_covers_exactly_the_requested_call(worker: ActorTools) -> None:
    careful = ActorTools(replace(worker.execution, policy=profile("manual")))
    plan_id, calls = worker.execution.sandbox.plan_id, worker.execution.calls
    arguments = {"path": "new.py", "content": CODE, "executable": False}
    with pytest.raises(NeedsHuman):
        careful.use("write", arguments, step="1.1")
    asked = calls.of_plan(plan_id)[-1]
    assert asked.arguments["content"] == CODE, "a person decides by what is written"
    calls.answer(plan_id, asked.number, "granted", now=worker.execution.clock.now())
    assert not careful.use("write", arguments, step="1.1").failed
    assert (worker.execution.sandbox.root / "new.py").read_text() == CODE


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


def test_decisions_and_plans_of_a_model_are_stored_masked(bench: ActorPlanBench) -> None:
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
    assert plan.phase_state == (Phase.EXECUTE, PlanState.COMPLETE), plan.error
    kept = bench.parts.actor_parts.decisions.of_plan(plan.id)[1].made
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
    assert plan.phase_state == (Phase.EXECUTE, PlanState.COMPLETE), plan.error
    assert [run.verdict for run in bench.parts.check_runs.of_plan(plan.id)] == [CheckVerdict.PASSED]


def test_instructions_of_a_repository_are_masked(bench: ActorPlanBench) -> None:
    model = bench.script(executes(says("done"), when={"user": r"The key is \*\*\*\."}))
    alone = (None, "builtin/executor", None)
    plan = bench.work(bench.goal(model, cast=alone, invariants=(f"The key is {KEY}.",)))
    assert plan.phase_state == (Phase.EXECUTE, PlanState.COMPLETE), plan.error
