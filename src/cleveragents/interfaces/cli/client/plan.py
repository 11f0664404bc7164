"""`agents plan`, carried out by a server."""

from __future__ import annotations

from cleveragents.interfaces.cli.client.twins import ClientGroup
from cleveragents.interfaces.cli.plan import plan as local

__all__ = ["plan"]

_HERE = "cleveragents.interfaces.cli.client"

plan = ClientGroup(
    local,
    {
        "list": f"{_HERE}.plan_listing:list_plans",
        "show": f"{_HERE}.plan_reading:show_plan",
        "watch": f"{_HERE}.plan_reading:watch_plan",
        "log": f"{_HERE}.plan_reading:log_of_plan",
        "tree": f"{_HERE}.plan_thinking:tree_of_plan",
        "explain": f"{_HERE}.plan_thinking:explain_decision",
        "correct": f"{_HERE}.plan_thinking:correct_plan",
        "diff": f"{_HERE}.plan_changes:diff_of_plan",
        "review": f"{_HERE}.plan_changes:review_plan",
        "reread": f"{_HERE}.plan_changes:reread_plan",
        "rollback": f"{_HERE}.plan_changes:rollback_plan",
        "resolve": f"{_HERE}.plan_changes:resolve_conflicts",
        "apply": f"{_HERE}.plan_decisions:apply_plan",
        "undo": f"{_HERE}.plan_decisions:undo_plan",
        "reject": f"{_HERE}.plan_decisions:reject_plan",
        "approve": f"{_HERE}.plan_decisions:approve_plan",
        "deny": f"{_HERE}.plan_decisions:deny_plan",
        "answer": f"{_HERE}.plan_decisions:answer_plan",
        "resume": f"{_HERE}.plan_decisions:resume_plan",
        "cancel": f"{_HERE}.plan_ending:cancel_plan",
        "delete": f"{_HERE}.plan_ending:delete_plan",
    },
)
