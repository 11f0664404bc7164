"""What `agents run` is asked for, in the directory where it is asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.api.plans import create
from cleveragents.cli.run.goals_file import text_of_stdin
from cleveragents.cli.usage import as_usage
from cleveragents.core.json_value import FrozenObject

if TYPE_CHECKING:
    from cleveragents.api.plans.create import PlanSpec
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.ports.plans import PlanDraft

__all__ = ["left_for_review", "requested_plan", "with_goal_read"]


def with_goal_read(wanted: PlanSpec) -> PlanSpec:
    """The same; a goal that is `-` is read from stdin."""
    if wanted.action is None and wanted.words == ("-",):
        return replace(wanted, words=(text_of_stdin("the goal on stdin"),))
    return wanted


def requested_plan(parts: PlanParts, wanted: PlanSpec) -> PlanDraft:
    """The plan to be made; a goal that is `-` is read from stdin. `click.UsageError` and whatever else is a
    wrong request."""
    with as_usage():
        return create.requested_plan(parts, with_goal_read(wanted), Path.cwd())


def left_for_review(new: PlanDraft) -> PlanDraft:
    """The same plan, which is never applied by itself, whoever goes on with it after a question, an
    interruption or a spent budget."""
    return replace(new, request=FrozenObject({**new.request, "apply": "review"}))
