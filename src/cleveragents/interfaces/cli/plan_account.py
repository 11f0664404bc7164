"""All there is to say about one plan: what it changed, what it did, what its checks said."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from cleveragents.application.services.plan_family import (
    LEFT_OUT,
    conflicts_of,
    left_out_in_words,
    left_out_of,
    parts_of,
    short_of,
)
from cleveragents.domain.cancel_reason import is_mere_stop
from cleveragents.domain.json_value import JsonValue, freeze, thaw
from cleveragents.domain.plan import PlanState
from cleveragents.domain.redaction import redact, redact_text
from cleveragents.domain.sub_plan import SUB_PLANS
from cleveragents.errors import PlanError, SandboxMissing
from cleveragents.interfaces.cli.budget_options import spending_of
from cleveragents.interfaces.cli.output import Output, counted, progress, timestamp
from cleveragents.interfaces.cli.plan_view import fields_of, goal_of, meaning_of

if TYPE_CHECKING:
    from cleveragents.application.plan_parts import PlanParts
    from cleveragents.domain.file_state import FileState
    from cleveragents.domain.plan import Plan
    from cleveragents.domain.tool import ToolCall

__all__ = [
    "account_of",
    "call_fields",
    "changes_of",
    "checks_of",
    "conflict_rows",
    "correction_rows",
    "lines_of",
    "part_rows",
    "spelt_arguments",
    "summary_of",
    "tell_left_out",
    "told_changes",
    "told_ignored",
    "told_plan",
]

_SHOWN_FILES = 20

Row = dict[str, JsonValue]


def told_plan(output: Output, parts: PlanParts, plan: Plan) -> None:
    """Where a plan stands: all of it for programs, for people what they need to name it."""
    if output.for_programs:
        output.record(account_of(parts, plan))
        return
    output.record({"plan": plan.id, "goal": goal_of(plan), "state": meaning_of(parts, plan)})


def account_of(parts: PlanParts, plan: Plan) -> Row:
    """Everything that is known of the plan but its calls' output."""
    place: str | None = None
    notes: tuple[str, ...] = ()
    ignored = _ignored(parts, plan)
    with suppress(SandboxMissing):
        sandbox = parts.sandboxes.open(plan.id)
        place, notes = str(sandbox.root), (*sandbox.notes, *_sentence(parts, plan, ignored))
    changes: list[Row] = []
    problem = None
    try:
        changes = changes_of(parts, plan)
    except PlanError as error:
        problem = error.reason
    reviews = parts.reviews.of_plan(plan.id)
    rows = part_rows(parts, plan)
    return fields_of(plan) | {
        "sandbox": place,
        "notes": list(notes),
        "files_changed": len(changes),
        "changes": freeze(changes),
        "ignored": list(ignored),
        "review_problem": problem,
        "left_out": [review.subject for review in reviews if not review.accepted],
        "checks": freeze(checks_of(parts, plan)),
        "spending": freeze(spending_of(parts, plan)),
        "sub_plans": freeze(rows),
        "sub_plans_done": sum(row["phase"] == "execute" and row["state"] == "complete" for row in rows),
        "parts_left_out": freeze(
            [{"name": redact_text(name), "why": redact_text(why)} for name, why in left_out_of(parts, plan)]
        ),
        "conflicts": freeze(conflict_rows(parts, plan)),
        "corrections": freeze(correction_rows(parts, plan)),
        "calls": [
            {
                "number": call.number,
                "tool": call.tool,
                "what": redact_text(spelt_arguments(call.arguments)),
                "state": call.state.value,
                "changed": _files_changed(parts, call),
                "error": call.error,
            }
            for call in parts.history.calls(plan.id)
        ],
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


def _files_changed(parts: PlanParts, call: ToolCall) -> int:
    return 0 if call.changeset_id is None else parts.changesets.get(call.changeset_id).length


def conflict_rows(parts: PlanParts, plan: Plan) -> list[Row]:
    """What its sub-plans disagree about and nobody decided."""
    return [
        {
            "path": conflict.shown_path,
            "kind": conflict.kind,
            "sub_plan": conflict.plan_id,
            "marked": conflict.marked,
            "base": _state(conflict.base),
            "ours": _state(conflict.ours),
            "theirs": _state(conflict.theirs),
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


def changes_of(parts: PlanParts, plan: Plan) -> list[Row]:
    """Each file that would be changed if the plan were applied now, with the lines added and removed.

    Without its sandbox, of which the lines are read, there is nothing left to say. `PlanError` if what the
    review left out cannot be told from the rest.
    """
    try:
        sandbox = parts.sandboxes.open(plan.id)
    except SandboxMissing:
        return []
    states = parts.result.states(plan, sandbox)
    if not states:
        return []
    base = sandbox.base_states(states)
    text = parts.result.diff(plan, sandbox, options=("--numstat", "--no-renames", "-z"))
    lines = _counted_lines(text)
    rows = []
    for path in sorted(states):
        added, removed = lines.get(path, (None, None))
        row: Row = {
            "path": path,
            "change": _change(base[path], states[path]),
            "added": added,
            "removed": removed,
            "before": _state(base[path]),
            "after": _state(states[path]),
        }
        rows.append(row)
    return rows


def checks_of(parts: PlanParts, plan: Plan) -> list[Row]:
    """What each check said when it last ran."""
    last: dict[str, Row] = {}
    for run in parts.check_runs.of_plan(plan.id):
        last[run.command] = {
            "name": run.name,
            "command": run.command,
            "verdict": run.verdict.value.replace("_", " "),
            "required": run.required,
            "ended": timestamp(run.ended_at),
            "details": run.details,
        }
    return list(last.values())


def summary_of(parts: PlanParts, plan: Plan) -> str:
    """How much would be applied, in one line."""
    return _summary(changes_of(parts, plan))


def told_changes(parts: PlanParts, plan: Plan) -> bool:
    """The changed files and the checks that did not pass, on stderr; whether there is anything to apply."""
    changes = changes_of(parts, plan)
    shown = changes[:_SHOWN_FILES]
    width = max((len(lines_of(row)) for row in shown), default=0)
    for row in shown:
        progress(f"  {row['change']}  {lines_of(row).ljust(width)}  {row['path']}")
    if len(changes) > _SHOWN_FILES:
        progress(f"  … and {len(changes) - _SHOWN_FILES} more")
    progress(_summary(changes))
    tell_left_out(parts, plan)
    told_ignored(parts, plan)
    for check in checks_of(parts, plan):
        if check["verdict"] != "passed":
            weight = "it has to pass before the plan can be applied" if check["required"] else "informational"
            progress(f"check {check['name']}: {check['verdict']} ({weight})")
    return bool(changes)


def tell_left_out(parts: PlanParts, plan: Plan) -> None:
    """The parts that the result lacks, on stderr."""
    without = left_out_in_words(parts, plan)
    if without:
        progress(without)


def told_ignored(parts: PlanParts, plan: Plan) -> None:
    """What its steps made and the user will not get, on stderr."""
    for sentence in _sentence(parts, plan, _ignored(parts, plan)):
        progress(sentence)


def lines_of(row: Mapping[str, JsonValue]) -> str:
    """`+5 -3`, as people read it; nothing where no line was changed."""
    before, after = row["before"], row["after"]
    if isinstance(before, Mapping) and isinstance(after, Mapping) and before["content"] == after["content"]:
        return f"mode {after['mode']}"
    if row["added"] is None:
        return "binary"
    signs = (("+", row["added"]), ("-", row["removed"]))
    return " ".join(f"{sign}{number}" for sign, number in signs if number)


def call_fields(parts: PlanParts, call: ToolCall) -> Row:
    """One call, all of it."""
    return {
        "number": call.number,
        "tool": call.tool,
        "state": call.state.value,
        "changed": _files_changed(parts, call),
        "changeset": call.changeset_id,
        "approval": call.approval,
        "started": timestamp(call.started_at),
        "ended": None if call.ended_at is None else timestamp(call.ended_at),
        "arguments": freeze(redact(call.arguments)),
        "error": call.error,
        "result": freeze(redact(call.result)),
    }


def spelt_arguments(arguments: JsonValue) -> str:
    """What a call was given, as a person would write it."""
    if not isinstance(arguments, Mapping):
        return str(arguments)
    if arguments.keys() == {"plan", "title"}:
        title, _, _ = str(arguments["title"]).partition("\n")
        return f"{title} ({short_of(str(arguments['plan']))})"
    argv = arguments.get("argv")
    if isinstance(argv, Sequence) and not isinstance(argv, str):
        return shlex.join(str(word) for word in argv)
    return ", ".join(f"{name}={_spelt(value)}" for name, value in arguments.items())


def _spelt(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(thaw(value), ensure_ascii=False)


def _ignored(parts: PlanParts, plan: Plan) -> list[str]:
    """Files first: directories are seldom more than what some tool keeps for itself."""
    recorded = [path for path, state in parts.history.states(plan.id).items() if state is not None]
    try:
        entries = parts.sandboxes.open(plan.id).ignored_entries(recorded)
    except SandboxMissing:
        return []
    return sorted(entries, key=lambda entry: (entry.endswith("/"), entry.count("/"), entry))


def _sentence(parts: PlanParts, plan: Plan, ignored: Sequence[str]) -> list[str]:
    if not ignored:
        return []
    from cleveragents.application.services.plan_history import named

    checked = bool(parts.check_runs.of_plan(plan.id))
    without = "; checks ran without " + ("it" if len(ignored) == 1 else "them") if checked else ""
    return [f"not applied, because ignored: {named(ignored)}{without}"]


def _summary(changes: Sequence[Row]) -> str:
    if not changes:
        return "nothing was changed"
    told = [counted(len(changes), "file") + " changed"]
    for name in ("added", "removed"):
        number = sum(value for row in changes if isinstance(value := row[name], int))
        if number:
            told.append(f"{counted(number, 'line')} {name}")
    return ", ".join(told)


def _counted_lines(numstat: bytes) -> dict[str, tuple[int | None, int | None]]:
    """Of git's `--numstat -z`; a binary file has dashes for numbers."""
    found: dict[str, tuple[int | None, int | None]] = {}
    for record in numstat.decode("utf-8", "surrogateescape").split("\0"):
        if record:
            added, removed, path = record.split("\t", 2)
            found[path] = (None, None) if added == "-" else (int(added), int(removed))
    return found


def _change(before: FileState | None, after: FileState | None) -> str:
    if before is None:
        return "created"
    if after is None:
        return "deleted"
    return "changed"


def _state(state: FileState | None) -> JsonValue:
    return None if state is None else {"mode": f"{state.mode:o}", "content": state.content}
