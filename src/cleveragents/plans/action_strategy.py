"""The strategy of an action: its arguments filled in, the user's limits, and its actors."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from cleveragents.core.actions.model import Action, Check, Step
from cleveragents.core.json_value import FrozenObject, JsonValue
from cleveragents.core.policy import DEFAULT_PROFILE
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.model.strategy import RoleAssignment, Strategy, StrategyStep, Task
from cleveragents.plans.model.sub_plan import GOALS_ACTION

__all__ = ["ActionSource", "ActionStrategist", "IncludePatterns"]

_SECONDS = 3600.0
_STEPS = 1000
_NAME = 60
_COMMAND_ACTION = "builtin/command"
_ASKED = ("action", "arguments", "actor", "model", "checks", "invariants")


class ActionSource(Protocol):
    """Returns an action by name, from the actions that a resource offers."""

    def __call__(self, name: str, resource: str) -> Action: ...


class IncludePatterns(Protocol):
    """Returns the patterns of ignored files to copy into sandboxes, from the config of a trusted resource."""

    def __call__(self, resource: str) -> tuple[str, ...]: ...


class ActionStrategist(Struct, frozen=True):
    """Builds the strategy of a plan from its request. Reads only."""

    find_action: ActionSource
    include_patterns: IncludePatterns

    def __call__(self, plan: Plan) -> Strategy:
        """Return the strategy of the plan. Raises `UnknownAction`, `NotTrusted`, `InvalidArguments`."""
        action = self.find_action(plan.action, plan.resource)
        request = plan.request
        arguments = request.get("arguments")
        rendered = action.render(arguments if isinstance(arguments, Mapping) else {})
        # The user typed this command, so it needs no further approval.
        granted = action.name == _COMMAND_ACTION
        steps = tuple(_step(step, granted) for step in rendered)
        return Strategy(
            steps=steps,
            checks=(*action.checks, *_checks(request.get("checks"))),
            profile=str(request.get("profile") or DEFAULT_PROFILE),
            action_profile=action.profile,
            setup=action.setup,
            include=(
                *action.include,
                *_texts(request.get("include")),
                *self.include_patterns(plan.resource),
            ),
            limit_seconds=action.budget.seconds or _SECONDS,
            limit_steps=action.budget.steps or _STEPS,
            invariants=(*action.invariants, *_texts(request.get("invariants"))),
            directory=str(request.get("directory") or ""),
            casting=_casting(action, request),
            tasks=_sub_goals(request.get("sub_goals")) if action.name == GOALS_ACTION else (),
            definition_of_done=action.definition_of_done,
            max_parallel=_whole_number(request.get("max_parallel")),
            fail_fast=request.get("fail_fast") is True,
        )


def _casting(action: Action, request: Mapping[str, JsonValue]) -> RoleAssignment | None:
    """Return the actors of the plan: the actor that the user named, or the actors of the action, if any."""
    model = str(request.get("model") or "")
    if action.name == GOALS_ACTION and not model:
        return None  # its goals need no actor, and a person resolves their conflicts
    named = request.get("actor")
    if named is not None:
        return RoleAssignment(None, str(named), None, model)
    if action.execute_actor is None:
        return None
    return RoleAssignment(action.strategize_actor, action.execute_actor, action.review_actor, model)


def _sub_goals(kept: JsonValue) -> tuple[Task, ...]:
    """Return a task for each goal that the user listed. Each task is a sub-plan."""
    goals = [goal for goal in _items(kept) if isinstance(goal, Mapping)]
    numbers = {str(goal["name"]): number for number, goal in enumerate(goals, start=1)}
    return tuple(
        Task(
            name=str(goal["name"]),
            instructions=str(goal.get("goal") or ""),
            needs=tuple(numbers[need] for need in _texts(goal.get("needs"))),
            sub_plan=True,
            request=FrozenObject({key: value for key, value in goal.items() if key in _ASKED}),
        )
        for goal in goals
    )


def _step(step: Step, granted: bool) -> StrategyStep:
    return StrategyStep(
        name=step.name or _told(step),
        tool=step.tool,
        arguments=step.arguments,
        continue_on_failure=step.continue_on_failure,
        expect_exit=step.expect_exit,
        granted=granted,
    )


def _told(step: Step) -> str:
    """Return a label for a step without a name: its tool and its target."""
    path = step.arguments.get("path")
    words = _texts(step.arguments.get("argv")) or ((str(path),) if path else ())
    told = " ".join([step.tool, shlex.join(words)]).strip()
    return told if len(told) <= _NAME else f"{told[: _NAME - 1]}…"


def _checks(commands: JsonValue) -> tuple[Check, ...]:
    return tuple(Check(name=command, command=command) for command in _texts(commands))


def _texts(value: JsonValue) -> tuple[str, ...]:
    return tuple(str(item) for item in _items(value))


def _items(value: JsonValue) -> tuple[JsonValue, ...]:
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else ()


def _whole_number(value: JsonValue) -> int | None:
    return value if isinstance(value, int) else None
