"""All there is to say about one plan: what it is, what it changed, what it did, what its checks said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleveragents.access.model.remote import remote_of
from cleveragents.api.isolation import isolation_of
from cleveragents.api.plans.calls import call_in_short
from cleveragents.api.plans.changes import (
    found_changes,
    recorded_changes,
    renames_in_words,
    renames_of,
    state_row,
    told_unapplied,
    unapplied_of,
)
from cleveragents.api.plans.checks import checks_of
from cleveragents.api.plans.spending import spending_of
from cleveragents.api.wording import timestamp
from cleveragents.core.cancel_reason import is_mere_stop
from cleveragents.core.errors import PlanError, RemoteUnreachable, SandboxMissing, SandboxRefused
from cleveragents.core.json_value import JsonValue, freeze
from cleveragents.core.text.redaction import redact, redact_text
from cleveragents.plans.family import LEFT_OUT, conflicts_of, left_out_of, parts_of
from cleveragents.plans.model.plan import PlanState
from cleveragents.plans.model.sub_plan import SUB_PLANS
from cleveragents.sandboxes.ports import Unapplied

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.model.plan import Plan

__all__ = [
    "account_of",
    "conflict_rows",
    "correction_rows",
    "fields_of",
    "found_plan",
    "part_rows",
    "place_of",
    "shown_resource",
]

Row = dict[str, JsonValue]


def found_plan(parts: PlanParts, plan_id: str) -> Plan:
    """The plan of that id, or of which that is the beginning or the end; as its job has left it."""
    return parts.lifecycle.reconciled(parts.plans.find(plan_id))


def fields_of(plan: Plan) -> dict[str, JsonValue]:
    """A plan as rows and JSON show it."""
    return {
        "id": plan.id,
        "goal": redact_text(plan.goal),
        "action": plan.action,
        "phase": plan.phase.value,
        "state": plan.state.value,
        "resource": shown_resource(plan),
        "created": timestamp(plan.created_at),
        "updated": timestamp(plan.updated_at),
        "waiting_for": None if plan.state is PlanState.CONSTRAINED else plan.waiting_for,
        "error": None if plan.error is None else redact_text(plan.error),
        "request": freeze(redact(plan.request)),
        "job": plan.job_id,
        "parent": plan.parent_id,
        "root": plan.root,
        "depth": plan.depth,
        "isolation": None if plan.isolation is None else plan.isolation.value,
    }


def place_of(parts: PlanParts, plan: Plan) -> str:
    """Where its result goes, or went, in words."""
    remote, branch = remote_of(plan.resource), parts.remotes.branch_of(plan)
    return plan.resource if remote is None else f"branch {branch} of {remote.shown}"


def shown_resource(plan: Plan) -> str:
    """Of a remote without who logs in there, and with what."""
    remote = remote_of(plan.resource)
    return plan.resource if remote is None else f"{remote.shown}#{remote.branch}"


def account_of(parts: PlanParts, plan: Plan) -> Row:
    """Everything that is known of the plan but its calls' output."""
    place: str | None = None
    notes: tuple[str, ...] = ()
    unapplied = Unapplied()
    changes: list[Row] = []
    tree: str | None = None
    problem = None
    try:
        sandbox = parts.sandboxes.look(plan.id)
        unapplied = unapplied_of(parts, plan)
        place, notes = str(sandbox.root), (*sandbox.notes, *told_unapplied(parts, plan, unapplied))
        found = found_changes(parts, plan)
        changes, tree = found.rows, found.tree
    except SandboxMissing:
        pass
    except (RemoteUnreachable, SandboxRefused) as away:  # guard: what is known is told, remote or not
        notes = (f"what it changed is told without its lines: {away}",)
        changes = recorded_changes(parts, plan)
    except PlanError as error:
        problem = error.reason
    renames = renames_of(parts, plan)
    reviews = parts.reviews.of_plan(plan.id)
    rows = part_rows(parts, plan)
    return fields_of(plan) | {
        "isolation": isolation_of(parts, plan),
        "branch": parts.remotes.branch_of(plan),
        "sandbox": place,
        "notes": [*notes, *renames_in_words(renames)],
        "files_changed": len(changes),
        "changes": freeze(changes),
        "ignored": list(unapplied.ignored),
        "nested_repositories": list(unapplied.repositories),
        "renames": freeze(renames),
        "review_problem": problem,
        "left_out": [review.subject for review in reviews if not review.accepted],
        "checks": freeze(checks_of(parts, plan, tree)),
        "spending": freeze(spending_of(parts, plan)),
        "sub_plans": freeze(rows),
        "sub_plans_done": sum(row["phase"] == "execute" and row["state"] == "complete" for row in rows),
        "parts_left_out": freeze(
            [{"name": redact_text(name), "why": redact_text(why)} for name, why in left_out_of(parts, plan)]
        ),
        "conflicts": freeze(conflict_rows(parts, plan)),
        "corrections": freeze(correction_rows(parts, plan)),
        "calls": [call_in_short(parts, call) for call in parts.history.calls(plan.id)],
    }


def part_rows(parts: PlanParts, plan: Plan) -> list[Row]:
    """Its own sub-plans, those that are not begun included, each with how it stands in a word or two."""
    over = plan.state.ended or plan.state is PlanState.COMPLETE
    return [row | {"status": _status_of_part(row, over=over)} for row in parts_of(parts, plan)]


def _status_of_part(row: Row, *, over: bool) -> str:
    """One that is done is merged or not; one that is not made yet waits for others, unless all is over. One
    that was stopped because another failed did not fail itself."""
    error, state = row["error"], row["state"]
    if state is None:
        return "not run" if over else "to come"
    if state == LEFT_OUT:
        return f"{LEFT_OUT} ({row['why']})"
    if row["merged"]:
        return "merged"
    if state == "errored" and isinstance(error, str) and is_mere_stop(error):
        return "stopped"
    if state == "waiting" and row["waits_for"] == SUB_PLANS:
        return SUB_PLANS
    return "to merge" if state == "complete" else str(state)


def conflict_rows(parts: PlanParts, plan: Plan) -> list[Row]:
    """What its sub-plans disagree about and nobody decided."""
    return [
        {
            "path": conflict.shown_path,
            "kind": conflict.kind,
            "sub_plan": conflict.plan_id,
            "marked": conflict.marked,
            "base": state_row(conflict.base),
            "ours": state_row(conflict.ours),
            "theirs": state_row(conflict.theirs),
        }
        for conflict in conflicts_of(parts, plan)
    ]


def correction_rows(parts: PlanParts, plan: Plan) -> list[Row]:
    """What was corrected in it, the oldest first."""
    return [
        {
            "number": one.number,
            "decision": one.made.decision,
            "superseded": list(one.made.superseded),
            "guidance": redact_text(one.made.guidance),
            "by_itself": one.made.by_itself,
            "outcome": one.made.outcome,
            "created": timestamp(one.created_at),
        }
        for one in parts.thinking.corrections.of_plan(plan.id)
    ]
