"""`agents plan tree|explain|answer`: what a plan's actors decided and why, and what they ask."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from cleveragents.domain.decision import Decision, DecisionState
from cleveragents.domain.json_value import JsonValue
from cleveragents.errors import PlanError
from cleveragents.interfaces.cli.output import Output, format_option, printable, progress, timestamp
from cleveragents.interfaces.cli.plan_view import found_plan, goal_of, plan_argument
from cleveragents.interfaces.cli.session import Session, pass_session

if TYPE_CHECKING:
    from rich.tree import Tree

__all__ = ["answer_plan", "explain_decision", "tree_of_plan"]


@click.command("tree")
@plan_argument
@click.option("--all", "superseded_too", is_flag=True, help="Those that no longer hold, too.")
@format_option
@pass_session
def tree_of_plan(session: Session, plan_id: str, superseded_too: bool, output: Output) -> None:
    """Show what was decided in a plan, as a tree: each decision below the one that led to it.

    \b
    Example:
      agents plan tree 7QX2
      agents plan tree 7QX2 --all --format json
    """
    parts = session.container().plan_parts
    plan = found_plan(parts, plan_id)
    every = parts.thinking.decisions.of_plan(plan.id)
    shown = [d for d in every if superseded_too or d.state is DecisionState.ACTIVE]
    if output.for_programs:
        output.table([_fields(decision) for decision in shown], [], empty="")
        return
    if not shown:
        progress("nothing was decided in it: it has no strategist, or has not got that far")
        return
    from rich.console import Console
    from rich.tree import Tree

    tree = Tree(printable(goal_of(plan)))
    _grow(tree, shown, None)
    Console(no_color=not output.for_eyes, highlight=False).print(tree)
    progress(f"`agents plan explain {plan.id} NUMBER` says why")


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
    every = parts.thinking.decisions.of_plan(plan.id)
    decision = next((one for one in every if one.number == number), None)
    if decision is None:
        known = f"there are {len(every)}: `agents plan tree {plan.id}`" if every else "there is none"
        raise PlanError(plan.id, f"it has no decision {number}; {known}")
    if output.for_programs:
        output.record(_fields(decision))
        return
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
    fields["state"] = decision.state.value
    output.record({name: value for name, value in fields.items() if value not in (None, "")})


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
    from cleveragents.interfaces.cli.plan_decisions import worked_on

    container = session.container()
    parts = container.plan_parts
    given = sys.stdin.read().strip() if text == "-" else text
    plan = parts.lifecycle.reply(found_plan(parts, plan_id), given)
    worked_on(container, plan, output)


def _grow(tree: Tree, decisions: Sequence[Decision], parent: int | None) -> None:
    numbers = {decision.number for decision in decisions}
    for decision in decisions:
        # One whose parent is not shown hangs where the parent would.
        above = decision.made.parent if decision.made.parent in numbers else None
        if above == parent:
            _grow(tree.add(_line(decision)), decisions, decision.number)


def _line(decision: Decision) -> str:
    made = decision.made
    sure = "" if made.confidence is None else f" ({made.confidence:.0%})"
    gone = "" if decision.state is DecisionState.ACTIVE else " [superseded]"
    text = f"{decision.number}. {made.question} → {made.choice}{sure}{gone}"
    return printable(text).replace("[", "\\[")


def _fields(decision: Decision) -> dict[str, JsonValue]:
    made = decision.made
    return {
        "number": decision.number,
        "parent": made.parent,
        "question": made.question,
        "choice": made.choice,
        "rationale": made.rationale,
        "alternatives": tuple({"choice": a.choice, "reason": a.reason} for a in made.alternatives),
        "confidence": made.confidence,
        "made_by": made.made_by,
        "state": decision.state.value,
        "created_at": timestamp(decision.created_at),
    }
