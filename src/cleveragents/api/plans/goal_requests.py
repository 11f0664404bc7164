"""Several goals from YAML as the sub-plans of one plan.

Each goal is validated as if it were requested alone, and problems are reported with their lines, before the
first goal starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from cleveragents.actors.model.actor import is_actor_file
from cleveragents.api.plans.create import (
    PlanSpec,
    actor_settings_of,
    ensure_can_commit,
    ensure_not_blank,
    named_action,
    requested_plan,
)
from cleveragents.core.errors import CleverAgentsError, RequestRefused
from cleveragents.core.json_value import freeze, thaw
from cleveragents.core.text.redaction import redact_text
from cleveragents.models.model.budget import BudgetLimits
from cleveragents.plans.model.sub_plan import GOALS_ACTION, Goals, SubGoal

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.ports.plans import PlanDraft

__all__ = ["GoalsText", "requested_goals"]


class GoalsText(Struct, frozen=True):
    """The YAML of goals, and its name in errors. `sent`: the YAML comes from a user of the server, so it must
    not name files of this machine.
    """

    content: bytes
    source: str
    sent: bool = False


def requested_goals(
    container: Container, wanted: PlanSpec, text: GoalsText, directory: Path, *, remote: bool = False
) -> PlanDraft:
    """Return the plan of all goals, for the repository around that directory; see `requested_plan`.

    Raises `InvalidGoals` with every mistake; `RequestRefused` and other errors of an invalid request.
    """
    from cleveragents.plans.goals.loader import load_goals

    bounds = container.settings.plan
    if not bounds.max_depth:
        raise RequestRefused("sub-plans are off: raise the setting plan.max_depth above 0")
    judged: dict[str, PlanDraft] = {}
    ground = _Ground.of(container.plan_parts, directory, remote=remote)

    def judge(one: SubGoal) -> str | None:
        try:
            if text.sent and one.actor is not None and is_actor_file(one.actor):  # guard: no file is read
                raise RequestRefused("`actor` must be NAMESPACE/NAME, not a file", "actor")
            asked = _asked(ground, wanted, one)
            judged[one.name] = requested_plan(ground.parts, asked, directory, remote=remote)
        except RequestRefused as refused:
            return f"{one.name}: {refused.problem}"
        except CleverAgentsError as error:
            return f"{one.name}: {error}"
        return None

    goals = load_goals(text.content, text.source, most=bounds.max_fan_out, judge=judge)
    return _whole(ground, wanted, goals, judged)


class _Ground(Struct, frozen=True):
    """The repository that the plan runs on."""

    parts: PlanParts
    root: Path
    prefix: str

    @classmethod
    def of(cls, parts: PlanParts, directory: Path, *, remote: bool) -> _Ground:
        from cleveragents.sandboxes.resources import find_resource

        root, prefix = (directory, "") if remote else find_resource(directory)
        return cls(parts, root, prefix)


def _asked(ground: _Ground, wanted: PlanSpec, one: SubGoal) -> PlanSpec:
    """Return one goal as a request of its own."""
    in_words = one.action is None
    thinks = in_words or one.actor is not None or _has_actors(ground, str(one.action))
    if one.model is not None and not thinks:
        raise RequestRefused(f"`model` needs an actor, and {one.action} has none; omit it")
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
        # The budget is that of the whole plan.
        limits=wanted.limits if thinks else BudgetLimits(),
        parallel=None,
    )


def _has_actors(ground: _Ground, name: str) -> bool:
    return named_action(ground.parts, name, ground.root).execute_actor is not None


def _whole(ground: _Ground, wanted: PlanSpec, goals: Goals, judged: Mapping[str, PlanDraft]) -> PlanDraft:
    from cleveragents.core.policy import profile
    from cleveragents.plans.ports.plans import PlanDraft

    parts = ground.parts
    ensure_not_blank(wanted)
    if wanted.commit:
        ensure_can_commit(ground.root)
    thinking: dict[str, Any] = {}
    if wanted.model or parts.default_model:
        action = named_action(parts, GOALS_ACTION, ground.root)
        thinking = actor_settings_of(parts, action, wanted, ground.root)
    elif wanted.limits != BudgetLimits() or any(new.request.get("model") for new in judged.values()):
        # A limit that goals without actors cannot reach does no harm.
        thinking = {"limits": thaw(wanted.limits.to_json())}
    if wanted.sent_actor is not None:  # its sub-plans find it there
        thinking["sent_actor"] = wanted.sent_actor
    request = freeze(
        {
            "arguments": {},
            "checks": [*goals.checks, *wanted.checks],
            "profile": profile(wanted.profile or parts.default_profile).name,
            "from_head": wanted.from_head,
            "include": list(wanted.include),
            "directory": ground.prefix,
            "invariants": [redact_text(text) for text in (*goals.invariants, *wanted.invariants)],
            "max_parallel": wanted.parallel or goals.max_parallel,
            "fail_fast": goals.fail_fast,
            "sub_goals": [_kept(one, judged[one.name]) for one in goals.goals],
            **thinking,
        }
    )
    assert isinstance(request, Mapping)
    return PlanDraft(goals.title, GOALS_ACTION, str(ground.root), request)


def _kept(one: SubGoal, new: PlanDraft) -> dict[str, Any]:
    """Return the options of a goal that differ from those of the whole plan. Texts for models are stored
    without secrets.
    """
    asked = new.request
    return {
        "name": one.name,
        "goal": redact_text(one.goal),
        "needs": list(one.needs),
        "action": new.action,
        "arguments": thaw(asked["arguments"]),
        "actor": asked.get("actor"),
        "model": asked.get("model"),
        "checks": list(one.checks),
        "invariants": [redact_text(text) for text in one.invariants],
    }
