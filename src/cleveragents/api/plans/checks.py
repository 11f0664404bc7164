"""What the checks of a plan said, its reviewer among them, and whether that holds of its files by now.

A verdict belongs to the tree that was looked at. A rollback, an edit, a correction or a file that is left out
leads to another one, of which nothing has been said yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from cleveragents.api.wording import timestamp
from cleveragents.core.actions.check import CheckVerdict
from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.redaction import redact_text
from cleveragents.plans.apply_obstacles import merged_tree_of
from cleveragents.plans.model.plan import Phase, PlanState

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.core.actions.check import CheckRun
    from cleveragents.plans.model.plan import Plan

__all__ = ["checks_of", "has_not_run", "has_passed", "unpassed_checks", "verdict_in_words"]

Row = dict[str, JsonValue]

_SEEN = (CheckVerdict.PASSED, CheckVerdict.FAILED)
_SAID_NOTHING = ("not run", CheckVerdict.VOID.value)
_TAKEN = (PlanState.APPLIED, PlanState.UNDONE)


def checks_of(parts: PlanParts, plan: Plan, tree: str | None) -> list[Row]:
    """What each check said when it last ran. `tree` is what would be applied now; without one nobody can say
    whether that holds of it, and nothing is said."""
    last: dict[tuple[bool, str], Row] = {}
    for run in parts.check_runs.of_plan(plan.id):
        last[run.is_review, run.command] = {
            "name": redact_text(run.name),
            "command": redact_text(run.command),
            "verdict": run.verdict.value.replace("_", " "),
            "stale": tree is not None and _is_stale(run, plan, tree),
            "required": run.required,
            "ended": timestamp(run.ended_at),
            "details": run.details,
        }
    return list(last.values())


def unpassed_checks(parts: PlanParts, plan: Plan) -> list[Row]:
    """The required ones of which an apply would have to find something else than they said last."""
    return [row for row in checks_of(parts, plan, None) if row["required"] and not has_passed(row)]


def has_not_run(rows: Iterable[Mapping[str, JsonValue]]) -> bool:
    """Whether one of them could not be run, or on the wrong files, so that it said nothing."""
    return any(row["verdict"] in _SAID_NOTHING for row in rows)


def has_passed(row: Mapping[str, JsonValue]) -> bool:
    """Whether the check passed, and that on the files as they are now."""
    return row["verdict"] == CheckVerdict.PASSED.value and not row.get("stale")


def verdict_in_words(row: Mapping[str, JsonValue]) -> str:
    """`passed`; or `passed on other files`, if these have become others since."""
    return f"{row['verdict']} on other files" if row.get("stale") else str(row["verdict"])


def _is_stale(run: CheckRun, plan: Plan, tree: str) -> bool:
    """Whether it saw other files. Which ones a reviewer of an older version saw is not known."""
    if run.tree in ("", tree, merged_tree_of(plan)) or run.verdict not in _SEEN:
        return False
    if run.is_review or plan.phase is not Phase.APPLY:
        return True
    # Apply looks at the result merged with what else is there. What was applied has passed as that; and what
    # failed as that is what keeps it from being applied.
    return plan.state not in _TAKEN and run.verdict is CheckVerdict.PASSED
