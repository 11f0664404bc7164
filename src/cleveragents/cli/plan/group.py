"""`agents plan`: the group of commands on plans."""

from __future__ import annotations

import click

from cleveragents.cli.lazy import LazyGroup

__all__ = ["plan"]

_HERE = "cleveragents.cli.plan"

_COMMANDS = {
    "list": (f"{_HERE}.list:list_plans", "List plans, the latest last."),
    "search": (f"{_HERE}.search:search_plans", "Find plans by goals, transcripts and changes."),
    "show": (f"{_HERE}.show:show_plan", "Show everything about one plan."),
    "watch": (f"{_HERE}.watch:watch_plan", "Follow a plan that runs elsewhere."),
    "log": (f"{_HERE}.show:log_of_plan", "List a plan's tool calls: its checkpoints and results."),
    "tree": (f"{_HERE}.decisions:tree_of_plan", "Show the decisions of a plan as a tree."),
    "explain": (f"{_HERE}.decisions:explain_decision", "Explain a decision of a plan."),
    "correct": (f"{_HERE}.correct:correct_plan", "Correct a decision and continue from there."),
    "comment": (f"{_HERE}.comment:comment_on_plan", "Comment on a plan or on lines of its result."),
    "comments": (f"{_HERE}.comment:comments_of_plan", "List the comments on a plan."),
    "revise": (f"{_HERE}.comment:revise_plan", "Send the open comments to the agent."),
    "diff": (f"{_HERE}.changes:diff_of_plan", "Show the changes of a plan."),
    "review": (f"{_HERE}.changes:review_plan", "Decide about results, files and hunks."),
    "capture": (f"{_HERE}.changes:capture_plan", "Record your edits in a plan's sandbox."),
    "rollback": (
        f"{_HERE}.changes:rollback_plan",
        "Roll a plan back, or withdraw a revision.",
    ),
    "rebase": (f"{_HERE}.conflicts:rebase_plan", "Merge a result with the current files."),
    "resolve": (f"{_HERE}.conflicts:resolve_conflicts", "Resolve the conflicts of a plan."),
    "apply": (f"{_HERE}.apply:apply_plan", "Apply a plan's result to your files."),
    "publish": (
        f"{_HERE}.publish:publish_plan",
        "Push a plan's result to a new branch, and open a pull request.",
    ),
    "undo": (f"{_HERE}.apply:undo_plan", "Undo an applied plan; later edits stay."),
    "discard": (f"{_HERE}.apply:discard_plan", "Discard a plan's result."),
    "approve": (f"{_HERE}.respond:approve_plan", "Approve the pending request of a plan."),
    "deny": (f"{_HERE}.respond:deny_plan", "Deny the pending request of a plan."),
    "answer": (f"{_HERE}.respond:answer_plan", "Answer a plan's question."),
    "resume": (f"{_HERE}.respond:resume_plan", "Resume a plan that failed or was interrupted."),
    "pause": (f"{_HERE}.cancel:pause_plan", "Stop a plan so that it can be resumed."),
    "cancel": (f"{_HERE}.cancel:cancel_plan", "End a plan and all its processes."),
    "delete": (f"{_HERE}.cancel:delete_plan", "Remove a plan, its sandbox and its records."),
}

_ALIASES = {"reject": "discard", "reread": "capture"}


@click.group(cls=LazyGroup, lazy_commands=_COMMANDS, aliases=_ALIASES)
def plan() -> None:
    """Show, review, apply and undo plans.

    Name a plan by its id, or by a unique beginning or end of it. Commands with [PLAN] also take none: then
    they use the only plan of this repository that needs the command, or ask which one.

    \b
    Example:
      agents plan list --status ready
      agents plan diff 7QX2 --stat
    """
