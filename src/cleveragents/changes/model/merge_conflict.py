"""Conflicts of a merge: both versions of a path, stored until the conflict is resolved.

The merge of a sub-plan is a recorded call of its parent, and so is a rebase, which merges a plan's result
with the current files of its repository. The result of the call contains the conflicts. A later call
`resolve` names the conflicts that it ends. So no conflict is lost: open conflicts are derived from the calls
alone, and the rollback of a `resolve` call reopens its conflicts.

This module also finds conflict markers that an edit left in a text. The markers of the sides name the plans,
so they are unique. The line between the sides is only a row of signs, which a text may also contain as a
heading or an example. This line counts as a marker only where the merge wrote it, and only while the text has
more such lines than either side had.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from difflib import SequenceMatcher
from enum import Enum
from typing import Any

from msgspec import Struct

from cleveragents.core.change import FileState
from cleveragents.core.errors import PlanError, Remedy
from cleveragents.core.json_value import JsonValue, freeze
from cleveragents.core.records import facts_of, record_of
from cleveragents.core.text.control_characters import shown
from cleveragents.core.tool import CallState, ToolCall

__all__ = [
    "DIRECTORY",
    "EDITED_STEP",
    "MERGE",
    "REBASE",
    "RESOLVE",
    "MarkedText",
    "MergeConflict",
    "MergeOutcome",
    "Take",
    "TreeMerge",
    "conflicts_ended",
    "has_rebased_since",
    "is_by_hand",
    "last_rebase",
    "mark_left_in",
    "merge_step",
    "open_conflicts",
    "part_of_merge",
    "resolved_result",
    "tree_left_by",
]


MERGE = "merge"
EDITED_STEP = ".edited-"
"""Part of the step of a call that records a conflict as resolved by the edits of an agent."""
REBASE = "rebase"
RESOLVE = "resolve"

DIRECTORY = 0o040000
"""The mode of a state that is a directory: its content is the name of a tree."""
_STEP = "merge-"


class Take(str, Enum):
    """How a conflict is resolved: with one of the sides, or with the edited file."""

    OURS = "ours"
    THEIRS = "theirs"
    EDITED = "edited"


class MergeConflict(Struct, frozen=True):
    """A path that both sides changed differently. `ours` is the plan's version; `theirs` is the version of
    the merged sub-plan or, without a `plan_id`, of the repository.

    File states are as git stores them; a state with the mode `DIRECTORY` stands for all files below the path.
    `left` is the state that the merge left at the path; `marked` is true if it contains conflict markers.
    If one side renamed the directory of the file, `path` is the new path, and `ours_path` or `theirs_path` is
    the path on the side that did not rename it. The number of the merge call and the index in it identify a
    conflict.
    """

    path: str
    kind: str
    base: FileState | None = None
    ours: FileState | None = None
    theirs: FileState | None = None
    left: FileState | None = None
    marked: bool = False
    ours_path: str | None = None
    theirs_path: str | None = None
    plan_id: str = ""
    title: str = ""
    merge: int = 0
    index: int = 0

    @property
    def is_choice(self) -> bool:
        """Whether the conflict needs a decision. If both sides renamed a file, git also reports the old name,
        which is gone on both sides; only the new names need a decision.
        """
        return not (
            self.kind.startswith("rename") and self.ours is None and self.theirs is None and self.left is None
        )

    @property
    def shown_path(self) -> str:
        """The path as people and models write it."""
        return shown(self.path)

    @property
    def other_side(self) -> str:
        """The name of the side `theirs`."""
        return f"sub-plan {self.plan_id}" if self.plan_id else "the repository"

    def side(self, take: Take) -> tuple[str, FileState | None]:
        """Return the path and the state of that side."""
        if take is Take.OURS:
            return self.ours_path or self.path, self.ours
        return self.theirs_path or self.path, self.theirs

    def to_json(self) -> JsonValue:
        """Return the conflict as the merge call stores it."""
        known = ("plan_id", "title", "merge", "index")
        return freeze({name: fact for name, fact in facts_of(self).items() if name not in known})


class TreeMerge(Struct, frozen=True):
    """The outcome of merging two trees: the new tree, and its conflicts."""

    tree: str
    conflicts: tuple[MergeConflict, ...] = ()


class MergeOutcome(Struct, frozen=True):
    """The outcome of merging a sub-plan: the tree of the parent's sandbox after the merge, the number of
    changed files, and the conflicts ordered by path. `base` is the tree that the sub-plan started from,
    `theirs` the tree that was merged; the parent's sandbox holds both.

    In the outcome of a rebase, `base` is the base of the plan before the rebase, and `theirs` its new base:
    the files of the repository. The `plan_id` is empty. `left_out` are the ids of the hunks that the reviewer
    had left out, so the merged tree does not contain them. `version` is the version of the plan that was
    rebased; None in the outcome of a merge, or of a rebase by a CleverAgents version that did not record it.
    """

    plan_id: str
    part: str
    title: str
    base: str
    tree: str
    files: int
    theirs: str
    conflicts: tuple[MergeConflict, ...] = ()
    left_out: tuple[str, ...] = ()
    version: int | None = None

    def to_json(self) -> JsonValue:
        """Return the outcome as the call stores it."""
        return freeze(
            {
                "plan": self.plan_id,
                "base": self.base,
                "theirs": self.theirs,
                "tree": self.tree,
                "files": self.files,
                "conflicts": [conflict.to_json() for conflict in self.conflicts],
                **({"left_out": [*self.left_out]} if self.left_out else {}),
                **({} if self.version is None else {"version": self.version}),
            }
        )

    @classmethod
    def of_call(cls, call: ToolCall) -> MergeOutcome:
        """Return the outcome of a finished merge call. Raises `PlanError` if it is unreadable."""
        try:
            return cls._read(call)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            problem = f"{type(error).__name__}: {error}"
            again = "Roll back and merge again"
            remedy = Remedy("plan.rollback", call.plan_id, {"checkpoint": call.number}, again)
            reason = f"the record of merge call {call.number} is unreadable ({problem})"
            raise PlanError(call.plan_id, reason, (remedy,)) from error

    @classmethod
    def _read(cls, call: ToolCall) -> MergeOutcome:
        facts: Any = call.result
        title = str(call.arguments.get("title", ""))
        plan_id = str(facts["plan"])
        own = {"plan_id": plan_id, "title": title, "merge": call.number}
        conflicts = tuple(
            record_of(MergeConflict, {**told, **own, "index": index})
            for index, told in enumerate(facts["conflicts"])
        )
        # The first merges did not store the merged tree; "" names none that a sandbox holds.
        theirs = str(facts.get("theirs", ""))
        part = part_of_merge(call) or ""
        base, tree = str(facts["base"]), str(facts["tree"])
        left_out, version = tuple(facts.get("left_out", ())), facts.get("version")
        return cls(
            plan_id, part, title, base, tree, int(facts["files"]), theirs, conflicts, left_out, version
        )


def merge_step(part: str) -> str:
    """Return the step name of the call that merges the sub-plan of this part."""
    return f"{_STEP}{part}"


def part_of_merge(call: ToolCall) -> str | None:
    """Return the part whose sub-plan the call merges; None if the call is not a merge. Calls of actors have
    other step names.
    """
    if call.tool != MERGE or call.step is None or not call.step.startswith(_STEP):
        return None
    return call.step.removeprefix(_STEP)


def is_by_hand(call: ToolCall) -> bool:
    """Return whether a person made this call to resolve a conflict or to rebase. A call by hand belongs to no
    step, unlike the calls of actors.
    """
    return call.tool in (REBASE, RESOLVE) and call.step is None


def last_rebase(calls: Sequence[ToolCall]) -> ToolCall | None:
    """Return the last finished rebase of a plan, if any. Reverted calls do not count."""
    done = (call for call in reversed(calls) if call.tool == REBASE and call.state is CallState.ENDED)
    return next(done, None)


def has_rebased_since(calls: Sequence[ToolCall], since: datetime) -> bool:
    """Return whether the result was merged with the present files after this time."""
    rebase = last_rebase(calls)
    return rebase is not None and rebase.ended_at is not None and rebase.ended_at > since


def resolved_result(
    path: str, take: Take, ended: Iterable[MergeConflict], tree: str, files: Iterable[str]
) -> JsonValue:
    """Return the result of a call `resolve`: the conflicts it ended, and the tree it left."""
    return freeze(
        {
            "path": path,
            "take": take.value,
            "ended": [{"merge": one.merge, "index": one.index} for one in ended],
            "tree": tree,
            "files": sorted(map(shown, files)),
        }
    )


def tree_left_by(call: ToolCall) -> str | None:
    """Return the tree that a merge, a rebase or a resolution left in the sandbox; None for other calls, or if
    it failed.
    """
    result, tools = call.result, (MERGE, REBASE, RESOLVE)
    if call.tool not in tools or call.error is not None or not isinstance(result, Mapping):
        return None
    told = "ended" if call.tool == RESOLVE else "conflicts"
    tree = result.get("tree")
    return tree if told in result and isinstance(tree, str) else None


def conflicts_ended(call: ToolCall) -> tuple[tuple[int, int], ...]:
    """Return the conflicts that a call `resolve` ended: the number of the merge call, and the index in it."""
    result = call.result
    if call.tool != RESOLVE or call.state is not CallState.ENDED or not isinstance(result, Mapping):
        return ()
    ended: Any = result.get("ended", ())
    return tuple((int(one["merge"]), int(one["index"])) for one in ended)


def open_conflicts(calls: Iterable[ToolCall]) -> tuple[MergeConflict, ...]:
    """Return the open conflicts of all merges and rebases, oldest first. Reverted calls do not count."""
    found: dict[tuple[int, int], MergeConflict] = {}
    for call in calls:
        merges = call.tool == REBASE or part_of_merge(call) is not None
        if call.state is CallState.ENDED and merges:
            for conflict in MergeOutcome.of_call(call).conflicts:
                if conflict.is_choice:
                    found[conflict.merge, conflict.index] = conflict
        for ended in conflicts_ended(call):
            found.pop(ended, None)
    return tuple(found.values())


class MarkedText(Struct, frozen=True):
    """The text that a merge wrote, with both sides and conflict markers in it, and the text of each side."""

    left: bytes
    ours: bytes
    theirs: bytes


def mark_left_in(text: bytes, merged: MarkedText, labels: tuple[str, str]) -> str | None:
    """Return a conflict marker of the merge that `text` still contains, or None.

    `labels` name the sides.
    """
    opening, closing = (re.escape(label).encode("utf-8") for label in labels)
    sides = re.compile(b"^(<{7,}) " + opening + b"|^(>{7,}) " + closing, flags=re.MULTILINE)
    found = sides.search(text)
    if found is not None:  # guard: an open conflict stays open
        return found[0].decode("utf-8", "replace")
    now, left = _lines(text), _lines(merged.left)
    ours, theirs = _lines(merged.ours), _lines(merged.theirs)
    between = [
        place
        for place in _between(left, ours, theirs, sides)
        if now.count(left[place]) > max(ours.count(left[place]), theirs.count(left[place]))
    ]
    kept = _kept_marks(left, now) if between else frozenset()
    mark = next((place for place in between if place in kept), None)
    return None if mark is None else left[mark].decode("utf-8", "replace")


def _lines(text: bytes) -> list[bytes]:
    return [line.rstrip(b"\r\n") for line in text.splitlines(keepends=True)]


def _between(
    left: Sequence[bytes], ours: Sequence[bytes], theirs: Sequence[bytes], sides: re.Pattern[bytes]
) -> Iterator[int]:
    """Yield the positions of the lines that the merge wrote between the sides."""
    begun: tuple[int, int] | None = None
    for place, line in enumerate(left):
        found = sides.match(line)
        if found is None:
            continue
        if found[1] is not None:
            begun = place, len(found[1])
        elif begun is not None:
            yield from _dividing(left[begun[0] + 1 : place], begun, ours, theirs)
            begun = None


def _dividing(
    inside: Sequence[bytes], begun: tuple[int, int], ours: Sequence[bytes], theirs: Sequence[bytes]
) -> Iterator[int]:
    """Yield the position of the line between the sides: the lines above it are those of one side, the lines
    below it those of the other. Above it, the common base may follow the first side, under its own marker.
    """
    first, length = begun[0] + 1, begun[1]
    for middle in (place for place, line in enumerate(inside) if line == b"=" * length):
        if not _has(theirs, inside[middle + 1 :]):
            continue
        bars = [place for place in range(middle) if _is_bar(inside[place], length)]
        for above in (middle, *bars):
            if _has(ours, inside[:above]):
                yield first + middle
                if above != middle:
                    yield first + above
                return


def _is_bar(line: bytes, length: int) -> bool:
    return line.startswith(b"|" * length) and line[length : length + 1] in (b"", b" ")


def _has(lines: Sequence[bytes], some: Sequence[bytes]) -> bool:
    """Return whether `lines` contains the lines `some` one after another."""
    if not some:
        return True
    last = len(lines) - len(some)
    return any(lines[at] == some[0] and lines[at : at + len(some)] == some for at in range(last + 1))


def _kept_marks(before: Sequence[bytes], after: Sequence[bytes]) -> frozenset[int]:
    """Return the positions of the lines that an edit left unchanged."""
    blocks = SequenceMatcher(None, before, after).get_matching_blocks()
    return frozenset(place for block in blocks for place in range(block.a, block.a + block.size))
