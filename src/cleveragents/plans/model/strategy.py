"""A strategy: the result of Strategize and the only input of Execute.

Execute reads nothing else of the request, so an action that is changed or deleted later does not affect a
running plan.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from cleveragents.core.actions.model import Check, Setup
from cleveragents.core.json_value import FrozenObject, JsonValue, freeze
from cleveragents.core.policy import Policy, profile
from cleveragents.core.records import facts_of, record_of
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.model.plan import Phase, PhaseState, Plan, PlanState

__all__ = [
    "SETUP",
    "ReadyResult",
    "RoleAssignment",
    "Strategy",
    "StrategyStep",
    "Task",
    "earlier_result",
    "skipped_text",
]

SETUP = "setup"
"""The name of the step that sets up a sandbox; other steps are named by their numbers, from 1."""

_TOLD = 400
_MOST_SKIPPED = 3


def skipped_text(call: ToolCall) -> str | None:
    """Return a text about the files that the call skipped, with the reasons; None if it skipped none."""
    result = call.result if isinstance(call.result, Mapping) else {}
    found = result.get("skipped")
    skipped = [one for one in found if isinstance(one, Mapping)] if isinstance(found, list | tuple) else []
    if not skipped:
        return None
    told = [f"{one.get('path')}: {one.get('reason')}" for one in skipped[:_MOST_SKIPPED]]
    more = len(skipped) - len(told)
    files = "1 file" if len(skipped) == 1 else f"{len(skipped)} files"
    return f"skipped {files}: {', '.join(told)}" + (f", and {more} more" if more else "")


class StrategyStep(Struct, frozen=True):
    """One tool call. `expect_exit` are the exit codes with which a command counts as done."""

    name: str
    tool: str
    arguments: Mapping[str, JsonValue]
    continue_on_failure: bool = False
    expect_exit: tuple[int, ...] = (0,)
    granted: bool = False

    def problem_with(self, call: ToolCall) -> str | None:
        """Return why this call does not complete the step, or None if it does.

        If a step has several calls, none of them alone fails the step, because its model can try something
        else.
        """
        if self.continue_on_failure or call.is_part:
            return None
        if call.state is CallState.FAILED:
            return f"step {self.name!r}: {call.error}"
        result = call.result if isinstance(call.result, Mapping) else {}
        code = result.get("exit_code", 0)
        if code in self.expect_exit:
            return None
        how = "timed out" if result.get("timed_out") else f"ended with exit code {code}"
        output = " ".join(str(result.get("output") or "").split())
        return f"step {self.name!r} {how}" + (f": {output[-_TOLD:]}" if output else "")


class Task(Struct, frozen=True):
    """The work of an actor, in words; `needs` are the numbers, from 1, of the tasks it depends on.

    A `sub_plan` runs as a separate plan in its own sandbox, in parallel with others; `request` has the values
    that differ from its parent (action, arguments, actor, model, checks …). `decisions` are the numbers of
    the decisions that the task carries out: if one of them is corrected, the work of the task is reverted.
    `round` counts the returns of the plan to Strategize before the task was planned. `place` is the original
    number of the task, if it changed.
    """

    name: str
    instructions: str = ""
    needs: tuple[int, ...] = ()
    sub_plan: bool = False
    request: Mapping[str, JsonValue] = field(default_factory=lambda: FrozenObject({}))
    decisions: tuple[int, ...] = ()
    round: int = 0
    place: int | None = None

    def part(self, number: int) -> str:
        """Return the name of the task's run within the plan. Names of earlier rounds are never reused."""
        place = number if self.place is None else self.place
        return f"{place}~{self.round}" if self.round else str(place)


class RoleAssignment(Struct, frozen=True):
    """The actors of a plan, and the model for actors that name no model."""

    strategize: str | None
    execute: str
    review: str | None
    model: str


class ReadyResult(Struct, frozen=True):
    """The result of a plan before a revision: the numbers of its last call and its last correction, how many
    tasks and texts of guidance the plan had, the job that made the result, and its answer. If the result
    could not be applied, `blocked` is the reason and `obstacle` has its details. An earlier version stored
    only the four numbers.
    """

    call: int
    correction: int
    tasks: int
    guidance: int
    job: str | None = None
    answer: str | None = None
    blocked: str | None = None
    obstacle: JsonValue = None

    @property
    def phase_state(self) -> PhaseState:
        """The phase and state of a plan with this result."""
        if self.blocked is None:
            return Phase.EXECUTE, PlanState.COMPLETE
        return Phase.APPLY, PlanState.CONSTRAINED


class Strategy(Struct, frozen=True):
    """Steps in order, or tasks for actors, with the checks and limits of the plan.

    `directory` is the working directory of commands below the root of the sandbox. `round` counts how often
    the plan went back to Strategize; `returns` counts only those times when no person requested it.
    `guidance` is the text that people added later, in order. `ready` is the result from before a revision
    that has not passed the required checks; `withdrawn` are the corrections that no longer count;
    `restored`: the present result is the one from before them, after this call, and only a person applies it.
    At most
    `max_parallel` sub-plans run at the same time; with `fail_fast` the first failure stops the others.
    """

    steps: tuple[StrategyStep, ...]
    checks: tuple[Check, ...] = ()
    profile: str = "supervised"
    action_profile: str | None = None
    setup: Setup | None = None
    include: tuple[str, ...] = ()
    limit_seconds: float = 3600.0
    limit_steps: int = 1000
    invariants: tuple[str, ...] = ()
    directory: str = ""
    casting: RoleAssignment | None = None
    tasks: tuple[Task, ...] = ()
    definition_of_done: str = ""
    round: int = 0
    returns: int = 0
    guidance: tuple[str, ...] = ()
    max_parallel: int | None = None
    fail_fast: bool = False
    ready: ReadyResult | None = None
    withdrawn: tuple[int, ...] = ()
    restored: int | None = None

    @property
    def ordered_tasks(self) -> tuple[tuple[int, Task], ...]:
        """The numbered tasks, each after the tasks it depends on; a cycle is broken at its first task."""
        left = dict(enumerate(self.tasks, start=1))
        done: list[tuple[int, Task]] = []
        while left:
            ready = (n for n, task in left.items() if not any(need in left for need in task.needs))
            number = next(ready, min(left))
            done.append((number, left.pop(number)))
        return tuple(done)

    def with_task(self, task: Task, guidance: str, ready: ReadyResult | None) -> Strategy:
        """Return the strategy with one more task and guidance. `ready` is the present result, if any; it is
        kept unless an earlier one is.
        """
        # The tasks of withdrawn corrections had the next numbers, and a name is never reused.
        place = len(self.tasks) + len(self.withdrawn) + 1 if self.withdrawn else None
        return replace(
            self,
            tasks=(*self.tasks, replace(task, round=self.round, place=place)),
            guidance=(*self.guidance, guidance),
            ready=self.ready or ready,
            restored=None,
        )

    def before(self, ready: ReadyResult, corrections: int) -> Strategy:
        """Return the strategy of this earlier result. The later ones of `corrections` are withdrawn."""
        return replace(
            self,
            tasks=self.tasks[: ready.tasks],
            guidance=self.guidance[: ready.guidance],
            ready=None,
            withdrawn=(*self.withdrawn, *range(ready.correction + 1, corrections + 1)),
            restored=ready.call,
        )

    def step_of(self, call: ToolCall) -> StrategyStep | None:
        """Return the step that the call belongs to; the setup counts as a step. None if there is none."""
        name = call.strategy_step
        if name == SETUP:
            return StrategyStep(SETUP, call.tool, call.arguments)
        number = int(name) if name is not None and name.isdecimal() else 0
        return self.steps[number - 1] if 0 < number <= len(self.steps) else None

    @property
    def policy(self) -> Policy:
        """The user's profile, tightened by the action's."""
        chosen = profile(self.profile)
        return chosen if self.action_profile is None else chosen.tightened(profile(self.action_profile))

    def to_json(self) -> JsonValue:
        """Return the strategy as a plan stores it."""
        return freeze(facts_of(self))

    @classmethod
    def from_json(cls, kept: JsonValue) -> Strategy:
        """Return the strategy that `to_json` stored."""
        assert isinstance(kept, FrozenObject)
        return record_of(cls, kept)


def earlier_result(plan: Plan) -> ReadyResult | None:
    """Return the result from before a revision that has no good result; None if the plan runs, or for other
    plans.
    """
    rests = plan.state in (PlanState.WAITING, PlanState.COMPLETE, PlanState.ERRORED)
    if plan.strategy is None or not (
        (plan.phase is Phase.EXECUTE and rests) or plan.state is PlanState.CONSTRAINED
    ):
        return None
    return Strategy.from_json(plan.strategy).ready
