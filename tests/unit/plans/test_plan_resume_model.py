"""A plan continues with the model named at its last resume."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from cleveragents.core.errors import PlanError
from cleveragents.jobs.model.job import JobState
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.run import kind_of_plan
from tests.actor_plan_bench import ActorPlanBench, actor_plan_bench, answer, call, executes, says
from tests.cli_bench import command_line, paint_shop, use_home

COMPLETE = (Phase.EXECUTE, PlanState.COMPLETE)
ALONE = (None, "builtin/executor", None)
WRITES = executes(answer(call("write", path="new.txt", content="new\n")), says("done"))
REFUSED = {"reply": answer(fault={"status": 400})}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[ActorPlanBench]:
    with actor_plan_bench(tmp_path) as made:
        yield made


def test_resume_uses_and_keeps_another_model(bench: ActorPlanBench) -> None:
    first, second = bench.script(REFUSED), bench.script({"times": 1, **REFUSED}, WRITES)
    plan = bench.work(bench.goal(first, cast=ALONE))
    assert plan.state is PlanState.ERRORED
    plan = bench.work(bench.parts.lifecycle.resume(plan, model=second))
    assert plan.state is PlanState.ERRORED
    plan = bench.resume(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert [thought.model for thought in bench.thoughts(plan)] == [first, second, second, second]


def test_a_new_model_keeps_one_job_after_a_crash(bench: ActorPlanBench) -> None:
    good = bench.script(WRITES)
    plan = bench.goal(bench.script(REFUSED), cast=ALONE)
    jobs, clock = bench.container.jobs, bench.container.clock
    here = bench.container.processes.identity("me")
    assert jobs.claim(here, [kind_of_plan(plan.id)], now=clock.now()) is not None
    with pytest.raises(PlanError, match="already running"):
        bench.parts.lifecycle.resume(plan, model=good)
    plan = bench.goal(bench.script(REFUSED), cast=ALONE)
    assert jobs.claim(replace(here, pid=999_999_999), [kind_of_plan(plan.id)], now=clock.now()) is not None
    resumed = bench.parts.lifecycle.resume(plan, model=good)
    assert plan.job_id != resumed.job_id
    assert jobs.get(str(plan.job_id)).state is JobState.CANCELLED
    plan = bench.work(resumed)
    assert plan.phase_state == COMPLETE, plan.error
    assert {thought.model for thought in bench.thoughts(plan)} == {good}


def test_the_command_line_checks_the_model_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    use_home(monkeypatch, tmp_path / "home", tmp_path / "state")
    monkeypatch.chdir(paint_shop(tmp_path / "shop"))
    priced = {"input_price": 1.0, "output_price": 1.0}
    models = {"bad": ([REFUSED], priced), "good": ([WRITES], priced), "free": ([WRITES], {})}
    for name, (rules, facts) in models.items():
        (tmp_path / name).write_text(json.dumps({"version": 1, "facts": facts, "rules": rules}))
    with command_line(monkeypatch, capfd) as agents:
        asked = ("--model", f"scripted/{tmp_path}/bad", "--actor", "builtin/executor", "--max-usd", "1")
        ran = agents("run", "Write it", *asked)
        assert ran.code != 0
        for wrong in ("nonsense", f"scripted/{tmp_path}/none", f"scripted/{tmp_path}/free"):
            assert agents("plan", "resume", ran.id, "--model", wrong).code == 2
        again = agents("plan", "resume", ran.id, "--model", f"scripted/{tmp_path}/good", "--yes")
        assert again.code == 0, again.err
        assert (tmp_path / "shop/new.txt").read_text() == "new\n"
        plain = agents("run", "--action", "builtin/command", "--", "false")
        refused = agents("plan", "resume", plain.id, "--model", f"scripted/{tmp_path}/good")
        assert (refused.code, "a model needs an actor" in refused.err) == (2, True)
