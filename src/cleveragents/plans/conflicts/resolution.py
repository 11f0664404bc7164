"""Resolution of conflicts: new file states, descriptions for actors and people, and resolution by a person.

Taking a side keeps later changes. In text with conflict markers, the side replaces only the marked places,
and changes elsewhere since the merge stay. In all other conflicts the side replaces the whole file, which
must be unchanged since the merge; for a changed file, a person takes `edited` instead.

A person resolves conflicts between runs of the plan. The resolution is a recorded call with the usual states,
so after an interruption it is either completed or undone. Edits in the sandbox are recorded with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from cleveragents.changes.model.merge_conflict import (
    DIRECTORY,
    EDITED_STEP,
    RESOLVE,
    MarkedText,
    MergeConflict,
    Take,
    is_by_hand,
    mark_left_in,
    open_conflicts,
    resolved_result,
)
from cleveragents.core.change import EXECUTABLE, GITLINK, REGULAR, SYMLINK, FileState
from cleveragents.core.errors import PlanError, ResultChanged, StalePlan, ToolRefused
from cleveragents.core.json_value import FrozenObject
from cleveragents.core.text.control_characters import named_by, shown
from cleveragents.core.text.redaction import redact_content_text
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.calls.tool_execution import ToolExecution
from cleveragents.plans.history import PlanHistory, PlanResult, restore_states
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.model.status import status_word
from cleveragents.plans.store.sql_plan_store import SqlPlanStore
from cleveragents.sandboxes.git_sandbox import Sandbox
from cleveragents.sandboxes.ports import Sandboxes

__all__ = [
    "ManualResolution",
    "Resolution",
    "conflict_task",
    "conflict_text",
    "conflicts_at",
    "resolution_of",
    "settle_edited",
    "side_in_short",
]


_FILES = (REGULAR, EXECUTABLE)

_MOST_CONFLICTS = 40
_SIDE_CHARACTERS = 1_500
_TASK_CHARACTERS = 20_000
_HOW = """\
Make each file what both sides wanted: read it, and edit it until it has no conflict marks and does what \
either side was made for. Then call `resolve` with its path: `edited` if you edited it, `ours` to take what \
this plan had, `theirs` to take what was merged into it (in text with marks, only in the marked places). \
If you have no tool `resolve`, only remove the marks: a file without marks counts as resolved; in a code \
block, write the whole file. Leave open what you cannot decide: a person will be asked."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """The conflicts at one path that are resolved, the file states that change, and the resulting tree."""

    ended: tuple[MergeConflict, ...]
    states: Mapping[str, FileState | None]
    tree: str


def resolution_of(history: PlanHistory, plan_id: str, sandbox: Sandbox, path: str, take: Take) -> Resolution:
    """Return the resolution of all open conflicts at the path, which may be the displayed or the stored path.

    The caller holds `sandbox.writing()`.

    Raises `ToolRefused` if there is no conflict, if the file still has markers, or if it changed after the
    merge.
    """
    meant = conflicts_at(open_conflicts(history.merge_calls(plan_id)), path)
    edited = {name: step.after for name, step in history.unrecorded(plan_id, sandbox).items()}
    now = history.states(plan_id) | edited
    tree = sandbox.tree(now)
    deciding = _Deciding(sandbox, dict(sandbox.files_below(tree)))
    if take is Take.EDITED:
        for conflict in meant:
            deciding.ensure_unmarked(conflict, plan_id)
        return Resolution(meant, {}, tree)
    for conflict in reversed(meant):
        # Latest first: its sides contain the markers of earlier conflicts.
        deciding.take(conflict, take)
    return Resolution(meant, deciding.states, sandbox.tree(now | deciding.states))


def conflicts_at(found: Sequence[MergeConflict], path: str) -> tuple[MergeConflict, ...]:
    """Return the conflicts at the path, which may be the displayed or the stored path. Raises `ToolRefused`
    if there are none.
    """
    meant = tuple(conflict for conflict in found if conflict.shown_path == path)
    names = (path, named_by(path))
    meant = meant or tuple(conflict for conflict in found if conflict.path in names)
    if not meant:
        known = ", ".join(dict.fromkeys(conflict.shown_path for conflict in found)) or "none"
        raise ToolRefused("resolve", f"no open conflict at {shown(path)}; open conflicts: {known}")
    return meant


class _Deciding:
    """The file states that a resolution produces. Not thread-safe: used by one call."""

    def __init__(self, sandbox: Sandbox, present: dict[str, FileState]) -> None:
        self._sandbox = sandbox
        self._present = present
        self.states: dict[str, FileState | None] = {}

    def ensure_unmarked(self, conflict: MergeConflict, plan_id: str) -> None:
        state = self._present.get(conflict.path)
        if state is None or state.mode not in _FILES:
            return
        labels = f"plan {plan_id}", conflict.other_side
        sides = (conflict.left, conflict.ours, conflict.theirs)
        merged = MarkedText(*(self._text(side) if conflict.marked else b"" for side in sides))
        mark = mark_left_in(self._sandbox.content(state.content), merged, labels)
        if mark is not None:
            raise ToolRefused("resolve", f"{conflict.shown_path} still contains the conflict marker {mark!r}")

    def _text(self, state: FileState | None) -> bytes:
        return b"" if state is None or state.mode not in _FILES else self._sandbox.content(state.content)

    def take(self, conflict: MergeConflict, take: Take) -> None:
        self._ensure_no_file_above(conflict.path)
        if conflict.marked and conflict.ours is not None and conflict.theirs is not None:
            self._put(conflict.path, self._without_marks(conflict, conflict.ours, conflict.theirs, take))
            return
        left = self._spread(conflict.path, conflict.left)
        if self._at(conflict.path) != left:  # guard: changes after the merge are not thrown away
            raise self._changed(conflict.path)
        place, state = conflict.side(take)
        wanted = self._spread(place, state)
        self._ensure_room(conflict, place, wanted)
        for path in left:
            self._put(path, None)
        for path, file in wanted.items():
            self._put(path, file)

    def _without_marks(
        self, conflict: MergeConflict, ours: FileState, theirs: FileState, take: Take
    ) -> FileState:
        """Return the file with the side `take` in every place that both sides changed."""
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

    def _ensure_room(self, conflict: MergeConflict, place: str, wanted: Mapping[str, FileState]) -> None:
        if place != conflict.path and self._at(place) not in ({}, wanted):
            raise ToolRefused("resolve", f"{shown(place)} already exists with other content")
        self._ensure_no_file_above(place)

    def _ensure_no_file_above(self, place: str) -> None:
        parts = place.split("/")
        above = ("/".join(parts[:count]) for count in range(1, len(parts)))
        file = next((path for path in above if path in self._present), None)
        if file is not None:
            there = f"{shown(place)} cannot be created while {shown(file)} is a file"
            reason = f"{there}; to keep that file, take `edited`"
            raise ToolRefused("resolve", reason)

    def _at(self, path: str) -> dict[str, FileState]:
        """Return all files at the path or below it."""
        return {
            name: state
            for name, state in self._present.items()
            if name == path or name.startswith(f"{path}/")
        }

    def _spread(self, path: str, state: FileState | None) -> dict[str, FileState]:
        """Return the files of `state`, a file or a directory, by the paths they would have at `path`."""
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
        reason = f"{shown(path)} was changed after the merge; finish editing it, then take `edited`"
        return ToolRefused("resolve", reason)


def conflict_task(conflicts: Sequence[MergeConflict], content: Callable[[str], bytes]) -> str:
    """Return the task of resolving these conflicts. `content` returns stored content by name."""
    titles = dict.fromkeys(conflict.title for conflict in conflicts)
    parts = [f"Conflicts came up when this was merged into the plan: {'; '.join(titles)}", _HOW]
    room = _TASK_CHARACTERS
    told = 0
    for conflict in conflicts[:_MOST_CONFLICTS]:
        words = conflict_text(conflict, content)
        room -= len(words)
        if room < 0:
            break
        parts.append(words)
        told += 1
    left = [conflict.shown_path for conflict in conflicts[told:]]
    if left:
        more = len(left) - _MOST_CONFLICTS
        named = ", ".join(left[:_MOST_CONFLICTS]) + (f" and {more} more" if more > 0 else "")
        parts.append(f"And, not described here: {named}")
    return "\n\n".join(parts)


def side_in_short(conflict: MergeConflict, take: Take) -> str:
    """Return a short description of one side's content at the conflicted path."""
    path, state = conflict.side(take)
    where = "" if path == conflict.path else f" at {shown(path)}"
    return _kind_of(state) + where


def conflict_text(conflict: MergeConflict, content: Callable[[str], bytes]) -> str:
    """Return a description of one conflict, with an excerpt of both sides."""
    lines = [f"## {conflict.shown_path} ({conflict.kind})"]
    if conflict.marked and conflict.left is not None:
        lines.append("Both sides are marked in the file:")
        lines += _excerpt(_marked_places(content(conflict.left.content)))
        return "\n".join(lines)
    for take, name in ((Take.OURS, "ours"), (Take.THEIRS, "theirs")):
        there = "; this is in the file now" if _is_there(conflict, take) else ""
        lines.append(f"{name}: {side_in_short(conflict, take)}{there}")
        state = conflict.side(take)[1]
        if state is not None and state.mode not in (DIRECTORY, GITLINK):
            lines += _excerpt(content(state.content))
    return "\n".join(lines)


def _marked_places(text: bytes) -> bytes:
    """Return the text of every place with conflict markers."""
    places: list[bytes] = []
    inside = False
    for line in text.splitlines(keepends=True):
        inside = inside or line.startswith(b"<<<<<<<")
        if inside:
            places.append(line)
        inside = inside and not line.startswith(b">>>>>>>")
    return b"".join(places)


def _is_there(conflict: MergeConflict, take: Take) -> bool:
    path, state = conflict.side(take)
    return path == conflict.path and state == conflict.left


def _kind_of(state: FileState | None) -> str:
    if state is None:
        return "no file"
    kinds = {
        DIRECTORY: "a directory",
        GITLINK: "a submodule",
        SYMLINK: "a symbolic link",
        EXECUTABLE: "an executable file",
    }
    return kinds.get(state.mode, "a file")


def _excerpt(data: bytes) -> list[str]:
    if b"\0" in data[:8_000]:
        return [f"  ({len(data):,} bytes of binary data)"]
    text = redact_content_text(data[: 4 * _SIDE_CHARACTERS].decode("utf-8", "replace"))
    told = text[:_SIDE_CHARACTERS]
    lines = [f"  | {line}" for line in told.splitlines()]
    return lines + (["  (truncated)"] if len(text) > len(told) else [])


def settle_edited(execution: ToolExecution, merge: int, part: str) -> None:
    """Record the conflicts of the merge as resolved from whose text the run `part` removed all markers, as an
    agent without the tool `resolve` does. Other conflicts stay open: nothing shows that they were decided.
    """
    history, sandbox = execution.history, execution.sandbox
    with sandbox.writing(timeout_seconds=execution.busy_seconds):
        while found := _unmarked(history, sandbox, merge):
            _recorded(execution, found, Take.EDITED, step=f"{part}{EDITED_STEP}{found.ended[0].index}")


def _unmarked(history: PlanHistory, sandbox: Sandbox, merge: int) -> Resolution | None:
    plan_id = sandbox.plan_id
    for conflict in open_conflicts(history.merge_calls(plan_id)):
        if conflict.merge == merge and conflict.marked:
            with suppress(ToolRefused):  # it still has markers
                found = resolution_of(history, plan_id, sandbox, conflict.shown_path, Take.EDITED)
                state = sandbox.files_below(found.tree).get(conflict.path)
                if state is not None and state.mode in _FILES:  # guard: a deleted file may be a mistake
                    # guard: edits decide no other conflict at the path, such as a deletion on one side
                    return replace(found, ended=tuple(one for one in found.ended if one.marked))
    return None


def _recorded(
    execution: ToolExecution,
    found: Resolution,
    take: Take,
    *,
    step: str | None = None,
    version: int | None = None,
) -> ToolCall:
    """Write the files of the resolution and record it as a call. The caller holds `sandbox.writing()`."""
    sandbox, calls, now = execution.sandbox, execution.calls, execution.clock.now
    path = found.ended[0].shown_path
    about = FrozenObject({"path": path, "take": take.value})
    started = CallState.STARTED
    call = calls.add(sandbox.plan_id, RESOLVE, about, step=step, state=started, now=now(), version=version)
    changeset = execution.context.start_changeset()
    call = calls.move(call, CallState.STARTED, now=now(), changeset_id=changeset)
    execution.faults.reach("resolve.started.after")
    sandbox.restore(found.states)
    execution.faults.reach("resolve.files.after")
    result = resolved_result(path, take, found.ended, found.tree, found.states)
    call = calls.move(call, CallState.ENDING, now=now(), result=result)
    execution.faults.reach("resolve.ending.after")
    return execution.finish(call)


@dataclass(frozen=True, slots=True)
class ManualResolution:
    """Resolves conflicts for a person. Stateless; holds the sandbox's `writing()` while it works."""

    plans: SqlPlanStore
    sandboxes: Sandboxes
    result: PlanResult
    execution: Callable[[Plan, Sandbox], ToolExecution]

    def resolve(self, plan: Plan, path: str, take: Take, *, tree: str | None = None) -> ToolCall:
        """Resolve all open conflicts at the path, which may be the displayed or the stored path.

        Return the recorded call. If the conflict is not resolved, nothing changes: raises `PlanError` if the
        plan runs or has ended, `ResultChanged` if the result is not this `tree`, and `ToolRefused` if `take`
        is not possible.
        """
        history = self.result.history
        sandbox = self.sandboxes.open(plan.id)
        execution = self.execution(plan, sandbox)
        with sandbox.writing(timeout_seconds=execution.busy_seconds):
            self._ensure_idle(plan)
            self._settle(execution)
            # guard: the decision was about the conflict of another result
            if tree is not None and tree != self.result.tree(plan, sandbox):
                raise ResultChanged(plan.id)
            found = resolution_of(history, plan.id, sandbox, path, take)
            return _recorded(execution, found, take, version=plan.version)

    def _ensure_idle(self, plan: Plan) -> None:
        now = self.plans.get(plan.id)
        if now.state.running:  # guard: a run must not find changed files
            raise PlanError(plan.id, "still running; wait until the plan stops, or cancel it")
        if now.state.ended:
            raise PlanError(plan.id, f"already {status_word(now)}; the result can no longer change")
        if now.version != plan.version:  # guard: the decision was about an earlier version
            raise StalePlan(plan.id, plan.version)

    def _settle(self, execution: ToolExecution) -> None:
        """Finish or revert the open calls of a dead process. If there are none, edits in the sandbox stay."""
        plan_id, sandbox, history = execution.sandbox.plan_id, execution.sandbox, self.result.history
        left = history.open_calls(plan_id)
        for call in left:
            if call.state is CallState.ENDING:
                execution.finish(call)
            elif is_by_hand(call):
                error = "interrupted; nothing was changed"
                execution.calls.move(call, CallState.FAILED, now=execution.clock.now(), error=error)
        if left:
            restore_states(sandbox, history.states(plan_id))
