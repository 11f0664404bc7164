"""The tool with which an actor resolves conflicts of merged sub-plans.

The tool with which an executor writes down what it decided, so that a person can correct it.

The checkpoint of such a decision is the very call: correcting it takes back what was done since.
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

__all__ = ["DECIDE", "ConflictEnvironment", "ConflictTools", "DecideTools", "DecisionTarget"]


DECIDE = "decide"
_LONGEST = 2_000


@dataclass(frozen=True, slots=True)
class ConflictEnvironment:
    """Whose conflicts they are, and where their files are."""

    history: PlanHistory
    sandbox: Sandbox


class ResolveArguments(Arguments):
    path: str = Field(min_length=1, description="the conflicted file, as the task names it")
    take: Literal["ours", "theirs", "edited"] = Field(
        description="`edited`: the file is what it should be now, and has no marks in it; `ours`: what this "
        "plan had; `theirs`: what the merged part had. In text with marks, a side is taken in the marked "
        "places only."
    )


class EndedConflict(Result):
    merge: int
    index: int


class ResolveResult(Result):
    path: str
    take: str
    ended: list[EndedConflict] = Field(description="which conflicts are resolved by it")
    tree: str
    files: list[str] = Field(description="the files that were changed for it")


class ResolveTool(TypedTool[ResolveArguments, ResolveResult]):
    name = RESOLVE
    description = "Says how a conflict of a merged part is resolved; until then, the plan is not done."
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
    """`ToolSource` of that one. Any thread may ask."""

    def __init__(self, ground: ConflictEnvironment) -> None:
        super().__init__(ResolveTool(ground))


@dataclass(frozen=True, slots=True)
class DecisionTarget:
    """Where decisions of one plan's executor go: `calls` are the plan's, the latest last."""

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
        "Writes down a choice that your task left open and that somebody may want otherwise, before you act "
        "on it. Not for what the task says already."
    )
    capability = Capability.READ
    arguments = DecideArguments
    result = DecideResult

    def __init__(self, place: DecisionTarget) -> None:
        self._place = place

    def run(self, arguments: DecideArguments, workplace: Workplace) -> DecideResult:
        place = self._place
        call = self._this_call()
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
        # The call's own id: one that is made again, because it was cut off, decides nothing twice.
        (kept,) = place.decisions.add(place.plan_id, [made], key=call.call_id, now=place.now())
        return DecideResult(number=kept.number)

    def _this_call(self) -> ToolCall:
        """A plan makes one call at a time, so the one of this tool that is under way is this one."""
        for call in reversed([*self._place.calls()]):
            if call.tool == self.name and call.state is CallState.STARTED:
                return call
        raise ToolRefused(self.name, "it can only be used by an actor of a plan")


class DecideTools(FixedTools):
    """`ToolSource` of that tool. Any thread may ask."""

    def __init__(self, place: DecisionTarget) -> None:
        super().__init__(Decide(place))
