"""`agents run -f goals.yaml`: one plan whose parts are the goals of the file.

What a goal asks for is judged as `agents run` would judge it alone, and told with its line: before the first
one is worked on it is known that each of them can be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cleveragents.domain.budget import Limits
from cleveragents.domain.goals import GOALS_ACTION, Goals, SubGoal
from cleveragents.domain.json_value import freeze, thaw
from cleveragents.errors import CleverAgentsError, InvalidGoals
from cleveragents.interfaces.cli.goals_file import content_of, is_yaml_of_goals
from cleveragents.interfaces.cli.output import progress
from cleveragents.interfaces.cli.usage import as_usage
from cleveragents.interfaces.desk.commit_ground import ensure_can_commit
from cleveragents.interfaces.desk.requests import Wanted, named_action, requested_plan, thinking_of

if TYPE_CHECKING:
    from cleveragents.application.container import Container
    from cleveragents.application.plan_parts import PlanParts
    from cleveragents.application.ports.plans import NewPlan

__all__ = ["is_goals_document", "requested_goals"]


def is_goals_document(name: str, typed: str | None = None) -> bool:
    """Whether the file holds goals that belong together, by its name; what was `typed`, or came from another
    program, has none, and is looked at."""
    return Path(name).suffix.lower() in (".yaml", ".yml") or (typed is not None and is_yaml_of_goals(typed))


def requested_goals(container: Container, wanted: Wanted, name: str, typed: str | None = None) -> NewPlan:
    """The plan of all goals in the file, or of those that were `typed`. `InvalidGoals` names every mistake in
    it; `click.UsageError` and whatever else is a wrong request."""
    from cleveragents.infrastructure.goals.loading import load_goals

    bounds = container.settings.plan
    if not bounds.max_depth:
        raise click.UsageError("the setting plan.max_depth is 0, so no plan may have parts; raise it")
    judged: dict[str, NewPlan] = {}
    parts = container.plan_parts

    def judge(one: SubGoal) -> str | None:
        try:
            asked = _asked(parts, wanted, one)
            with as_usage():
                judged[one.name] = requested_plan(parts, asked, Path.cwd())
        except CleverAgentsError as error:
            return f"{one.name}: {error}"
        except click.UsageError as error:
            return f"{one.name}: {error.format_message()}"
        return None

    content = content_of(name) if typed is None else typed.encode()
    name = name if typed is None else "stdin"
    try:
        goals = load_goals(content, name, most=bounds.max_fan_out, judge=judge)
    except InvalidGoals as error:
        if len(error.problems) == 1:
            raise
        for problem in error.problems:
            progress(f"{name}, {problem}")
        raise InvalidGoals(name, (f"{len(error.problems)} mistakes, as told above",)) from None
    return _whole(parts, wanted, goals, judged)


def _asked(parts: PlanParts, wanted: Wanted, one: SubGoal) -> Wanted:
    """One goal as it would be said alone."""
    in_words = one.action is None
    thinks = in_words or one.actor is not None or _has_actors(parts, str(one.action))
    if one.model is not None and not thinks:
        raise click.UsageError(f"`model` is for goals with actors, and {one.action} has none; leave it out")
    return replace(
        wanted,
        action=one.action,
        words=(one.goal,) if in_words else (),
        arguments=None if in_words else one.arguments,
        checks=one.checks,
        invariants=(*wanted.invariants, *one.invariants),
        goal=one.goal or one.name,
        commit=False,
        actor=one.actor or (wanted.actor if in_words else None),
        model=one.model or (wanted.model if thinks else None),
        # The budget is that of the whole.
        limits=wanted.limits if thinks else Limits(),
        parallel=None,
    )


def _has_actors(parts: PlanParts, name: str) -> bool:
    from cleveragents.infrastructure.sandbox.resources import find_resource

    root, _ = find_resource(Path.cwd())
    return named_action(parts, name, root).execute_actor is not None


def _whole(parts: PlanParts, wanted: Wanted, goals: Goals, judged: Mapping[str, NewPlan]) -> NewPlan:
    from cleveragents.application.ports.plans import NewPlan
    from cleveragents.domain.policy import profile
    from cleveragents.infrastructure.sandbox.resources import find_resource

    root, prefix = find_resource(Path.cwd())
    if wanted.commit:
        ensure_can_commit(root)
    thinking: dict[str, Any] = {}
    if wanted.model or parts.default_model:
        with as_usage():
            thinking = thinking_of(parts, named_action(parts, GOALS_ACTION, root), wanted, root)
    elif wanted.limits != Limits() or any(new.request.get("model") for new in judged.values()):
        # A limit that goals without actors cannot reach does no harm.
        thinking = {"limits": thaw(wanted.limits.to_json())}
    request = freeze(
        {
            "arguments": {},
            "checks": [*goals.checks, *wanted.checks],
            "profile": profile(wanted.profile or parts.default_profile).name,
            "from_head": wanted.from_head,
            "include": list(wanted.include),
            "directory": prefix,
            "invariants": [*goals.invariants, *wanted.invariants],
            "max_parallel": wanted.parallel or goals.max_parallel,
            "fail_fast": goals.fail_fast,
            "sub_goals": [_kept(one, judged[one.name]) for one in goals.goals],
            **thinking,
        }
    )
    assert isinstance(request, Mapping)
    return NewPlan(goals.title, GOALS_ACTION, str(root), request)


def _kept(one: SubGoal, new: NewPlan) -> dict[str, Any]:
    """What its plan will ask for, where that differs from the whole."""
    asked = new.request
    return {
        "name": one.name,
        "goal": one.goal,
        "needs": list(one.needs),
        "action": new.action,
        "arguments": thaw(asked["arguments"]),
        "actor": asked.get("actor"),
        "model": asked.get("model"),
        "checks": list(one.checks),
        "invariants": list(one.invariants),
    }
