"""Verdicts on a plan's changes: files and changesets are accepted or left out before the apply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cleveragents.api.format import UNREADABLE, printable_name
from cleveragents.api.reachability import ensure_reachable
from cleveragents.changes.model.review import Review, ReviewKind
from cleveragents.core.errors import PlanError, Remedy
from cleveragents.plans.model.status import status_word

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.model.plan import Plan

__all__ = ["ensure_reviewable", "is_selected", "review_files"]


def ensure_reviewable(parts: PlanParts, plan: Plan) -> None:
    """Raise `PlanError` while the plan runs and once it has ended; `NeedsHuman` if its repository is out of
    reach.
    """
    if plan.state.running or plan.state.ended:
        raise PlanError(plan.id, f"{status_word(plan)}; review a plan after its run and before its apply")
    ensure_reachable(parts, plan)


def review_files(
    parts: PlanParts,
    plan: Plan,
    verdicts: Sequence[tuple[str, bool]],
    changesets: Sequence[tuple[str, bool]] = (),
) -> list[str]:
    """Accept or leave out each file, and return the selected files. Raises `PlanError`, without any verdict,
    if a name matches nothing.
    """
    with parts.sandbox_edits.unmerged(plan):  # guard: merged changes are reviewed with the parent
        known = _changed_files(parts, plan) if verdicts else []
        files = [(path, taken) for name, taken in verdicts for path in _meant_files(plan, known, name)]
        _ensure_known(parts, plan, [changeset for changeset, _ in changesets])
        # Each is known to be changed: a second check would read all changes for each file.
        for path, taken in dict(files).items():
            verdict = Review(plan.id, ReviewKind.PATH, path, taken)
            parts.reviews.set(verdict, now=parts.result.clock.now())
        for changeset, taken in changesets:
            parts.result.review(plan, ReviewKind.CHANGESET, changeset, accepted=taken)
    return [path for path, _ in files]


def is_selected(path: str, names: Sequence[str]) -> bool:
    """Return whether one of the names is that file or a directory above it; without names, always."""
    plain = [name.rstrip("/").removeprefix("./") for name in names]
    return not names or any(
        name in ("", ".") or path == name or path.startswith(f"{name}/") for name in plain
    )


def _changed_files(parts: PlanParts, plan: Plan) -> list[str]:
    entries = [change.entry for change in parts.history.changes(plan.id)]
    return sorted({path for entry in entries for path in (entry.path, entry.old_path) if path is not None})


def _meant_files(plan: Plan, known: Sequence[str], name: str) -> list[str]:
    """Return the changed files that the names select. A name that is not text is matched as shown, if
    unambiguous.

    Raises `PlanError` if a name matches nothing.
    """
    meant = [path for path in known if is_selected(path, [name])]
    alike = [path for path in known if printable_name(path) == name] if UNREADABLE in name else []
    if not meant and len(alike) == 1:
        return alike
    if not meant:
        diff = Remedy("plan.diff", plan.id, {"name_only": True}, "List the changed files")
        raise PlanError(plan.id, f"no file {name!r} among its changes", (diff,))
    return meant


def _ensure_known(parts: PlanParts, plan: Plan, changesets: Sequence[str]) -> None:
    known = {changeset.id for changeset in parts.changesets.of_plan(plan.id)} if changesets else set()
    for unknown in (changeset for changeset in changesets if changeset not in known):
        log = Remedy("plan.log", plan.id, {"call": None}, "Show the changeset of a call")
        raise PlanError(plan.id, f"no changeset {unknown!r}", (log,))
