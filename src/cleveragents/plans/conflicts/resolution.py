"""What is to be put into a plan's files so that a conflict is resolved, decided without touching any.

Taking a side must not take away what came later. In text that git marked, the side has its way in the marked
places only, and what was changed elsewhere since the merge stays. Everything else is taken whole, and only
while it still is what the merge left; otherwise whoever changed it says that it was edited.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cleveragents.changes.model.conflict_marks import MarkedText, mark_left_in
from cleveragents.changes.model.merge_conflict import DIRECTORY, KeptConflict, Take, open_conflicts
from cleveragents.core.errors import ToolRefused
from cleveragents.core.file_state import EXECUTABLE, REGULAR, FileState
from cleveragents.core.text.path_spelling import named_by, shown
from cleveragents.plans.history import PlanHistory
from cleveragents.sandboxes.ports import Sandbox

__all__ = ["Resolution", "resolution_of"]

_FILES = (REGULAR, EXECUTABLE)


@dataclass(frozen=True, slots=True)
class Resolution:
    """The conflicts that end with it, all at one path, the states that make it so, where they are not what is
    there, and the tree that it comes to."""

    ended: tuple[KeptConflict, ...]
    states: Mapping[str, FileState | None]
    tree: str


def resolution_of(history: PlanHistory, plan_id: str, sandbox: Sandbox, path: str, take: Take) -> Resolution:
    """How all open conflicts at the path, as it is shown or as it is, end. `ToolRefused`, with the reason:
    there is none; the file has marks in it, or is no longer what the merge left. The caller holds
    `sandbox.writing()`."""
    meant = _meant(open_conflicts(history.calls(plan_id)), path)
    edited = {name: step.after for name, step in history.unrecorded(plan_id, sandbox).items()}
    now = history.states(plan_id) | edited
    tree = sandbox.tree(now)
    deciding = _Deciding(sandbox, dict(sandbox.files_below(tree)))
    if take is Take.EDITED:
        for conflict in meant:
            deciding.ensure_unmarked(conflict, plan_id)
        return Resolution(meant, {}, tree)
    for conflict in reversed(meant):
        # The latest first: its sides hold the marks of those before.
        deciding.take(conflict, take)
    return Resolution(meant, deciding.states, sandbox.tree(now | deciding.states))


def _meant(found: Sequence[KeptConflict], path: str) -> tuple[KeptConflict, ...]:
    meant = tuple(conflict for conflict in found if conflict.shown_path == path)
    names = (path, named_by(path))
    meant = meant or tuple(conflict for conflict in found if conflict.path in names)
    if not meant:
        known = ", ".join(dict.fromkeys(conflict.shown_path for conflict in found)) or "none"
        raise ToolRefused("resolve", f"there is no open conflict at {shown(path)}; open are: {known}")
    return meant


class _Deciding:
    """The files as they will be. Not thread-safe: one call uses it."""

    def __init__(self, sandbox: Sandbox, present: dict[str, FileState]) -> None:
        self._sandbox = sandbox
        self._present = present
        self.states: dict[str, FileState | None] = {}

    def ensure_unmarked(self, conflict: KeptConflict, plan_id: str) -> None:
        state = self._present.get(conflict.path)
        if state is None or state.mode not in _FILES:
            return
        labels = f"plan {plan_id}", f"sub-plan {conflict.plan_id}"
        sides = (conflict.left, conflict.ours, conflict.theirs)
        merged = MarkedText(*(self._text(side) if conflict.marked else b"" for side in sides))
        mark = mark_left_in(self._sandbox.content(state.content), merged, labels)
        if mark is not None:
            raise ToolRefused("resolve", f"{conflict.shown_path} still has the mark {mark!r} in it")

    def _text(self, state: FileState | None) -> bytes:
        return b"" if state is None or state.mode not in _FILES else self._sandbox.content(state.content)

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
            raise ToolRefused("resolve", f"{shown(place)} belongs there, and something else is there now")
        self._ensure_no_file_above(place)

    def _ensure_no_file_above(self, place: str) -> None:
        parts = place.split("/")
        above = ("/".join(parts[:count]) for count in range(1, len(parts)))
        file = next((path for path in above if path in self._present), None)
        if file is not None:
            there = f"{shown(place)} cannot be there while {shown(file)} is a file"
            reason = f"{there}; if it is to stay one: `edited`"
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
        remedy = "make it what it should be, and take it as `edited`"
        reason = f"{shown(path)} was changed since it was merged; {remedy}"
        return ToolRefused("resolve", reason)
