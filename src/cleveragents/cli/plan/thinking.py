"""`agents plan tree|explain|answer`: what a plan's actors decided and why, and what they ask."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from cleveragents.api.plans.account import found_plan, part_rows
from cleveragents.api.plans.decisions import (
    additions_to,
    decision_named,
    decision_rows,
    ended_by,
    explained,
    shown_decisions,
    steps_of,
)
from cleveragents.api.plans.meanings import goal_of
from cleveragents.api.wording import on_one_line
from cleveragents.cli.output import (
    Output,
    console,
    counted,
    format_option,
    printable,
    progress,
    timestamp,
)
from cleveragents.cli.plan.view import plan_argument
from cleveragents.cli.session import Session, pass_session
from cleveragents.core.decision import Decision, DecisionState
from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.redaction import redact_text
from cleveragents.plans.family import title_with_goal

if TYPE_CHECKING:
    from rich.tree import Tree

    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.model.correction import Correction
    from cleveragents.plans.model.plan import Plan

__all__ = ["answer_plan", "explain_decision", "tree_of_plan"]


@click.command("tree")
@plan_argument
@click.option("--all", "superseded_too", is_flag=True, help="Those that no longer hold, too.")
@format_option
@pass_session
def tree_of_plan(session: Session, plan_id: str, superseded_too: bool, output: Output) -> None:
    """Show what was decided in a plan, as a tree: each decision below the one that led to it, and after them
    the plan's sub-plans. With --all, every branch that was ever there, and the correction that ended it.

    \b
    Example:
      agents plan tree 7QX2
      agents plan tree 7QX2 --all --format json
    """
    parts = session.container().plan_parts
    plan = found_plan(parts, plan_id)
    if output.for_programs:
        output.table(decision_rows(parts, plan, superseded_too=superseded_too), [], empty="")
        return
    ended = ended_by(parts.thinking.corrections.of_plan(plan.id))
    shown = shown_decisions(parts, plan, superseded_too=superseded_too)
    added = additions_to(parts, plan) if superseded_too else []
    if not shown and not added and not part_rows(parts, plan):
        progress("nothing was decided in it: it has no strategist, or has not got that far")
        return
    from rich.tree import Tree

    tree = Tree(printable(goal_of(plan)))
    _grow(tree, shown, None, ended)
    for row in added:
        tree.add(printable(f"correction {row['number']}, in addition: {on_one_line(str(row['guidance']))}"))
    _grow_plans(tree, parts, plan)
    console(no_color=not output.for_eyes).print(tree)
    _tell_more(parts, plan, shown)


@click.command("explain")
@plan_argument
@click.argument("number", type=click.IntRange(min=1), metavar="DECISION")
@format_option
@pass_session
def explain_decision(session: Session, plan_id: str, number: int, output: Output) -> None:
    """Say why a plan decided as it did: the question, the choice, what else there was.

    \b
    Example:
      agents plan explain 7QX2 3
    """
    parts = session.container().plan_parts
    plan = found_plan(parts, plan_id)
    if output.for_programs:
        output.record(explained(parts, plan, number))
        return
    decision = decision_named(parts, plan, number)
    ended = ended_by(parts.thinking.corrections.of_plan(plan.id))
    made = decision.made
    fields: dict[str, JsonValue] = {"question": made.question, "choice": made.choice, "why": made.rationale}
    fields |= {
        f"instead of {place}": f"{other.choice}: {other.reason}" if other.reason else other.choice
        for place, other in enumerate(made.alternatives, start=1)
    }
    fields["confidence"] = None if made.confidence is None else f"{made.confidence:.0%}"
    fields["follows from"] = made.parent
    fields["decided by"] = made.made_by
    fields["decided at"] = timestamp(decision.created_at)
    fields["carried out by"] = ", ".join(steps_of(plan, decision))
    fields["state"] = decision.state.value
    correction = ended.get(number)
    if correction is not None:
        fields["superseded by"] = f"correction {correction.number}: {_said(correction)}"
    output.record({name: value for name, value in fields.items() if value not in (None, "")})
    if decision.state is DecisionState.ACTIVE and not plan.state.ended:
        progress(f'`agents plan correct {plan.id} {number} --guidance "…"` corrects it')


@click.command("answer")
@plan_argument
@click.argument("text")
@format_option
@pass_session
def answer_plan(session: Session, plan_id: str, text: str, output: Output) -> None:
    """Answer what an actor asks, and go on with the plan. `-` reads the answer from stdin.

    \b
    Example:
      agents plan answer 7QX2 "keep the old flag as an alias"
    """
    from cleveragents.cli.plan.decisions import worked_on

    container = session.container()
    parts = container.plan_parts
    given = sys.stdin.read().strip() if text == "-" else text
    plan = parts.lifecycle.reply(found_plan(parts, plan_id), given)
    worked_on(container, plan, output)


def _tell_more(parts: PlanParts, plan: Plan, shown: Sequence[Decision]) -> None:
    if shown:
        progress(f"`agents plan explain {plan.id} NUMBER` says why")
    hidden = len(parts.thinking.decisions.of_plan(plan.id)) - len(shown)
    if hidden:
        progress(f"superseded: {counted(hidden, 'decision')}; --all shows them, and what ended them")


def _grow(
    tree: Tree, decisions: Sequence[Decision], parent: int | None, ended: Mapping[int, Correction]
) -> None:
    numbers = {decision.number for decision in decisions}
    for decision in decisions:
        # One whose parent is not shown hangs where the parent would.
        above = decision.made.parent if decision.made.parent in numbers else None
        if above == parent:
            _grow(tree.add(_line(decision, ended)), decisions, decision.number, ended)


def _grow_plans(tree: Tree, parts: PlanParts, plan: Plan) -> None:
    """Its sub-plans and theirs; those that are not begun have no id yet."""
    children = {child.id: child for child in parts.plans.children(plan.id)}
    for row in part_rows(parts, plan):
        child = children.get(str(row["id"]))
        needs = row["needs"]
        told = [str(row["status"])]
        if needs and isinstance(needs, Sequence):
            told.append(f"needs {', '.join(str(need) for need in needs)}")
        named = f"sub-plan {child.id}: {title_with_goal(child)}" if child else f"sub-plan: {row['name']}"
        grown = tree.add(printable(f"{named} ({'; '.join(told)})"))
        if child is not None:
            _grow_plans(grown, parts, child)


def _line(decision: Decision, ended: Mapping[int, Correction]) -> str:
    made = decision.made
    sure = "" if made.confidence is None else f" ({made.confidence:.0%})"
    gone = "" if decision.state is DecisionState.ACTIVE else f" [superseded{_by(decision, ended)}]"
    return printable(f"{decision.number}. {made.question} → {made.choice}{sure}{gone}")


def _by(decision: Decision, ended: Mapping[int, Correction]) -> str:
    """Which correction ended it; at the one that was wrong, in whose words."""
    correction = ended.get(decision.number)
    if correction is None:
        return ""
    said = f": {_said(correction)}" if correction.made.decision == decision.number else ""
    return f" by correction {correction.number}{said}"


def _said(correction: Correction) -> str:
    return on_one_line(redact_text(correction.made.guidance))
