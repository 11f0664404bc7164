"""The tool `decide`: only for an actor of a plan, recorded once however often its call is interrupted."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from cleveragents.core.decision import Decision, DecisionState, NewDecision
from cleveragents.core.errors import InvalidToolCall, ToolRefused, UnknownTool
from cleveragents.core.policy import Capability
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.plans.ports.decisions import DecisionStore
from cleveragents.plans.tools.conflict_tools import DECIDE, DecideTools, DecisionTarget
from cleveragents.tools.files.confined_files import ConfinedFiles
from cleveragents.tools.ports import Workplace

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Kept:
    """Recorded decisions, by key."""

    def __init__(self) -> None:
        self.by_key: dict[str, Decision] = {}

    def add(self, plan_id: str, made: list[NewDecision], *, key: str, now: datetime) -> list[Decision]:
        number = len(self.by_key) + 1
        new = Decision(plan_id, number, made[0], DecisionState.ACTIVE, now)
        return [self.by_key.setdefault(key, new)]

    def of_plan(self, plan_id: str) -> list[Decision]:
        return [*self.by_key.values()]


def made(number: int, tool: str, state: CallState) -> ToolCall:
    return ToolCall("p", number, f"call-{number}", tool, {}, state, NOW)


def decide(kept: Kept, calls: list[ToolCall], tmp_path: Path, **arguments: Any) -> Any:
    store = cast("DecisionStore", kept)
    tools = DecideTools(DecisionTarget("p", "team/worker", store, lambda: calls, lambda: NOW))
    place = Workplace(ConfinedFiles(tmp_path), cast("Any", None), CancellationToken())
    return tools.get(DECIDE).call({"question": "Which?", "choice": "this", **arguments}, place)


def test_a_decision_belongs_to_the_running_call(tmp_path: Path) -> None:
    kept = Kept()
    calls = [
        made(1, DECIDE, CallState.ENDED),
        made(2, DECIDE, CallState.STARTED),
        made(3, "read", CallState.STARTED),
    ]
    # Interrupted and repeated, it stays the same.
    assert [decide(kept, calls, tmp_path)["number"] for _ in range(2)] == [1, 1]
    (decision,) = kept.of_plan("p")
    assert (decision.made.checkpoint, decision.made.made_by) == (2, "team/worker")


def test_refuses_a_decision_outside_of_a_plan(tmp_path: Path) -> None:
    with pytest.raises(ToolRefused, match="only an actor of a plan can use it"):
        decide(Kept(), [made(1, DECIDE, CallState.ENDED)], tmp_path)
    with pytest.raises(InvalidToolCall):
        decide(Kept(), [], tmp_path, question="")


def test_decide_only_reads_and_is_the_only_tool(tmp_path: Path) -> None:
    tools = DecideTools(cast("DecisionTarget", None))
    (spec,) = tools.specs()
    assert (tools.names(), spec.name, spec.writes, tools.problems()) == ((DECIDE,), DECIDE, False, ())
    arguments = {"question": "Which?", "choice": "this"}
    asked = tools.capability_of(tools.get(DECIDE), arguments, ConfinedFiles(tmp_path))
    assert asked is Capability.READ
    with pytest.raises(UnknownTool):
        tools.get("read")
