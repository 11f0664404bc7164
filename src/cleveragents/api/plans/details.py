"""Everything about one plan as rows and JSON: its fields, changes, calls, checks and sub-plans.

The verdict of a check or of the reviewer belongs to the tree of files that it examined. A rollback, an edit,
a correction or a file left out produces another tree, for which there is no verdict yet.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from cleveragents.access.model.project import remote_of
from cleveragents.api.format import timestamp
from cleveragents.api.plans.changes import (
    found_changes,
    last_apply_of,
    recorded_changes,
    renames_text,
    state_row,
    unapplied_message,
    unapplied_of,
)
from cleveragents.api.plans.sandbox_state import was_removed
from cleveragents.api.workers import isolation_of
from cleveragents.changes.model.merge_conflict import last_rebase
from cleveragents.core.actions.model import CheckVerdict, broken_by
from cleveragents.core.cancellation import is_resumable_stop
from cleveragents.core.errors import PlanError, RemoteUnreachable, SandboxMissing, SandboxRefused
from cleveragents.core.json_value import JsonValue, freeze, thaw
from cleveragents.core.text.redaction import (
    redact,
    redact_known,
    redact_known_text,
    redact_text,
)
from cleveragents.models.model.budget import PICODOLLARS
from cleveragents.plans.apply_policy import merged_tree_of
from cleveragents.plans.family import LEFT_OUT, conflicts_of, left_out_of, parts_of, short_of
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.model.status import status_of
from cleveragents.plans.model.strategy import Strategy
from cleveragents.plans.model.sub_plan import SUB_PLANS
from cleveragents.plans.model.usage_wait import PROCESS

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.core.actions.model import CheckRun
    from cleveragents.core.tool import ToolCall
    from cleveragents.plans.model.plan import Plan

__all__ = [
    "arguments_text",
    "call_fields",
    "call_summary",
    "checks_of",
    "conflict_rows",
    "correction_rows",
    "details_of",
    "fields_of",
    "find_plan",
    "has_not_run",
    "has_passed",
    "part_rows",
    "place_of",
    "resource_label",
    "shown_resource",
    "unpassed_checks",
    "verdict_text",
]


Row = dict[str, JsonValue]

_SEEN = (CheckVerdict.PASSED, CheckVerdict.FAILED)
_SAID_NOTHING = ("not run", CheckVerdict.VOID.value)
_TAKEN = (PlanState.APPLIED, PlanState.UNDONE)


def find_plan(parts: PlanParts, plan_id: str) -> Plan:
    """Return the plan with this id, or with an id that begins or ends with it, updated to the state of its
    job.
    """
    return parts.lifecycle.reconciled(parts.plans.find(plan_id))


def _shown_request(plan: Plan) -> object:
    """Return the masked request, with a limit of money also in dollars."""
    request = redact(plan.request)
    limits = request.get("limits") if isinstance(request, dict) else None
    if not isinstance(request, dict) or not isinstance(limits, dict):
        return request
    stored = limits.get("picodollars")
    usd = stored / PICODOLLARS if isinstance(stored, int) else None
    return {**request, "limits": {**limits, "usd": usd}}


def fields_of(plan: Plan) -> dict[str, JsonValue]:
    """Return the fields of a plan for rows and JSON."""
    waiting = None if plan.state is PlanState.CONSTRAINED else plan.waiting_for
    if isinstance(waiting, Mapping):
        waiting = {name: value for name, value in waiting.items() if name != PROCESS}
    return {
        "id": plan.id,
        "goal": redact_text(plan.goal),
        "action": plan.action,
        "phase": plan.phase.value,
        "state": plan.state.value,
        "resource": resource_label(plan),
        "created": timestamp(plan.created_at),
        "updated": timestamp(plan.updated_at),
        "waiting_for": freeze(redact_known(waiting)),
        "error": None if plan.error is None else redact_text(plan.error),
        "request": freeze(_shown_request(plan)),
        "job": plan.job_id,
        "parent": plan.parent_id,
        "root": plan.root,
        "depth": plan.depth,
        "isolation": None if plan.isolation is None else plan.isolation.value,
    }


def place_of(parts: PlanParts, plan: Plan) -> str:
    """Return the target of the result as text."""
    remote, branch = remote_of(plan.resource), parts.remotes.branch_of(plan)
    return plan.resource if remote is None else f"branch {branch} of {remote.shown}"


def resource_label(plan: Plan) -> str:
    """Return the resource; for a remote, without its credentials."""
    return shown_resource(plan.resource)


def shown_resource(resource: str) -> str:
    """Return a stored resource as people see it: for a remote, without its credentials."""
    remote = remote_of(resource)
    return resource if remote is None else f"{remote.shown}#{remote.branch}"


def details_of(parts: PlanParts, plan: Plan) -> Row:
    """Return everything about the plan except the output of its calls."""
    # A list of plans does not need these.
    from cleveragents.api.plans.budget import spending_of
    from cleveragents.api.plans.review import left_out_names
    from cleveragents.sandboxes.ports import Unapplied

    place: str | None = None
    notes: tuple[str, ...] = ()
    unapplied = Unapplied()
    changes: list[Row] = []
    tree: str | None = None
    problem = None
    try:
        sandbox = parts.sandboxes.look(plan.id)
        unapplied = unapplied_of(parts, plan)
        place, notes = str(sandbox.root), (*sandbox.notes, *unapplied_message(parts, plan, unapplied))
        found = found_changes(parts, plan)
        changes, tree = found.rows, found.tree
    except SandboxMissing:
        pass
    except (RemoteUnreachable, SandboxRefused) as away:  # guard: known facts are shown, remote or not
        notes = (f"changes are listed without their lines: {away}",)
        changes = recorded_changes(parts, plan)
    except PlanError as error:
        problem = error.reason
    last_apply, renames = last_apply_of(parts, plan)
    rows = part_rows(parts, plan)
    return fields_of(plan) | {
        "isolation": isolation_of(parts, plan),
        "answer": None if plan.answer is None else redact_text(plan.answer),
        "branch": parts.remotes.branch_of(plan),
        "sandbox": place,
        "sandbox_removed": was_removed(parts, plan),
        "notes": [*notes, *renames_text(renames)],
        "files_changed": len(changes),
        "changes": freeze(changes),
        "tree": tree,
        "ignored": list(unapplied.ignored),
        "nested_repositories": list(unapplied.repositories),
        "removed_submodules": list(unapplied.submodules),
        "renames": freeze(renames),
        "last_apply": last_apply,
        "published": freeze(next(reversed(parts.plans.published(plan.id)), None)),
        "review_problem": problem,
        "broken_invariant": _broken_invariant(parts, plan),
        "left_out": left_out_names(parts, plan),
        "checks": freeze(checks_of(parts, plan, tree)),
        "spending": freeze(spending_of(parts, plan)),
        "sub_plans": freeze(rows),
        "sub_plans_done": sum(row["phase"] == "execute" and row["state"] == "complete" for row in rows),
        "parts_left_out": freeze(
            [{"name": redact_text(name), "why": redact_text(why)} for name, why in left_out_of(parts, plan)]
        ),
        "conflicts": freeze(conflict_rows(parts, plan)),
        "corrections": freeze(correction_rows(parts, plan)),
        "open_comments": sum(one.is_open for one in parts.comments.store.of_plan(plan.id)),
        "calls": [call_summary(parts, call) for call in parts.history.calls(plan.id)],
    }


def _broken_invariant(parts: PlanParts, plan: Plan) -> str | None:
    """Return a text about the invariant that the result breaks, or None. Only edits by hand can break an
    invariant.
    """
    if plan.strategy is None:
        return None
    invariants, states = Strategy.from_json(plan.strategy).invariants, parts.history.states(plan.id)
    if invariants and last_rebase(parts.history.merge_calls(plan.id)) is not None:
        with suppress(SandboxMissing):  # without it, changes of the repository count as well
            states = parts.history.own_states(plan.id, parts.sandboxes.look(plan.id))
    return broken_by(invariants, states)


def part_rows(parts: PlanParts, plan: Plan) -> list[Row]:
    """Return the sub-plans of a plan, including those not started, each with its status."""
    over = plan.state.ended or plan.state is PlanState.COMPLETE
    return [row | {"status": _part_status(row, over=over)} for row in parts_of(parts, plan)]


def _part_status(row: Row, *, over: bool) -> str:
    """Return the status of a sub-plan. Before its plan is created, the status is `left out`, `not started`
    or, if the parent is `over`, `not run`.
    """
    phase, state, error = row["phase"], row["state"], row["error"]
    if state == LEFT_OUT:
        return f"{LEFT_OUT} ({row['why']})"
    if not isinstance(phase, str) or not isinstance(state, str):
        return "not run" if over else "not started"
    status = status_of(
        Phase(phase),
        PlanState(state),
        stopped=isinstance(error, str) and is_resumable_stop(error),
        sub_plans_run=row["waits_for"] == SUB_PLANS,
        merged=bool(row["merged"]),
    )
    return status.value


def conflict_rows(parts: PlanParts, plan: Plan) -> list[Row]:
    """Return the open conflicts between the sub-plans, or with the repository."""
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
    """Return the corrections of the plan, oldest first."""
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
        for one in parts.actor_parts.corrections.of_plan(plan.id)
    ]


def checks_of(parts: PlanParts, plan: Plan, tree: str | None) -> list[Row]:
    """Return the last verdict of each check.

    `tree` is the tree that would be applied now. If it is None, the field `stale` is unknown and left out.
    """
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
    """Return the required checks that have not passed on the current files."""
    return [row for row in checks_of(parts, plan, None) if row["required"] and not has_passed(row)]


def has_not_run(rows: Iterable[Mapping[str, JsonValue]]) -> bool:
    """Return whether one of the checks could not run, or ran on the wrong files."""
    return any(row["verdict"] in _SAID_NOTHING for row in rows)


def has_passed(row: Mapping[str, JsonValue]) -> bool:
    """Return whether the check passed on the current files."""
    return row["verdict"] == CheckVerdict.PASSED.value and not row.get("stale")


def verdict_text(row: Mapping[str, JsonValue]) -> str:
    """Return the verdict as text: `passed`, or `passed, out of date` if the files changed after the check."""
    return f"{row['verdict']}, out of date" if row.get("stale") else str(row["verdict"])


def _is_stale(run: CheckRun, plan: Plan, tree: str) -> bool:
    """Return whether the check ran on other files than those of `tree`. False if its tree is unknown, as for
    reviews by older versions.
    """
    if run.tree in ("", tree, merged_tree_of(plan)) or run.verdict not in _SEEN:
        return False
    if run.is_review or plan.phase is not Phase.APPLY:
        return True
    # An apply checks the merged result. So an applied plan has passed, and a failed check there is what
    # blocks the apply.
    return plan.state not in _TAKEN and run.verdict is CheckVerdict.PASSED


def call_fields(parts: PlanParts, call: ToolCall) -> Row:
    """Return all fields of a call."""
    return {
        "number": call.number,
        "tool": call.tool,
        "state": call.state.value,
        "changed": _files_changed(parts, call),
        "changeset": call.changeset_id,
        "approval": call.approval,
        "rule": call.rule,
        "reason": call.reason,
        "started": timestamp(call.started_at),
        "ended": None if call.ended_at is None else timestamp(call.ended_at),
        "arguments": freeze(
            redact_known(call.arguments)
        ),  # masked when stored, unless a person had to approve them
        "error": call.error,
        "result": freeze(redact(call.result)),
    }


def call_summary(parts: PlanParts, call: ToolCall) -> Row:
    """Return a call without its arguments and output."""
    return {
        "number": call.number,
        "tool": call.tool,
        "what": redact_known_text(arguments_text(call.arguments)),
        "state": call.state.value,
        "changed": _files_changed(parts, call),
        "error": call.error,
        "approval": call.approval,
        "rule": call.rule,
        "reason": call.reason,
    }


def _files_changed(parts: PlanParts, call: ToolCall) -> int:
    return 0 if call.changeset_id is None else parts.changesets.get(call.changeset_id).length


def arguments_text(arguments: JsonValue) -> str:
    """Return the arguments of a call as a person would write them."""
    if not isinstance(arguments, Mapping):
        return str(arguments)
    if arguments.keys() == {"title"}:
        return str(arguments["title"])
    if arguments.keys() == {"plan", "title"}:
        title, _, _ = str(arguments["title"]).partition("\n")
        return f"{title} ({short_of(str(arguments['plan']))})"
    argv = arguments.get("argv")
    if isinstance(argv, Sequence) and not isinstance(argv, str):
        return shlex.join(str(word) for word in argv)
    return ", ".join(f"{name}={_spelt(value)}" for name, value in arguments.items())


def _spelt(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(thaw(value), ensure_ascii=False)
