"""The tools `resolve`, for conflicts of a merge or a rebase, and `decide`, for decisions of an executor.

The checkpoint of an executor's decision is its `decide` call: a correction reverts all work since that call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pydantic import Field

from cleveragents.changes.model.merge_conflict import RESOLVE, Take, resolved_result
from cleveragents.core.decision import Alternative, DecisionState, NewDecision
from cleveragents.core.errors import ToolRefused
from cleveragents.core.json_value import thaw
from cleveragents.core.policy import Capability
from cleveragents.core.text.redaction import redact_content_text
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.conflicts.resolution import resolution_of
from cleveragents.plans.history import PlanHistory
from cleveragents.plans.ports.decisions import DecisionStore
from cleveragents.sandboxes.git_sandbox import Sandbox
from cleveragents.tools.ports import FixedTools, Workplace
from cleveragents.tools.typed_tool import Arguments, Result, TypedTool

__all__ = [
    "DECIDE",
    "ConflictEnvironment",
    "ConflictTools",
    "DecideTools",
    "DecisionTarget",
    "running_call",
]


DECIDE = "decide"
_LONGEST = 2_000


@dataclass(frozen=True, slots=True)
class ConflictEnvironment:
    """The history and the sandbox of the plan with the conflicts."""

    history: PlanHistory
    sandbox: Sandbox


class ResolveArguments(Arguments):
    path: str = Field(min_length=1, description="the file with the conflict, as the task names it")
    take: Literal["ours", "theirs", "edited"] = Field(
        description="`edited`: keep the file as it is now, without conflict markers; `ours`: the version of "
        "this plan; `theirs`: the version that was merged. In text with conflict markers, a side "
        "replaces only the marked places."
    )


class EndedConflict(Result):
    merge: int
    index: int


class ResolveResult(Result):
    path: str
    take: str
    ended: list[EndedConflict] = Field(description="the conflicts that this call resolved")
    tree: str
    files: list[str] = Field(description="the files that this call changed")


class ResolveTool(TypedTool[ResolveArguments, ResolveResult]):
    name = RESOLVE
    description = "Resolve a conflict of a merge. The plan cannot finish while a conflict is open."
    capability = Capability.EDIT
    writes = True
    runs_commands = True
    arguments = ResolveArguments
    result = ResolveResult

    def __init__(self, ground: ConflictEnvironment) -> None:
        self._ground = ground

    def run(self, arguments: ResolveArguments, workplace: Workplace) -> ResolveResult:
        ground = self._ground
        sandbox = ground.sandbox
        take = Take(arguments.take)
        found = resolution_of(ground.history, sandbox.plan_id, sandbox, arguments.path, take)
        workplace.stop.raise_if_cancelled()
        sandbox.restore(found.states)
        told = resolved_result(found.ended[0].shown_path, take, found.ended, found.tree, found.states)
        return ResolveResult.model_validate(thaw(told))


class ConflictTools(FixedTools):
    """`ToolSource` of `resolve`. Any thread may use it."""

    def __init__(self, ground: ConflictEnvironment) -> None:
        super().__init__(ResolveTool(ground))


@dataclass(frozen=True, slots=True)
class DecisionTarget:
    """The plan and store for an executor's decisions. `calls` returns the plan's calls, latest last."""

    plan_id: str
    actor: str
    decisions: DecisionStore
    calls: Callable[[], Iterable[ToolCall]]
    now: Callable[[], datetime]


class DecideArguments(Arguments):
    question: str = Field(min_length=1, max_length=_LONGEST, description="what had to be decided")
    choice: str = Field(min_length=1, max_length=_LONGEST, description="what you chose")
    rationale: str = Field(default="", max_length=_LONGEST, description="why, from what you read")
    instead_of: list[str] = Field(default=[], max_length=10, description="what else was possible")
    parent: int | None = Field(default=None, description="the number of the decision it follows from")


class DecideResult(Result):
    number: int = Field(description="the decision's number in the plan")


class Decide(TypedTool[DecideArguments, DecideResult]):
    name = DECIDE
    description = (
        "Record a choice that your task left open and that a person may want to change, before you act on "
        "it. Do not record what the task already says."
    )
    capability = Capability.READ
    arguments = DecideArguments
    result = DecideResult

    def __init__(self, place: DecisionTarget) -> None:
        self._place = place

    def run(self, arguments: DecideArguments, workplace: Workplace) -> DecideResult:
        place = self._place
        call = running_call(self.name, place.calls())
        held = [
            one.number for one in place.decisions.of_plan(place.plan_id) if one.state is DecisionState.ACTIVE
        ]
        parent = arguments.parent if arguments.parent in held else min(held, default=None)
        made = NewDecision(
            question=redact_content_text(arguments.question),
            choice=redact_content_text(arguments.choice),
            rationale=redact_content_text(arguments.rationale),
            alternatives=tuple(Alternative(redact_content_text(other)) for other in arguments.instead_of),
            parent=parent,
            made_by=place.actor,
            checkpoint=call.number,
        )
        # The id of the call is the key: a repeated call decides nothing twice.
        (kept,) = place.decisions.add(place.plan_id, [made], key=call.call_id, now=place.now())
        return DecideResult(number=kept.number)


def running_call(tool: str, calls: Iterable[ToolCall]) -> ToolCall:
    """Return the running call of this tool. A plan makes one call at a time, so there is only one."""
    for call in reversed([*calls]):
        if call.tool == tool and call.state is CallState.STARTED:
            return call
    raise ToolRefused(tool, "only an actor of a plan can use it")


class DecideTools(FixedTools):
    """`ToolSource` of `decide`. Any thread may use it."""

    def __init__(self, place: DecisionTarget) -> None:
        super().__init__(Decide(place))
