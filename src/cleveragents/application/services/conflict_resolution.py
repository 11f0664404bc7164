"""What is to be put into a plan's files so that a conflict is resolved, decided without touching any.

Taking a side must not take away what came later. In text that git marked, the side has its way in the marked
places only, and what was changed elsewhere since the merge stays. Everything else is taken whole, and only
while it still is what the merge left; otherwise whoever changed it says that it was edited.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cleveragents.application.ports.sandboxes import Sandbox
from cleveragents.application.services.plan_history import PlanHistory
from cleveragents.domain.file_state import EXECUTABLE, REGULAR, FileState
from cleveragents.domain.merge_conflict import DIRECTORY, KeptConflict, Take, open_conflicts
from cleveragents.errors import ToolRefused

__all__ = ["Resolution", "resolution_of"]

_FILES = (REGULAR, EXECUTABLE)


@dataclass(frozen=True, slots=True)
class Resolution:
    """The conflicts that end with it, the states that make it so, where they are not what is there, and the
    tree that it comes to."""

    ended: tuple[KeptConflict, ...]
    states: Mapping[str, FileState | None]
    tree: str


def resolution_of(history: PlanHistory, plan_id: str, sandbox: Sandbox, path: str, take: Take) -> Resolution:
    """How all open conflicts at the path, as it is shown, end. `ToolRefused`, with the reason: there is none;
    the file has marks in it, or is no longer what the merge left. The caller holds `sandbox.writing()`."""
    found = open_conflicts(history.calls(plan_id))
    meant = tuple(conflict for conflict in found if conflict.shown_path == path)
    if not meant:
        known = ", ".join(dict.fromkeys(conflict.shown_path for conflict in found)) or "none"
        raise ToolRefused("resolve", f"there is no open conflict at {path!r}; open are: {known}")
    edited = {name: step.after for name, step in history.unrecorded(plan_id, sandbox).items()}
    now = history.states(plan_id) | edited
    tree = sandbox.tree(now)
    deciding = _Deciding(sandbox, dict(sandbox.files_below(tree)))
    if take is Take.EDITED:
        deciding.ensure_unmarked(meant[0].path, plan_id, meant)
        return Resolution(meant, {}, tree)
    for conflict in reversed(meant):
        # The latest first: its sides hold the marks of those before.
        deciding.take(conflict, take)
    return Resolution(meant, deciding.states, sandbox.tree(now | deciding.states))


class _Deciding:
    """The files as they will be. Not thread-safe: one call uses it."""

    def __init__(self, sandbox: Sandbox, present: dict[str, FileState]) -> None:
        self._sandbox = sandbox
        self._present = present
        self.states: dict[str, FileState | None] = {}

    def ensure_unmarked(self, path: str, plan_id: str, conflicts: Sequence[KeptConflict]) -> None:
        state = self._present.get(path)
        if state is None or state.mode not in _FILES:
            return
        theirs = "|".join(re.escape(conflict.plan_id) for conflict in conflicts)
        marks = f"^(<{{7,}} plan {re.escape(plan_id)}|>{{7,}} sub-plan ({theirs}))".encode("ascii")
        found = re.search(marks, self._sandbox.content(state.content), flags=re.MULTILINE)
        if found is not None:  # guard: what nobody decided is not decided
            raise ToolRefused("resolve", f"{path!r} still has the mark {found[0].decode('ascii')!r} in it")

    def take(self, conflict: KeptConflict, take: Take) -> None:
        self._ensure_no_file_above(conflict.path)
        if conflict.marked and conflict.ours is not None and conflict.theirs is not None:
            self._put(conflict.path, self._without_marks(conflict, conflict.ours, conflict.theirs, take))
            return
        left = self._spread(conflict.path, conflict.left)
        if self._at(conflict.path) != left:  # guard: what came since the merge is not thrown away
            raise self._changed(conflict.path)
        place, state = conflict.side(take)
        wanted = self._spread(place, state)
        self._ensure_room(conflict, place, wanted)
        for path in left:
            self._put(path, None)
        for path, file in wanted.items():
            self._put(path, file)

    def _without_marks(
        self, conflict: KeptConflict, ours: FileState, theirs: FileState, take: Take
    ) -> FileState:
        """The text in which that side has its way wherever both changed the same."""
        merge, left, now = self._sandbox.merge_content, conflict.left, self._present.get(conflict.path)
        if left is None or now is None or now.mode not in _FILES:
            raise self._changed(conflict.path)
        base = None if conflict.base is None else conflict.base.content
        favour: Literal["ours", "theirs"] = "ours" if take is Take.OURS else "theirs"
        content = merge(base, ours.content, theirs.content, favour=favour)
        if content is not None and now.content != left.content:
            content = merge(left.content, now.content, content)
        if content is None:
            raise self._changed(conflict.path)
        wanted = ours if take is Take.OURS else theirs
        unclear = ours.mode != theirs.mode and now.mode == left.mode
        return FileState(wanted.mode if unclear else now.mode, content)

    def _ensure_room(self, conflict: KeptConflict, place: str, wanted: Mapping[str, FileState]) -> None:
        if place != conflict.path and self._at(place) not in ({}, wanted):
            raise ToolRefused("resolve", f"{place!r} belongs there, and something else is there now")
        self._ensure_no_file_above(place)

    def _ensure_no_file_above(self, place: str) -> None:
        parts = place.split("/")
        above = ("/".join(parts[:count]) for count in range(1, len(parts)))
        file = next((path for path in above if path in self._present), None)
        if file is not None:
            reason = f"{place!r} cannot be there while {file!r} is a file; if it is to stay one: `edited`"
            raise ToolRefused("resolve", reason)

    def _at(self, path: str) -> dict[str, FileState]:
        """All files at the path or below it."""
        return {
            name: state
            for name, state in self._present.items()
            if name == path or name.startswith(f"{path}/")
        }

    def _spread(self, path: str, state: FileState | None) -> dict[str, FileState]:
        """The files that the state is about, if it were at that path."""
        if state is None:
            return {}
        if state.mode != DIRECTORY:
            return {path: state}
        return {f"{path}/{name}": file for name, file in self._sandbox.files_below(state.content).items()}

    def _put(self, path: str, state: FileState | None) -> None:
        if self._present.get(path) == state:
            return
        self.states[path] = state
        if state is None:
            del self._present[path]
        else:
            self._present[path] = state

    def _changed(self, path: str) -> ToolRefused:
        reason = (
            f"{path!r} was changed since it was merged; make it what it should be, and take it as `edited`"
        )
        return ToolRefused("resolve", reason)
