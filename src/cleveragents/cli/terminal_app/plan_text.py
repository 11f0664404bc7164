"""A plan as text for its screen: sections with a heading each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from textual.content import Content

from cleveragents.api.format import on_one_line
from cleveragents.api.plans.detail_views import DecisionNode
from cleveragents.api.views import as_json
from cleveragents.cli.plan.comment import comment_lines
from cleveragents.cli.plan.meter import ViewMeter, spending_label
from cleveragents.cli.plan.sections import in_short
from cleveragents.cli.plan.show import spending_text
from cleveragents.cli.plan.view import change_lines
from cleveragents.cli.render.remedies import step_pairs
from cleveragents.cli.terminal_app.client_screen import visible
from cleveragents.cli.terminal_app.plan_actions import ACTIONS
from cleveragents.plans.model.plan import PlanState

if TYPE_CHECKING:
    from cleveragents.api.plans.detail_views import CommentView, TreeNode
    from cleveragents.api.plans.views import PlanView

__all__ = ["colour_of", "facts_text", "request_text"]

_KEYED = {f"plan.{action.name}" for action in ACTIONS} | {"plan.diff", "plan.comments", "plan.watch"}
_COLOURS = {
    "waiting": "$text-warning",
    "blocked": "$text-warning",
    "ready": "$text-accent",
    "applied": "$text-success",
    "failed": "$text-error",
}


def colour_of(plan: PlanView) -> str:
    """Return the style of the plan's status."""
    return f"bold {_COLOURS.get(plan.status.value, '')}".strip()


def request_text(plan: PlanView) -> str:
    """Return why the plan waits, or why it failed; empty if it does neither."""
    if plan.state is PlanState.WAITING:
        waiting = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
        return visible(f"waiting: {waiting.get('what') or plan.meaning}")
    return visible(plan.error or "")


def facts_text(
    plan: PlanView, decisions: Sequence[TreeNode], comments: Sequence[CommentView], prefix: str
) -> Content:
    """Return the sections of a plan: changes, checks, cost, decisions, sub-plans, comments …"""
    sections = {
        "Changes": [
            *(change_lines(plan) if plan.changes else []),
            *(f"left out: {x}" for x in plan.left_out),
        ],
        "Checks": _checks(plan),
        "Cost": _cost(plan),
        "Decisions": _decisions(decisions),
        "Sub-plans": [f"{part.status}  {on_one_line(part.name)}" for part in plan.sub_plans],
        "Comments": [line for comment in comments for line in comment_lines(comment)],
        "Hints": list(plan.hints),
        "On the command line": _commands(plan, prefix),
        "Plan": [f"{plan.id} on {plan.place}"],
    }
    parts: list[Content] = []
    for title, lines in sections.items():
        if lines:
            parts.append(Content(f"{title}\n").stylize("bold"))
            parts.append(Content(visible("\n".join(lines)) + "\n\n"))
    return Content("").join(parts)


def _checks(plan: PlanView) -> list[str]:
    lines: list[str] = []
    for check in plan.checks:
        row = in_short(as_json(check))
        weight = "" if check.required else " (informational)"
        lines.append(f"{row['verdict']}  {on_one_line(check.name)}{weight}")
        lines += [f"  {row['what']}"] if row["what"] else []
    return lines


def _cost(plan: PlanView) -> list[str]:
    """Return the spending against the limits of the budget."""
    spent = spending_text(plan.spending)
    if spent is None:
        return ["no model call yet"]
    limits = plan.spending.limits
    bounded = limits is not None and (limits.usd, limits.tokens) != (None, None)
    against = " · ".join(spending_label(ViewMeter(plan).read()))
    steps = "" if limits is None or limits.steps is None else f" of {limits.steps}"
    return [
        spent,
        *([f"budget: {against}"] if bounded else []),
        *([f"model calls: {plan.spending.model_calls}{steps}"] if steps else []),
    ]


def _decisions(nodes: Sequence[TreeNode]) -> list[str]:
    lines: list[str] = []
    for node in nodes:
        if isinstance(node, DecisionNode) and node.state == "active":
            lines.append(f"{node.number}. {on_one_line(node.question)} → {on_one_line(node.choice)}")
            lines += [f"   {on_one_line(node.rationale)}"] if node.rationale else []
    return lines


def _commands(plan: PlanView, prefix: str) -> list[str]:
    """Return the next steps that no key starts, as command lines."""
    others = [step for step in plan.steps if step.action not in _KEYED or step.plan != plan.id]
    return [line for command, text in step_pairs(others, prefix) for line in (f"{text}:", f"  {command}")]
