"""What a correction would undo, as JSON shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleveragents.core.json_value import JsonValue

if TYPE_CHECKING:
    from cleveragents.plans.corrections.correct import Undoing
    from cleveragents.plans.model.plan import Plan

__all__ = ["undoing_fields"]


def undoing_fields(plan: Plan, undoing: Undoing) -> dict[str, JsonValue]:
    """The decisions that would no longer hold, and what was done for them."""
    return {
        "plan": plan.id,
        "decision": undoing.decision.number,
        "superseded": tuple(
            {"number": one.number, "question": one.made.question, "choice": one.made.choice}
            for one in undoing.superseded
        ),
        "checkpoint": undoing.checkpoint,
        "calls": undoing.calls,
        "steps": undoing.tasks,
        "files": undoing.paths,
        "edits_lost": undoing.edits_lost,
        "edits_kept": undoing.edits_kept,
        "sub_plans": undoing.sub_plans,
        "sub_plans_kept": undoing.sub_plans_kept,
    }
