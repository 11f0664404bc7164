"""The request of `agents run`, in the directory of the command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

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
    """Return the request with a goal `-` read from stdin."""
    if wanted.action is None and wanted.words == ("-",):
        return replace(wanted, words=(text_of_stdin("the goal on stdin"),))
    return wanted


def requested_plan(parts: PlanParts, wanted: PlanSpec) -> PlanDraft:
    """Return the plan to create, with a goal `-` read from stdin. Raises `click.UsageError` and other errors
    of invalid requests.
    """
    with as_usage():
        return create.requested_plan(parts, with_goal_read(wanted), Path.cwd())


def left_for_review(new: PlanDraft) -> PlanDraft:
    """Return the plan marked for review: it is never applied automatically, not even after a resume."""
    return replace(new, request=FrozenObject({**new.request, "apply": "review"}))
