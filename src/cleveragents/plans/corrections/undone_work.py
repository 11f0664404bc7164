"""What goes with the calls that a correction takes back, and what does not: edits of a person, and sub-plans.

A person's edits that were taken in are calls like others, so a rollback takes them back. Those of files that
nothing else touched belong to no decision, and are brought over. A sub-plan that carries out no superseded
decision goes on, unless it began with files that are taken back: it would build on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from cleveragents.core.file_state import Difference, FileState, differences_of, split_renames, states_after
from cleveragents.core.tool import CallState
from cleveragents.plans.history import REREAD, PlanHistory

__all__ = ["UndoneWork", "undone_work"]


@dataclass(frozen=True, slots=True)
class UndoneWork:
    """`edits` are the states of the files that only a person has touched since the checkpoint, `lost` the
    files that a person has touched and others, too. `touched` is how each file that others have touched was
    at the checkpoint, `differing` all that differed from the base then."""

    edits: Mapping[str, FileState | None] = field(default_factory=dict)
    lost: tuple[str, ...] = ()
    touched: Mapping[str, FileState | None] = field(default_factory=dict)
    differing: Mapping[str, Difference] = field(default_factory=dict)

    def is_in(self, start: Mapping[str, Difference]) -> bool:
        """Whether something of it is in a tree that differs so from the same base."""
        return any(self._in(start, path) != state for path, state in self.touched.items())

    def _in(self, start: Mapping[str, Difference], path: str) -> FileState | None:
        if path in start:
            return start[path].after
        return self.differing[path].before if path in self.differing else self.touched[path]


def undone_work(history: PlanHistory, plan_id: str, checkpoint: int) -> UndoneWork:
    """What was done from that call on."""
    since = [call for call in history.calls(plan_id) if call.number >= checkpoint]
    later = {call.changeset_id for call in since}
    taken_in = {
        call.changeset_id for call in since if call.tool == REREAD and call.state is not CallState.REVERTED
    }
    changes = history.changes(plan_id)
    by_hand = states_after(change.entry for change in changes if change.changeset_id in taken_in)
    touched: dict[str, FileState | None] = {}
    for change in changes:
        if change.changeset_id in later - taken_in:
            for path, before, _ in split_renames(change.entry):
                touched.setdefault(path, before)
    lost = tuple(sorted(path for path in by_hand if _is_in_the_way(path, touched)))
    return UndoneWork(
        edits={path: state for path, state in by_hand.items() if path not in lost},
        lost=lost,
        touched=touched,
        differing=differences_of(change.entry for change in changes if change.changeset_id not in later),
    )


def _is_in_the_way(path: str, touched: Mapping[str, FileState | None]) -> bool:
    """Whether others have touched the file, or what is a directory where it lies, or lies below it."""
    own = PurePosixPath(path)
    return any(
        path == other or PurePosixPath(other) in own.parents or own in PurePosixPath(other).parents
        for other in touched
    )
