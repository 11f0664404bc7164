"""Who changed a file that a plan conflicts with: its user, or the plan that was applied before."""

from __future__ import annotations

from dataclasses import replace

from cleveragents.apply.journal import ApplyJournal
from cleveragents.apply.merge import Merge, states_in
from cleveragents.apply.ports import FileConflict
from cleveragents.apply.presence import Presence
from cleveragents.core.file_state import FileState

__all__ = ["blamed"]

_APPLIES_LOOKED_AT = 100


def blamed(journal: ApplyJournal, presence: Presence, plan_id: str, merge: Merge) -> tuple[FileConflict, ...]:
    """The conflicts, each with its cause: a file that is as an earlier apply left it is that plan's doing."""
    paths = [conflict.path for conflict in merge.conflicts]
    present = states_in(presence.repository, merge.ours, paths)
    left = _left_behind(journal, str(presence.resource), set(paths))
    found = []
    for conflict in merge.conflicts:
        state, author = left.get(conflict.path, (None, plan_id))
        by_plan = author != plan_id and present.get(conflict.path) == state
        found.append(replace(conflict, cause=conflict.cause or (f"plan {author}" if by_plan else "you")))
    return tuple(found)


def _left_behind(
    journal: ApplyJournal, resource: str, paths: set[str]
) -> dict[str, tuple[FileState | None, str]]:
    """What the last apply of each path made of it, and whose it was."""
    found: dict[str, tuple[FileState | None, str]] = {}
    for entry in journal.latest(resource, _APPLIES_LOOKED_AT):
        for file in entry.journal.files:
            if file.path in paths:
                found.setdefault(file.path, (file.after, entry.plan_id))
    return found
