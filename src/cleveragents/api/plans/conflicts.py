"""An open conflict between a plan and a sub-plan, with both sides, as JSON shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleveragents.changes.model.merge_conflict import KeptConflict, Take
from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.path_spelling import shown

if TYPE_CHECKING:
    from cleveragents.sandboxes.ports import Sandbox

__all__ = ["conflict_with_sides"]

Row = dict[str, JsonValue]


def conflict_with_sides(conflict: KeptConflict, sandbox: Sandbox) -> Row:
    """Where it is, and what each side made of it."""
    from cleveragents.plans.conflicts.words import side_in_short

    def side(take: Take) -> Row:
        path, state = conflict.side(take)
        return {
            "is": side_in_short(conflict, take),
            "path": shown(path),
            "mode": None if state is None else f"{state.mode:o}",
            "content": None if state is None else state.content,
        }

    return {
        "path": conflict.shown_path,
        "kind": conflict.kind,
        "marked": conflict.marked,
        "sub_plan": conflict.plan_id,
        "title": conflict.title,
        "file": str(sandbox.root / conflict.path) if conflict.path == conflict.shown_path else None,
        "ours": side(Take.OURS),
        "theirs": side(Take.THEIRS),
    }
