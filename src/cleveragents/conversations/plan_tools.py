"""The tools by which a conversation starts plans, follows them and sends them back for changes.

There is no tool to approve, answer, apply, discard or delete a plan, to raise a budget or to change a policy:
these need a person. The tools reach plans only through `ConversationPlans`, which has no such operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import Field

from cleveragents.core.policy import Capability
from cleveragents.tools.ports import FixedTools, Workplace
from cleveragents.tools.typed_tool import Arguments, Result, TypedTool

__all__ = ["ConversationPlans", "PlanNote", "PlanTools"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanNote:
    """A plan as the assistant sees it. `needs`: the action that a person has to take, if any."""

    id: str
    goal: str
    status: str
    needs: str = ""
    answer: str = ""
    error: str = ""
    files: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()


class ConversationPlans(Protocol):
    """The plans of a conversation, with the rights of the turn's author.

    `step` is the permanent name of the tool call: a repeated call with the same name has no second effect.
    """

    def start(self, goal: str, *, step: str) -> PlanNote:
        """Start a plan whose result a person reviews. The plan has no checks: a check is a command, and the
        model of a conversation must not choose commands.
        """
        ...

    def list(self) -> Sequence[PlanNote]:
        """Return the plans that the conversation started, newest first."""
        ...

    def show(self, plan_id: str) -> PlanNote:
        """Return a plan of the conversation's repository."""
        ...

    def diff(self, plan_id: str, path: str | None) -> str:
        """Return the changes of a plan of the conversation's repository, or those of one file, as a unified
        diff without secrets. A long diff is cut, with a note. Raises `ToolRefused` if the plan does not
        change the file.
        """
        ...

    def correct(self, plan_id: str, message: str, *, step: str) -> PlanNote:
        """Send a plan that the conversation started back to its agent, with a message."""
        ...


class PlanToolResult(Result):
    plan: str = Field(description="the id of the plan")
    goal: str
    status: str
    needs: str = Field(description="what a person has to do; empty if nothing")
    answer: str
    error: str
    files: list[str] = Field(description="the changed files, with added and deleted lines")
    checks: list[str] = Field(description="the checks and their results")


class StartPlanArguments(Arguments):
    goal: str = Field(
        min_length=1,
        max_length=20_000,
        description="what is to be done, complete in itself: the agent of the plan has not read this talk",
    )


class StartPlan(TypedTool[StartPlanArguments, PlanToolResult]):
    name = "start_plan"
    description = (
        "Start a plan: an agent works on a goal in a sandbox, and a person reviews and applies the result."
    )
    capability = Capability.SPAWN
    arguments = StartPlanArguments
    result = PlanToolResult

    def __init__(self, plans: ConversationPlans, step: str) -> None:
        self._plans = plans
        self._step = step

    def run(self, arguments: StartPlanArguments, workplace: Workplace) -> PlanToolResult:
        return _told(self._plans.start(arguments.goal, step=self._step))


class ListPlansArguments(Arguments):
    pass


class ListPlansResult(Result):
    plans: list[PlanToolResult] = Field(description="the newest first")


class ListPlans(TypedTool[ListPlansArguments, ListPlansResult]):
    name = "list_plans"
    description = "List the plans that this conversation started, with their status."
    capability = Capability.READ
    arguments = ListPlansArguments
    result = ListPlansResult

    def __init__(self, plans: ConversationPlans) -> None:
        self._plans = plans

    def run(self, arguments: ListPlansArguments, workplace: Workplace) -> ListPlansResult:
        return ListPlansResult(plans=[_told(note) for note in self._plans.list()])


class ShowPlanArguments(Arguments):
    plan: str = Field(min_length=1, max_length=64, description="the id of a plan, or a part of it")
    diff: bool = Field(default=False, description="also show the changed lines")
    path: str | None = Field(
        default=None, min_length=1, max_length=4096, description="show the changed lines of this file only"
    )


class ShowPlanResult(PlanToolResult):
    diff: str = Field(description="the changed lines as a unified diff; empty if not requested")


class ShowPlan(TypedTool[ShowPlanArguments, ShowPlanResult]):
    name = "show_plan"
    description = (
        "Show a plan: its status, its answer, the files it changed, and the results of its checks; with "
        "`diff` or `path`, also the changed lines."
    )
    capability = Capability.READ
    arguments = ShowPlanArguments
    result = ShowPlanResult

    def __init__(self, plans: ConversationPlans) -> None:
        self._plans = plans

    def run(self, arguments: ShowPlanArguments, workplace: Workplace) -> ShowPlanResult:
        note = self._plans.show(arguments.plan)
        wanted = arguments.diff or arguments.path is not None
        diff = self._plans.diff(note.id, arguments.path) if wanted else ""
        return ShowPlanResult(**_told(note).model_dump(), diff=diff)


class CorrectPlanArguments(Arguments):
    plan: str = Field(min_length=1, max_length=64, description="the id of a plan of this conversation")
    message: str = Field(min_length=1, max_length=20_000, description="what to do differently")


class CorrectPlan(TypedTool[CorrectPlanArguments, PlanToolResult]):
    name = "correct_plan"
    description = "Send a plan that this conversation started back to its agent, with what to do differently."
    capability = Capability.SPAWN
    arguments = CorrectPlanArguments
    result = PlanToolResult

    def __init__(self, plans: ConversationPlans, step: str) -> None:
        self._plans = plans
        self._step = step

    def run(self, arguments: CorrectPlanArguments, workplace: Workplace) -> PlanToolResult:
        return _told(self._plans.correct(arguments.plan, arguments.message, step=self._step))


class PlanTools(FixedTools):
    """`ToolSource` of these tools for the call with the permanent name `step`."""

    def __init__(self, plans: ConversationPlans, step: str) -> None:
        super().__init__(CorrectPlan(plans, step), ListPlans(plans), ShowPlan(plans), StartPlan(plans, step))


def _told(note: PlanNote) -> PlanToolResult:
    return PlanToolResult(
        plan=note.id,
        goal=note.goal,
        status=note.status,
        needs=note.needs,
        answer=note.answer,
        error=note.error,
        files=list(note.files),
        checks=list(note.checks),
    )
