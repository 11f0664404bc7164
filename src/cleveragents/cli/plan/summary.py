"""Summaries of plans for people: the changes and the failed checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cleveragents.api.plans.changes import (
    changes_text,
    found_changes,
    lines_of,
    unapplied_message,
    unapplied_of,
)
from cleveragents.api.plans.details import checks_of, details_of, has_passed, verdict_text
from cleveragents.api.plans.status_text import goal_of, status_text_of
from cleveragents.cli.output import Output, progress
from cleveragents.plans.family import left_out_text

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.core.json_value import JsonValue
    from cleveragents.plans.model.plan import Plan

__all__ = ["print_changed_files", "told_changes", "told_plan"]

Row = dict[str, "JsonValue"]

_SHOWN_FILES = 20


def told_plan(output: Output, parts: PlanParts, plan: Plan) -> None:
    """Print a plan: all fields for programs, a few lines for people."""
    if output.machine_readable:
        output.record(details_of(parts, plan))
        return
    output.record({"plan": plan.id, "goal": goal_of(plan), "status": status_text_of(parts, plan)})


def told_changes(parts: PlanParts, plan: Plan) -> bool:
    """Print the changed files and the checks that did not pass on stderr. Return whether any file changed."""
    found = found_changes(parts, plan)
    without = left_out_text(parts, plan)
    unapplied = unapplied_message(parts, plan, unapplied_of(parts, plan))
    checks = checks_of(parts, plan, found.tree)
    print_changed_files(found.rows, [*([without] if without else []), *unapplied], checks)
    return bool(found.rows)


def print_changed_files(changes: Sequence[Row], sentences: Sequence[str], checks: Sequence[Row]) -> None:
    """Print the changed files, sentences about them, and the checks that did not pass on stderr."""
    shown = changes[:_SHOWN_FILES]
    width = max((len(lines_of(row)) for row in shown), default=0)
    for row in shown:
        progress(f"  {row['change']}  {lines_of(row).ljust(width)}  {row['path']}")
    if len(changes) > _SHOWN_FILES:
        progress(f"  … and {len(changes) - _SHOWN_FILES} more")
    progress(changes_text(changes))
    for sentence in sentences:
        progress(sentence)
    for check in checks:
        if not has_passed(check):
            weight = "required before apply" if check["required"] else "informational"
            progress(f"check {check['name']}: {verdict_text(check)} ({weight})")
