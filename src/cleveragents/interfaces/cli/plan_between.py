"""`agents plan diff --between A B`: compares what plans have come to, now or before a correction."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from cleveragents.errors import PlanError, SandboxMissing
from cleveragents.interfaces.cli.output import Output, printable, progress
from cleveragents.interfaces.cli.plan_view import shown_diff
from cleveragents.interfaces.desk.accounts import found_plan
from cleveragents.interfaces.desk.reach import ensure_reachable

if TYPE_CHECKING:
    from cleveragents.application.plan_parts import PlanParts
    from cleveragents.domain.json_value import JsonValue
    from cleveragents.domain.plan import Plan
    from cleveragents.infrastructure.sandbox.outcomes import ChangedFile, Outcome

__all__ = ["show_between"]

_NAMED = re.compile(r"(?P<plan>[^@]+)(?:@(?P<number>[0-9]+))?")


def show_between(
    parts: PlanParts, output: Output, names: tuple[str, str], paths: Sequence[str], options: Sequence[str]
) -> None:
    """The difference from the first to the second: files for programs, else as git writes it."""
    from cleveragents.infrastructure.sandbox.outcomes import changed_between, diff_between

    one, other = (_outcome(parts, name) for name in names)
    _tell_apart(*(_plan_of(parts, name) for name in names))
    if output.for_programs:
        output.table([_row(changed) for changed in changed_between(one, other, paths)], [], empty="")
        return
    text = diff_between(one, other, options=options, paths=paths)
    if not text:
        progress("nothing of that differs" if paths else "they came to the same")
    shown_diff(text)


def _outcome(parts: PlanParts, name: str) -> Outcome:
    """`PLAN`: what it comes to now; `PLAN@2`: what it had come to before its second correction."""
    from cleveragents.infrastructure.sandbox.outcomes import Outcome

    plan = _plan_of(parts, name)
    ensure_reachable(parts, plan)
    number = _spelt(name)["number"]
    try:
        sandbox = parts.sandboxes.open(plan.id)
    except SandboxMissing:
        raise PlanError(plan.id, "its sandbox is gone, and with it what it came to") from None
    tree = parts.result.tree(plan, sandbox) if number is None else _before(parts, plan, int(number))
    return Outcome(sandbox, tree)


def _spelt(name: str) -> re.Match[str]:
    spelt = _NAMED.fullmatch(name)
    if spelt is None:
        raise click.UsageError(f"{name!r} is neither PLAN nor PLAN@NUMBER")
    return spelt


def _plan_of(parts: PlanParts, name: str) -> Plan:
    return found_plan(parts, _spelt(name)["plan"])


def _tell_apart(one: Plan, other: Plan) -> None:
    if one.resource != other.resource:
        progress(
            printable(
                f"they are plans of different repositories, {one.resource} and {other.resource}: "
                "all that these differ in is shown, too"
            )
        )


def _before(parts: PlanParts, plan: Plan, number: int) -> str:
    made = parts.thinking.corrections.of_plan(plan.id)
    found = next((one for one in made if one.number == number), None)
    if found is None:
        known = (
            f"it has {len(made)}: `agents plan tree {plan.id} --all`" if made else "it was never corrected"
        )
        raise PlanError(plan.id, f"it has no correction {number}; {known}")
    if found.made.outcome is None:
        raise PlanError(plan.id, f"it had come to nothing before its correction {number}")
    return found.made.outcome


def _row(changed: ChangedFile) -> dict[str, JsonValue]:
    kind = "created" if changed.before is None else "deleted" if changed.after is None else "changed"
    return {
        "path": changed.path,
        "change": kind,
        "added": changed.added,
        "removed": changed.removed,
        "before": _state(changed.before),
        "after": _state(changed.after),
    }


def _state(state: tuple[str, str] | None) -> JsonValue:
    return None if state is None else {"mode": state[0], "content": state[1]}
