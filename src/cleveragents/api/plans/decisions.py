"""The decisions of a plan with their reasons, and the effects of a correction, as rows and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cleveragents.api.format import timestamp
from cleveragents.api.plans.details import correction_rows, part_rows
from cleveragents.core.decision import Decision, DecisionState
from cleveragents.core.errors import UnknownDecision
from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.redaction import redact_text

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.corrections.correct import CorrectionEffects
    from cleveragents.plans.model.correction import Correction
    from cleveragents.plans.model.plan import Plan

__all__ = [
    "additions_to",
    "decision_named",
    "decision_rows",
    "ended_by",
    "explained",
    "shown_decisions",
    "steps_of",
    "undoing_fields",
]


Row = dict[str, JsonValue]


def shown_decisions(parts: PlanParts, plan: Plan, *, superseded_too: bool) -> list[Decision]:
    """Return the active decisions, or all."""
    every = parts.actor_parts.decisions.of_plan(plan.id)
    return [one for one in every if superseded_too or one.state is DecisionState.ACTIVE]


def decision_rows(parts: PlanParts, plan: Plan, *, superseded_too: bool) -> list[Row]:
    """Return decisions, corrections that superseded no decision, and sub-plans, each with its `kind`."""
    ended = ended_by(parts.actor_parts.corrections.of_plan(plan.id))
    shown = shown_decisions(parts, plan, superseded_too=superseded_too)
    added = additions_to(parts, plan) if superseded_too else []
    rows: list[Row] = [{"kind": "decision", **_fields(decision, ended)} for decision in shown]
    rows += [{"kind": "correction", **row} for row in added]
    return [*rows, *_sub_plan_fields(parts, plan)]


def decision_named(parts: PlanParts, plan: Plan, number: int) -> Decision:
    """Return the decision with this number. Raises `UnknownDecision`."""
    every = parts.actor_parts.decisions.of_plan(plan.id)
    decision = next((one for one in every if one.number == number), None)
    if decision is None:
        raise UnknownDecision(plan.id, number, len(every))
    return decision


def explained(parts: PlanParts, plan: Plan, number: int) -> Row:
    """Return one decision with the steps that carry it out. Raises `UnknownDecision`."""
    decision = decision_named(parts, plan, number)
    ended = ended_by(parts.actor_parts.corrections.of_plan(plan.id))
    return {**_fields(decision, ended), "steps": steps_of(plan, decision)}


def ended_by(corrections: Sequence[Correction]) -> Mapping[int, Correction]:
    """Return the correction that superseded each decision, by the decision's number."""
    return {number: one for one in corrections for number in one.made.superseded}


def additions_to(parts: PlanParts, plan: Plan) -> list[dict[str, JsonValue]]:
    """Return the corrections that superseded nothing."""
    return [row for row in correction_rows(parts, plan) if row["decision"] is None and not row["superseded"]]


def steps_of(plan: Plan, decision: Decision) -> tuple[str, ...]:
    """Return the steps that carry out the decision, as far as recorded."""
    from cleveragents.plans.model.strategy import Strategy

    tasks = () if plan.strategy is None else Strategy.from_json(plan.strategy).tasks
    return tuple(task.name for task in tasks if decision.number in task.decisions)


def _sub_plan_fields(parts: PlanParts, plan: Plan) -> list[dict[str, JsonValue]]:
    """Return the fields of all sub-plans, recursively, each after its parent."""
    children = {child.id: child for child in parts.plans.children(plan.id)}
    found: list[dict[str, JsonValue]] = []
    for row in part_rows(parts, plan):
        child = children.get(str(row["id"]))
        goal = None if child is None else redact_text(child.goal)
        found.append({"kind": "sub-plan", "parent_plan": plan.id, "key": row["part"], "goal": goal, **row})
        if child is not None:
            found += _sub_plan_fields(parts, child)
    return found


def _fields(decision: Decision, ended: Mapping[int, Correction]) -> dict[str, JsonValue]:
    made = decision.made
    correction = ended.get(decision.number)
    return {
        "number": decision.number,
        "parent": made.parent,
        "question": made.question,
        "choice": made.choice,
        "rationale": made.rationale,
        "alternatives": tuple({"choice": a.choice, "reason": a.reason} for a in made.alternatives),
        "confidence": made.confidence,
        "made_by": made.made_by,
        "checkpoint": made.checkpoint,
        "state": decision.state.value,
        "superseded_by": None
        if correction is None
        else {
            "correction": correction.number,
            "decision": correction.made.decision,
            "guidance": redact_text(correction.made.guidance),
            "by_itself": correction.made.by_itself,
        },
        "created_at": timestamp(decision.created_at),
    }


def undoing_fields(plan: Plan, undoing: CorrectionEffects) -> dict[str, JsonValue]:
    """Return the decisions that a correction would supersede, and the work that it would undo."""
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
