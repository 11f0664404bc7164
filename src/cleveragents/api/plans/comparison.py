"""Comparison of the results of two plans, now or before a correction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleveragents.api.format import counted
from cleveragents.api.plans.changes import file_row
from cleveragents.api.plans.details import resource_label
from cleveragents.api.reachability import ensure_reachable
from cleveragents.core.errors import PlanError, Remedy, RequestRefused, SandboxMissing

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.core.json_value import JsonValue
    from cleveragents.plans.model.plan import Plan
    from cleveragents.sandboxes.comparison import ResultTree

__all__ = [
    "ComparisonBounds",
    "differing_files",
    "ensure_comparable",
    "outcome_of",
    "patch_between",
    "repositories_differ",
]


def outcome_of(parts: PlanParts, plan: Plan, before: int | None) -> ResultTree:
    """Return the current result of the plan, or its result before the correction with the number `before`.
    Raises `PlanError`, `NeedsHuman`.
    """
    from cleveragents.sandboxes.comparison import ResultTree

    ensure_reachable(parts, plan)
    try:
        sandbox = parts.sandboxes.look(plan.id)
    except SandboxMissing:
        raise PlanError(plan.id, "the sandbox was removed, and the result with it") from None
    tree = parts.result.tree(plan, sandbox) if before is None else _before(parts, plan, before)
    return ResultTree(sandbox, tree)


def differing_files(
    one: ResultTree, other: ResultTree, *, most: int | None = None
) -> list[dict[str, JsonValue]]:
    """Return the files that differ, up to a limit."""
    from cleveragents.sandboxes.comparison import changed_between

    return [file_row(changed) for changed in changed_between(one, other)[:most]]


@dataclass(frozen=True, slots=True)
class ComparisonBounds:
    """Limits of a comparison: files, lines, and bytes in all. A patch contains binary files as a whole."""

    files: int = 10_000
    lines: int = 1_000_000
    bytes: int = 64 * 1024 * 1024


def ensure_comparable(
    one: ResultTree, other: ResultTree, bounds: ComparisonBounds, *, paths: Sequence[str] = ()
) -> None:
    """Raise `RequestRefused` if the differences exceed the limits, for example because the plans are of two
    repositories.
    """
    from cleveragents.sandboxes.comparison import bytes_between, changed_between

    files = changed_between(one, other, paths)
    lines = sum((changed.added or 0) + (changed.removed or 0) for changed in files)
    found = f"the results differ in {counted(len(files), 'file')} and {counted(lines, 'line')}"
    bound = f"a patch is limited to {bounds.files:,} files and {bounds.lines:,} lines"
    if len(files) <= bounds.files and lines <= bounds.lines:
        size = bytes_between(one, other, files)
        if size <= bounds.bytes:
            return
        found = f"the results differ in {counted(len(files), 'file')} of {size:,} bytes"
        bound = f"a patch is limited to {bounds.bytes:,} bytes"
    raise RequestRefused(f"{found}; {bound}. Compare as JSON, or use the patch of one plan")


def patch_between(
    one: ResultTree,
    other: ResultTree,
    bounds: ComparisonBounds,
    *,
    masked: bool,
    paths: Sequence[str] = (),
    renames: bool = False,
) -> bytes:
    """Return the difference as a patch, as `patch_of` does.

    Raises `RequestRefused` as `ensure_comparable`.
    """
    from cleveragents.api.plans.diffs import masked_patch, patch_options, pathspecs
    from cleveragents.sandboxes.comparison import changed_between, diff_between

    specs = pathspecs([changed.path for changed in changed_between(one, other)], paths) if paths else []
    if paths and not specs:
        return b""
    ensure_comparable(one, other, bounds, paths=specs)
    patch = diff_between(one, other, options=patch_options(masked=masked, renames=renames), paths=specs)
    return masked_patch(patch) if masked else patch


def repositories_differ(one: Plan, other: Plan) -> str | None:
    """Return a note if the plans are of different repositories."""
    if one.resource == other.resource:
        return None
    said = f"the plans are of different repositories, {resource_label(one)} and {resource_label(other)}"
    return f"{said}: differences between the repositories are included"


def _before(parts: PlanParts, plan: Plan, number: int) -> str:
    made = parts.actor_parts.corrections.of_plan(plan.id)
    found = next((one for one in made if one.number == number), None)
    if found is None:
        known = f"the plan has {len(made)}" if made else "the plan was never corrected"
        tree = Remedy("plan.tree", plan.id, {"all": True}, "List the corrections")
        raise PlanError(plan.id, f"no correction {number}; {known}", (tree,) if made else ())
    if found.made.outcome is None:
        raise PlanError(plan.id, f"the plan had no result before its correction {number}")
    return found.made.outcome
