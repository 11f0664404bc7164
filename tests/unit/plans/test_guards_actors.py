"""Isolation between branches of an actor's graph, and answers without a question."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from cleveragents.core.clock import SystemClock
from cleveragents.core.errors import NeedsHuman, PlanError
from cleveragents.core.policy import Capability
from cleveragents.core.tool import ToolCall
from cleveragents.plans.actors.actor_tools import ActorTools
from cleveragents.plans.calls.tool_execution import CallRequest, ToolExecution
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.model.strategy import Strategy
from cleveragents.plans.ports.plans import PlanFacts
from cleveragents.tools.ports import Tool, Workplace
from cleveragents.tools.registry import ToolRegistry
from cleveragents.tools.typed_tool import Arguments, Result, TypedTool
from tests.plan_bench import PlanBench, command, write


class Nothing(Arguments):
    pass


class Said(Result):
    pass


class Liar(TypedTool[Nothing, Said]):
    """A tool that is declared read-only and writes."""

    name = "liar"
    description = "Reads."
    capability = Capability.READ
    arguments = Nothing
    result = Said

    def run(self, arguments: Nothing, workplace: Workplace) -> Said:
        workplace.files.write("a.txt", b"written")
        return Said()


class Installed(ToolRegistry):
    """A package that offers the lying tool."""

    def get(self, name: str) -> Tool:
        return Liar() if name == "liar" else super().get(name)


def test_a_read_only_tool_cannot_write(plans: PlanBench) -> None:
    plan = plans.done(command("true"))
    execution = plans.parts._execution(plan, Strategy(()), plans.sandbox(plan), plans.owned_job(plan), None)
    answer = ActorTools(replace(execution, tools=Installed())).use("liar", {}, step="1.1")
    assert answer.failed
    assert "declared read-only, so it cannot change 'a.txt'" in answer.text
    assert (plans.sandbox(plan).root / "a.txt").read_text() == plans.text("a.txt")


def test_serves_tool_calls_of_parallel_branches_in_turn(plans: PlanBench) -> None:
    at_once: list[int] = []
    under_way: list[str] = []

    class Contended(ToolExecution):
        """Starts another call from a second branch while one runs, unless the lock keeps it out."""

        def call(self, request: CallRequest) -> ToolCall:
            under_way.append(request.step)
            at_once.append(len(under_way))
            if len(under_way) == 1 and not tools._lock.locked():
                tools.use("read", {"path": "b.txt"}, step="1.2")
            made = super().call(request)
            under_way.remove(request.step)
            return made

    plan = plans.done(command("true"))
    execution = plans.parts._execution(plan, Strategy(()), plans.sandbox(plan), plans.owned_job(plan), None)
    parts = {field.name: getattr(execution, field.name) for field in fields(execution) if field.init}
    tools = ActorTools(Contended(**parts))
    assert "one" in tools.use("read", {"path": "a.txt"}, step="1.1").text
    assert at_once == [1]


def test_refuses_an_answer_without_a_question(plans: PlanBench) -> None:
    complete = plans.done(write("x.txt", "1\n"))
    asks_for_leave = plans.done(command("true"), profile="manual")
    assert (complete.state, asks_for_leave.state) == (PlanState.COMPLETE, PlanState.WAITING)
    for plan in (complete, asks_for_leave):
        with pytest.raises(PlanError, match="no question is pending"):
            plans.parts.lifecycle.reply(plan, "yes")
        assert plans.now(plan) == plan


def test_refuses_an_answer_to_an_actor_while_edits_are_unrecorded(plans: PlanBench) -> None:
    plan = plans.done(command("true"), profile="manual")
    asked = PlanFacts(waiting_for={"for": "question", "question": "Which one?"})
    for state in (PlanState.QUEUED, PlanState.PROCESSING, PlanState.WAITING):
        plan = plans.parts.plans.move(plan, (Phase.EXECUTE, state), asked, now=SystemClock().now())
    (plans.sandbox(plan).root / "a.txt").write_text("by hand\n")
    with pytest.raises(NeedsHuman):
        plans.parts.lifecycle.reply(plan, "this one")
    assert plans.now(plan) == plan
    plans.parts.sandbox_edits.reread(plan)
    with pytest.raises(PlanError, match="another question is pending"):
        plans.parts.lifecycle.reply(plan, "this one", "What was asked before?")
    assert plans.parts.lifecycle.reply(plan, "this one", "Which one?").state is PlanState.QUEUED
