"""`agents plan tree|explain`: the decisions of a plan's actors and their reasons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from cleveragents.api.format import on_one_line
from cleveragents.cli.output import (
    Output,
    console,
    counted,
    format_option,
    printable,
    progress,
    timestamp,
)
from cleveragents.cli.plan.choose import chosen_plan, optional_plan
from cleveragents.cli.plan.view import plan_argument
from cleveragents.cli.servers import prefix_of
from cleveragents.cli.session import Session, pass_session
from cleveragents.core.json_value import JsonValue

if TYPE_CHECKING:
    from rich.tree import Tree

    from cleveragents.api.plans.detail_views import DecisionNode, SubPlanNode, TreeNode

__all__ = ["explain_decision", "tree_of_plan"]


@click.command("tree")
@optional_plan
@click.option("--all", "superseded_too", is_flag=True, help="Include superseded decisions.")
@format_option
@pass_session
def tree_of_plan(session: Session, plan_id: str | None, superseded_too: bool, output: Output) -> None:
    """Show the decisions of a plan as a tree.

    Each decision is below the one that led to it; sub-plans follow. With --all, superseded branches are shown
    with the correction that ended them.

    \b
    Example:
      agents plan tree 7QX2
      agents plan tree 7QX2 --all --format json
    """
    from cleveragents.api.plans.detail_views import CorrectionNode, DecisionNode, SubPlanNode
    from cleveragents.api.views import as_json, every

    client = session.client()
    plans, plan_id = client.plans, chosen_plan(client, plan_id, "tree")
    known = [*every(lambda after: plans.decisions(plan_id, after=after))]
    nodes = [node for node in known if superseded_too or _holds(node)]
    if output.machine_readable:
        output.table([as_json(node) for node in nodes], [], empty="")
        return
    if not nodes:
        progress("no decisions: the plan has no strategist, or has not made any yet")
        return
    from rich.tree import Tree

    plan = plans.summary(plan_id)
    tree = Tree(printable(on_one_line(plan.goal)))
    decisions = [node for node in nodes if isinstance(node, DecisionNode)]
    _grow(tree, decisions, None)
    for node in nodes:
        if isinstance(node, CorrectionNode):
            tree.add(printable(f"correction {node.number}, guidance: {on_one_line(node.guidance)}"))
    _grow_plans(tree, [node for node in nodes if isinstance(node, SubPlanNode)], plan.id)
    console(no_color=not output.human_readable).print(tree)
    if decisions:
        progress(f"explain one with `{prefix_of(session)} plan explain {plan.id} NUMBER`")
    hidden = sum(isinstance(node, DecisionNode) for node in known) - len(decisions)
    if hidden:
        progress(f"superseded: {counted(hidden, 'decision')}; show them with --all")


@click.command("explain")
@plan_argument
@click.argument("number", type=click.IntRange(min=1), metavar="DECISION")
@format_option
@pass_session
def explain_decision(session: Session, plan_id: str, number: int, output: Output) -> None:
    """Explain a decision of a plan: question, choice, reason and alternatives.

    \b
    Example:
      agents plan explain 7QX2 3
    """
    from cleveragents.api.views import as_json

    plans = session.client().plans
    decision = plans.decision(plan_id, number)
    if output.machine_readable:
        output.record(as_json(decision))
        return
    fields: dict[str, JsonValue] = {
        "question": decision.question,
        "choice": decision.choice,
        "why": decision.rationale,
    }
    fields |= {
        f"instead of {place}": f"{other.choice}: {other.reason}" if other.reason else other.choice
        for place, other in enumerate(decision.alternatives, start=1)
    }
    fields["confidence"] = None if decision.confidence is None else f"{decision.confidence:.0%}"
    fields["follows from"] = decision.parent
    fields["decided by"] = decision.made_by
    fields["decided at"] = timestamp(decision.created_at)
    fields["carried out by"] = ", ".join(decision.steps)
    fields["state"] = decision.state
    ended = decision.superseded_by
    if ended is not None:
        fields["superseded by"] = f"correction {ended.correction}: {on_one_line(ended.guidance)}"
    output.record({name: value for name, value in fields.items() if value not in (None, "")})
    plan = plans.summary(plan_id)
    if decision.state == "active" and not plan.state.ended:
        correct = f"{prefix_of(session)} plan correct {plan.id} {number}"
        progress(f'correct it with `{correct} --guidance "…"`')


def _holds(node: TreeNode) -> bool:
    return node.kind == "sub-plan" or (node.kind == "decision" and node.state == "active")


def _grow(tree: Tree, decisions: Sequence[DecisionNode], parent: int | None) -> None:
    numbers = {decision.number for decision in decisions}
    for decision in decisions:
        # A decision without a shown parent takes the place of the parent.
        above = decision.parent if decision.parent in numbers else None
        if above == parent:
            _grow(tree.add(_line(decision)), decisions, decision.number)


def _grow_plans(tree: Tree, plans: Sequence[SubPlanNode], parent: str) -> None:
    """Add the sub-plans, recursively; those that have not begun have no id."""
    for plan in plans:
        if plan.parent_plan == parent:
            needs = f"; needs {', '.join(plan.needs)}" if plan.needs else ""
            named = f"sub-plan {plan.id}: {_title(plan)}" if plan.id else f"sub-plan: {plan.name}"
            grown = tree.add(printable(f"{named} ({plan.status}{needs})"))
            if plan.id is not None:
                _grow_plans(grown, plans, plan.id)


def _title(plan: SubPlanNode) -> str:
    """Return the name of the sub-plan, and the first line of its goal if it differs from the name."""
    goal = on_one_line((plan.goal or "").strip().partition("\n")[0])
    return plan.name if goal in ("", plan.name) else f"{plan.name}: {goal}"


def _line(decision: DecisionNode) -> str:
    sure = "" if decision.confidence is None else f" ({decision.confidence:.0%})"
    ended, gone = decision.superseded_by, ""
    if decision.state != "active":
        at_fault = ended is not None and ended.decision == decision.number
        said = f": {on_one_line(ended.guidance)}" if ended is not None and at_fault else ""
        gone = " [superseded]" if ended is None else f" [superseded by correction {ended.correction}{said}]"
    return printable(f"{decision.number}. {decision.question} → {decision.choice}{sure}{gone}")
