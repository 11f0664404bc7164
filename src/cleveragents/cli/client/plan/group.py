"""`agents plan`, carried out by a server."""

from __future__ import annotations

from cleveragents.cli.client.twins import ClientGroup
from cleveragents.cli.plan.group import plan as local

__all__ = ["plan"]

_HERE = "cleveragents.cli.client.plan"

plan = ClientGroup(
    local,
    {
        "watch": f"{_HERE}.reading:watch_plan",
        "correct": f"{_HERE}.thinking:correct_plan",
        "approve": f"{_HERE}.decisions:approve_plan",
        "deny": f"{_HERE}.decisions:deny_plan",
        "answer": f"{_HERE}.decisions:answer_plan",
        "resume": f"{_HERE}.decisions:resume_plan",
    },
    here=(
        *("apply", "cancel", "delete", "diff", "explain", "list", "log", "reject", "reread"),
        *("resolve", "review", "rollback", "show", "tree", "undo"),
    ),
)
