"""The tools of an actor, and the answers it gets when it calls one."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cleveragents.core.errors import BudgetExhausted, Cancelled, NeedsHuman, UnknownTool
from cleveragents.core.json_value import JsonValue
from cleveragents.core.policy import READ_ONLY, Capability, Policy, profile
from cleveragents.core.tool import CallState, ToolSpec
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.plans.actors.actor_tools import ActorTools
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.model.strategy import Strategy
from cleveragents.plans.store.sql_plan_records import SqlCallStore
from cleveragents.tools.ports import SandboxFiles, Tool, Workplace
from cleveragents.tools.tool_results import MOST_CHARACTERS, cut, result_text
from tests.plan_bench import PlanBench, command


def tools(
    plans: PlanBench, policy: Policy, token: CancellationToken | None = None
) -> tuple[ActorTools, Plan]:
    plan = plans.done(command("true"))
    sandbox = plans.parts.sandboxes.open(plan.id)
    job = plans.owned_job(plan, token)
    execution = plans.parts._execution(plan, Strategy(()), sandbox, job, None)
    return ActorTools(replace(execution, policy=policy)), plan


def test_a_read_only_run_has_only_read_only_tools(plans: PlanBench) -> None:
    reader, _ = tools(plans, READ_ONLY)
    assert [spec.name for spec in reader.specs(["*"])] == ["glob", "grep", "list", "read"]
    assert [spec.name for spec in reader.specs(["read", "write", "read"])] == ["read"]
    with pytest.raises(UnknownTool):
        reader.specs(["reed"])


def test_a_denied_tool_says_so_and_does_nothing(plans: PlanBench) -> None:
    reader, plan = tools(plans, READ_ONLY)
    answer = reader.use("write", {"path": "a.txt", "content": "x"}, step="1.1")
    assert answer.failed
    assert "read-only" in answer.text
    assert not plans.parts.history.changes(plan.id)
    denied = plans.parts.history.calls(plan.id)[-1]
    assert (denied.tool, denied.state, denied.error) == ("write", CallState.FAILED, answer.text)


class Watched:
    """Records calls and checks that they come one at a time."""

    def __init__(self, calls: SqlCallStore) -> None:
        self._calls = calls
        self.lock: threading.Lock | None = None
        self.alone: list[bool] = []

    def __getattr__(self, name: str) -> Any:
        assert self.lock is not None
        self.alone.append(self.lock.locked())
        return getattr(self._calls, name)


def test_a_refused_call_waits_for_its_turn(plans: PlanBench) -> None:
    worker, _ = tools(plans, profile("full-auto"))
    calls = Watched(worker.execution.calls)
    worker = ActorTools(replace(worker.execution, calls=calls))
    calls.lock = worker._lock
    worker.refuse("fly", {}, "there is no tool 'fly'", step="1.1")
    assert calls.alone
    assert all(calls.alone)


def test_a_refused_call_is_recorded_once(plans: PlanBench) -> None:
    worker, plan = tools(plans, profile("full-auto"))
    before = len(plans.parts.history.calls(plan.id))
    for _ in range(2):
        worker.refuse("fly", {"to": "the moon"}, "there is no tool 'fly'", step="1.1")
    *_, kept = made = plans.parts.history.calls(plan.id)
    assert len(made) == before + 1
    assert (kept.tool, kept.state, kept.error) == ("fly", CallState.FAILED, "there is no tool 'fly'")


class Waiting:
    """A tool that never answers and has no timeout."""

    spec = ToolSpec("far", "d", Capability.READ, {}, {}, writes=False, runs_commands=False)

    def capability_of(self, arguments: Mapping[str, JsonValue], files: SandboxFiles) -> Capability:
        return Capability.READ

    def call(self, arguments: Mapping[str, JsonValue], workplace: Workplace) -> JsonValue:
        assert workplace.stop.wait(60)
        workplace.stop.raise_if_cancelled()
        return "never"


class One:
    """A source of that one tool."""

    def get(self, name: str) -> Waiting:
        return Waiting()

    def capability_of(
        self, tool: Tool, arguments: Mapping[str, JsonValue], files: SandboxFiles
    ) -> Capability:
        return Capability.READ


def test_a_tool_without_a_timeout_stops_at_the_limit_of_its_actor(plans: PlanBench) -> None:
    worker, plan = tools(plans, profile("full-auto"))
    worker = ActorTools(replace(worker.execution, tools=One()), seconds_left=lambda: 600.0)
    over = time.monotonic() + 0.2
    answer = worker.use("far", {}, step="1.1", seconds_left=lambda: over - time.monotonic())
    assert (answer.failed, "the time limit was reached" in answer.text) == (True, True)
    assert plans.parts.history.calls(plan.id)[-1].state is CallState.FAILED
    later = worker.use("far", {}, step="1.2", seconds_left=lambda: over - time.monotonic())
    assert (later.failed, "the actor is out of time" in later.text) == (True, True)
    assert plans.parts.history.calls(plan.id)[-1].step == "1.1"


def test_a_finished_call_is_not_repeated(plans: PlanBench) -> None:
    worker, plan = tools(plans, profile("full-auto"))
    first = worker.use("command", {"script": "echo more >> b.txt; cat b.txt"}, step="1.1")
    again = worker.use("command", {"script": "echo more >> b.txt; cat b.txt"}, step="1.1")
    assert first == again
    assert "alpha\nmore" in first.text
    assert (plans.parts.sandboxes.open(plan.id).root / "b.txt").read_text() == "alpha\nmore\n"


def test_a_refusal_of_a_tool_is_a_failed_answer(plans: PlanBench) -> None:
    worker, _ = tools(plans, profile("full-auto"))
    missing = worker.use("read", {"path": "nowhere.txt"}, step="1.1")
    wrong = worker.use("read", {"pth": "a.txt"}, step="1.2")
    unknown = worker.use("reed", {"path": "a.txt"}, step="1.3")
    assert all(answer.failed for answer in (missing, wrong, unknown))
    assert "did you mean 'path'?" in wrong.text
    assert "read" in unknown.text


def test_requests_approval_and_answers_a_denial(plans: PlanBench) -> None:
    worker, plan = tools(plans, profile("manual"))
    arguments = {"path": "new.txt", "content": "x"}
    with pytest.raises(NeedsHuman):
        worker.use("write", arguments, step="1.1")
    asked = plans.parts.lifecycle.asking(plan)
    assert asked is not None
    plans.parts.calls.answer(plan.id, asked.number, "denied", now=plans.container.clock.now())
    for _ in range(2):
        answer = worker.use("write", arguments, step="1.1")
        assert answer.failed
        assert "denied" in answer.text


def test_a_cancel_leaves_the_run(plans: PlanBench) -> None:
    token = CancellationToken()
    worker, _ = tools(plans, profile("full-auto"), token)
    token.cancel("enough")
    with pytest.raises(Cancelled):
        worker.use("read", {"path": "a.txt"}, step="1.1")


def test_a_command_runs_no_longer_than_the_plan_may_when_its_turn_comes(plans: PlanBench) -> None:
    worker, plan = tools(plans, profile("full-auto"))
    turns: list[bool] = []

    def seconds_left() -> float:
        turns.append(worker._lock.locked())
        return 0.2

    worker = replace(worker, seconds_left=seconds_left)
    answer = worker.use("command", {"script": "sleep 600"}, step="1.1")
    assert "timed_out: true" in answer.text.lower(), answer.text
    assert turns == [True]
    assert plans.parts.history.calls(plan.id)[-1].ended_at is not None


def test_starts_no_call_without_time(plans: PlanBench) -> None:
    worker, plan = tools(plans, profile("full-auto"))
    before = plans.parts.history.calls(plan.id)
    with pytest.raises(BudgetExhausted, match="time"):
        replace(worker, seconds_left=lambda: 0.0).use("read", {"path": "a.txt"}, step="1.1")
    assert plans.parts.history.calls(plan.id) == before


def test_an_interrupted_call_starts_again(plans: PlanBench) -> None:
    """The time between the two starts does not count: nothing ran."""
    worker, plan = tools(plans, profile("full-auto"))
    now = plans.container.clock.now()
    for step, tool in (("1.1", "read"), ("1.2", "write")):
        arguments = {"path": "a.txt"} if tool == "read" else {"path": "n.txt", "content": "n"}
        plans.parts.calls.add(
            plan.id, tool, arguments, step=step, state=CallState.STARTED, now=now - timedelta(days=3)
        )
        assert not worker.use(tool, arguments, step=step).failed
        assert plans.parts.history.calls(plan.id)[-1].started_at >= now


def test_shows_long_text_of_a_result_raw() -> None:
    result = {"exit_code": 1, "output": "a\nb", "truncated": False, "seconds": 0.5, "lines": (), "note": ""}
    assert result_text(result) == "exit_code: 1\nseconds: 0.5\na\nb"
    assert result_text({"path": "ü.txt", "replacements": 2}) == "path: ü.txt\nreplacements: 2"
    assert result_text({"truncated": False}) == "done"
    assert result_text(("a", 1)) == '["a", 1]'
    assert result_text("as it is") == "as it is"


def test_long_text_keeps_its_beginning_and_its_end() -> None:
    text = "b" + "x" * 100_000 + "e"
    shown = result_text({"content": text})
    assert len(shown) < MOST_CHARACTERS + 200
    assert (shown[0], shown[-1]) == ("b", "e")
    assert "68,002 characters omitted" in shown
    assert cut("short") == "short"
