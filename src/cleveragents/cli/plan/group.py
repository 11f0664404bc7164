"""`agents plan`: everything that can be done with plans, each command in a module of its kind."""

from __future__ import annotations

import click

from cleveragents.cli.lazy import LazyGroup

__all__ = ["plan"]

_HERE = "cleveragents.cli.plan"

_COMMANDS = {
    "list": (f"{_HERE}.listing:list_plans", "List plans, the latest last."),
    "show": (f"{_HERE}.reading:show_plan", "Show everything about one plan."),
    "watch": (f"{_HERE}.watch:watch_plan", "Follow a plan that runs elsewhere."),
    "log": (f"{_HERE}.reading:log_of_plan", "List a plan's tool calls: its checkpoints and results."),
    "tree": (f"{_HERE}.thinking:tree_of_plan", "Show what was decided in a plan, and from what."),
    "explain": (f"{_HERE}.thinking:explain_decision", "Say why a plan decided as it did."),
    "correct": (f"{_HERE}.correct:correct_plan", "Correct a decision, and go on from there."),
    "diff": (f"{_HERE}.changes:diff_of_plan", "Show what a plan changed."),
    "review": (f"{_HERE}.changes:review_plan", "Leave files out before a plan is applied."),
    "reread": (f"{_HERE}.changes:reread_plan", "Take in what you edited in a plan's sandbox."),
    "rollback": (f"{_HERE}.changes:rollback_plan", "Take a plan's sandbox back to a checkpoint."),
    "resolve": (f"{_HERE}.conflicts:resolve_conflicts", "Say what is to become of conflicts."),
    "apply": (f"{_HERE}.applying:apply_plan", "Bring a plan's result into your files."),
    "undo": (f"{_HERE}.applying:undo_plan", "Take an applied plan out of your files again."),
    "reject": (f"{_HERE}.applying:reject_plan", "Say that a plan's result is not wanted."),
    "approve": (f"{_HERE}.respond:approve_plan", "Give leave to what a plan waits for."),
    "deny": (f"{_HERE}.respond:deny_plan", "Refuse leave to what a plan waits for."),
    "answer": (f"{_HERE}.respond:answer_plan", "Answer what an actor of a plan asks."),
    "resume": (f"{_HERE}.respond:resume_plan", "Go on with a plan that failed or was interrupted."),
    "cancel": (f"{_HERE}.ending:cancel_plan", "Stop a plan and all its processes."),
    "delete": (f"{_HERE}.ending:delete_plan", "Remove a plan, its sandbox and its records."),
}


@click.group(cls=LazyGroup, lazy_commands=_COMMANDS)
def plan() -> None:
    """Look at plans, review what they changed, apply or undo it.

    A plan is named by its id, or by as much of its beginning or end as is unambiguous.

    \b
    Example:
      agents plan list --state complete
      agents plan diff 7QX2 --stat
    """
