"""Plans with actors over a real connection, with a server that misbehaves: each ends clearly and in time."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cleveragents.jobs.model.job import JobState
from cleveragents.jobs.ports import JobHandler
from cleveragents.models.script_document import read_script
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.run import kind_of_plan
from cleveragents.testing.scripted_server import ScriptedServer, ServerStatistics
from tests.actor_bench import actor, thinker
from tests.actor_plan_bench import ActorPlanBench, actor_plan_bench, answer, call, rule, says
from tests.command_trees import alive

COMPLETE = (Phase.EXECUTE, PlanState.COMPLETE)
MODEL = "openai/scripted"
DONE = says("done")
WRITE = answer(call("write", path="new.txt", content="new\n"))
GRACE_SECONDS = 30.0


class Wire:
    """A server with a script, and plans whose only actor calls it."""

    def __init__(self, bench: ActorPlanBench, server: ScriptedServer) -> None:
        self.bench = bench
        self.server = server
        bench.actors["tests/worker"] = actor(
            thinker(tools=("read", "write", "command"), max_output_tokens=2_000), name="tests/worker"
        )

    def goal(self, **facts: Any) -> Plan:
        return self.bench.goal(MODEL, cast=(None, "tests/worker", None), **facts)

    def reached(self, **facts: Any) -> Plan:
        plan = self.bench.work(self.goal(**facts))
        self.server.wait_until(lambda seen: seen.open == 0)
        assert self.bench.spent(plan).reserved.tokens == 0
        return plan


@contextmanager
def wire(home: Path, *rules: dict[str, Any], **models: Any) -> Iterator[Wire]:
    script = read_script(json.dumps({"version": 1, "rules": list(rules)}), "a script")
    with ScriptedServer(script) as server:
        settings = {"base_url": server.base_url, "timeout_seconds": 30.0, "concurrency": 64, **models}
        with actor_plan_bench(home, models=settings) as bench:
            yield Wire(bench, server)


def once(**facts: Any) -> dict[str, Any]:
    """Return an answer for the first request only."""
    return {"times": 1, "reply": answer(**facts)}


# Failures that disappear on a retry.
PASSING = {
    "a 429 that says when to come back": once(fault={"status": 429, "retry_after_seconds": 0.05}),
    "a 500": once(fault={"status": 500}),
    "a connection cut before the first word": once(fault={"cut_after": 0}),
}


@pytest.mark.parametrize("trouble", PASSING)
def test_temporary_failures_are_retried(tmp_path: Path, trouble: str) -> None:
    with wire(tmp_path, PASSING[trouble], rule(WRITE, DONE), retries=2) as made:
        plan = made.reached()
        assert plan.phase_state == COMPLETE, plan.error
        assert made.bench.tools_of(plan) == ["write"]
        assert made.server.statistics().requests == 3
        # Whether or not a failed attempt is paid for separately, each reservation is settled once.
        states = [thought.state for thought in made.bench.thoughts(plan)]
        assert states in (["settled"] * 2, ["settled"] * 3)


# Permanent failures, and the plan's error.
LASTING: dict[str, tuple[dict[str, Any], str]] = {
    "a storm of 429": (
        {"reply": answer(fault={"status": 429, "retry_after_seconds": 0.01})},
        "does not answer",
    ),
    "a 500 whenever asked": ({"reply": answer(fault={"status": 500})}, "does not answer"),
    "a 401": ({"reply": answer(fault={"status": 401, "message": "bad key"})}, "key"),
    "a connection cut in the middle": (
        {"reply": answer(text="some words that are not all", fault={"cut_after": 2})},
        "does not answer",
    ),
    "what is no answer at all": ({"reply": answer(fault={"raw": ["<html>", "{}"]})}, ""),
    "calls of a tool that there is not": (
        {"reply": answer(call("fly", to="the moon"))},
        "there is no tool 'fly'",
    ),
    "calls that are no JSON": (
        {"reply": answer({"tool": "write", "raw": '{"path": "new.txt", "content": '})},
        "tests/worker was stopped",
    ),
    "arguments of the wrong type": (
        {"reply": answer(call("write", path=7, content=["x"]))},
        "tests/worker was stopped",
    ),
    "nothing but silence": ({"reply": says("")}, "the answer is empty"),
}


@pytest.mark.parametrize("trouble", LASTING)
def test_a_failed_check_ends_the_plan_with_a_reason(tmp_path: Path, trouble: str) -> None:
    reply, said = LASTING[trouble]
    with wire(tmp_path, reply, retries=1) as made:
        plan = made.reached()
        assert plan.state is PlanState.ERRORED
        assert plan.error
        assert said in plan.error
        assert made.bench.sandbox(plan).scan() == {}
        assert made.server.statistics().requests <= 6


def test_a_server_that_never_answers_is_not_waited_for_beyond_the_deadline(tmp_path: Path) -> None:
    for seconds in (0.5, 5.0, 30.0):  # on a busy machine, a correct answer may need more than the first
        home = tmp_path / f"{seconds:g}"
        home.mkdir()
        with wire(home, once(fault={"hang": True}), rule(WRITE, DONE), timeout_seconds=seconds) as made:
            plan = made.reached()
            assert plan.state is PlanState.ERRORED
            assert f"no answer within {seconds:g} s" in str(plan.error)
            plan = made.bench.resume(plan)
            if plan.phase_state == COMPLETE:
                break
    assert plan.phase_state == COMPLETE, plan.error


@pytest.mark.parametrize("repeat", [10_000_000], ids=["10 MB"])
def test_an_answer_is_read_up_to_its_limit(tmp_path: Path, repeat: int) -> None:
    """The server ignores its token limit; the client stops reading in the middle of its answer."""
    endless = {"reply": {"text": "x", "repeat": repeat}, "times": 1}
    with wire(tmp_path, endless, rule(WRITE, DONE)) as made:
        plan = made.reached()
        assert plan.phase_state == COMPLETE, plan.error
        assert made.bench.tools_of(plan) == ["write"]
        assert made.server.statistics().abandoned == 1
        sent = [sum(len(str(message)) for message in body["messages"]) for body in made.server.bodies()]
        assert max(sent) < 500_000


def test_a_model_corrects_malformed_calls(tmp_path: Path) -> None:
    """cardstack/boxel#6101: a model was not informed that its call had failed, and made it again."""
    broken = answer({"tool": "write", "raw": "{'path': 'new.txt'}"})
    with wire(
        tmp_path, rule(broken, answer(call("wriet", path="x")), answer(call("write", path=1)), WRITE, DONE)
    ) as made:
        plan = made.reached()
        assert plan.phase_state == COMPLETE, plan.error
        told = [body["messages"][-1]["content"] for body in made.server.bodies()[1:]]
        assert "was not called" in told[0]
        assert "there is no tool 'wriet'" in told[1]
        assert "content" in told[2]
        # Calls that were not made also appear among the plan's calls.
        assert made.bench.states_of(plan) == ["failed", "failed", "failed", "ended"]


# ── Cancelling ────────────────────────────────────────────────────────────────────────────────────


def cancelled_when(made: Wire, plan: Plan, ready: Callable[[ServerStatistics], bool]) -> Plan:
    """Cancel from another thread as soon as the condition holds; return when the plan's
    worker is idle again.
    """
    bench = made.bench
    worker = bench.container.worker({kind_of_plan(plan.id): JobHandler(bench.handler())}, name="w")
    worker.start()
    made.server.wait_until(ready)
    bench.cancel(plan)
    made.server.wait_until(lambda seen: seen.open == 0, GRACE_SECONDS)
    worker.run_until_idle(30.0)
    return bench.now(plan)


def test_a_cancel_closes_a_connection_that_still_streams(tmp_path: Path) -> None:
    """langchain-ai/langgraph#5682; pydantic/pydantic-ai#3960: a cancelled call continued.
    strands-agents/harness-sdk#4419: a cancelled call was reported as complete.
    """
    slow = {"reply": {"text": "word " * 1000, "piece_seconds": 0.5}}
    with wire(tmp_path, slow) as made:
        plan = cancelled_when(made, made.goal(), lambda seen: seen.requests == 1)
        assert plan.state is PlanState.CANCELLED
        seen = made.server.statistics()
        assert (seen.requests, seen.abandoned, seen.open) == (1, 1, 0)
        job = made.bench.container.jobs.get(str(plan.job_id))
        assert job.state is JobState.CANCELLED
        assert made.bench.spent(plan).reserved.tokens == 0
        assert made.bench.cancel(plan) == plan
        assert not made.bench.container.actor_runner._bridge._active_tasks


def test_a_cancel_between_retries_is_noticed(tmp_path: Path) -> None:
    storm = {"reply": answer(fault={"status": 429, "retry_after_seconds": 20.0})}
    with wire(tmp_path, storm, retries=5) as made:
        plan = cancelled_when(made, made.goal(), lambda seen: seen.answered == 1)
        assert plan.state is PlanState.CANCELLED
        assert made.server.statistics().requests == 1
        assert made.bench.spent(plan).reserved.tokens == 0


def test_a_cancel_ends_the_command_that_an_actor_has_started(tmp_path: Path) -> None:
    """langchain-ai/langgraph#5682; pydantic/pydantic-ai#3960: a tool outlived the cancel."""
    begun = tmp_path / "begun"
    token = secrets.randbelow(10**9) + 10**9
    script = f"echo half > half.txt; : {token}; mkfifo go; touch {begun}; read x < go"
    with wire(tmp_path, rule(answer(call("command", script=script)), DONE)) as made:
        plan = cancelled_when(made, made.goal(), lambda seen: begun.exists())
        assert plan.state is PlanState.CANCELLED
        assert alive(token) == []
        assert made.bench.states_of(plan) == ["failed"]
        assert "cancelled" in str(made.bench.calls(plan)[0].error)
        assert made.server.statistics().requests == 1


# ── Many ──────────────────────────────────────────────────────────────────────────────────────────

MANY = 32


def test_thirty_two_plans_at_once_each_have_their_own(tmp_path: Path) -> None:
    """A quarter of their calls fail once; every plan still completes once."""
    script = [
        {"every": 4, "reply": answer(fault={"status": 503})},
        rule(WRITE, says("done")),
    ]
    with wire(tmp_path, *script, retries=8) as made:
        bench = made.bench
        plans = [made.goal() for _ in range(MANY)]
        run = bench.handler()
        kinds = {kind_of_plan(plan.id): JobHandler(run) for plan in plans}
        worker = bench.container.worker(kinds, name="many")
        worker.start()
        worker.run_until_idle(110.0)
        made.server.wait_until(lambda seen: seen.open == 0)
        for plan in plans:
            now = bench.now(plan)
            assert now.phase_state == COMPLETE, now.error
            assert bench.tools_of(plan) == ["write"]
            assert [thought.state for thought in bench.thoughts(plan)] == ["settled"] * 2
            assert bench.spent(plan).reserved.tokens == 0
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("cleveragents-")]
