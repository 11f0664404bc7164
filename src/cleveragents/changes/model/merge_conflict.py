"""Conflicts of a merge: what both sides made of one path, kept until somebody says what is to become of it.

A merge of a sub-plan is a recorded call of its parent, and its conflicts are in that call's result. A later
call `resolve` names the conflicts that it ends. So a conflict cannot get lost: what is open is found from the
calls alone, and who takes a call back opens again what it had resolved.

Marks of a merge that are still in a text that was edited since.

Those of the sides name the plans, so nobody else writes them. The line between the sides is only a row of
signs, which a text may well have for itself, as a heading or as an example: such a line counts as a mark only
where the merge wrote it, and only while the text has more of that line than either side ever had.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import Enum
from typing import Any

from cleveragents.core.change import FileState
from cleveragents.core.errors import PlanError, Remedy
from cleveragents.core.json_value import JsonValue, freeze
from cleveragents.core.records import facts_of, record_of
from cleveragents.core.text.control_characters import shown
from cleveragents.core.tool import CallState, ToolCall

__all__ = [
    "DIRECTORY",
    "MERGE",
    "RESOLVE",
    "MarkedText",
    "MergeConflict",
    "MergeOutcome",
    "Take",
    "TreeMerge",
    "conflicts_ended",
    "is_by_hand",
    "mark_left_in",
    "merge_step",
    "open_conflicts",
    "part_of_merge",
    "resolved_result",
    "tree_left_by",
]


MERGE = "merge"
RESOLVE = "resolve"

DIRECTORY = 0o040000
"""The mode of a state that is a whole directory: its content is the name of a tree."""
_STEP = "merge-"


class Take(str, Enum):
    """What is to become of a conflict: one of the sides, or what the file was edited to."""

    OURS = "ours"
    THEIRS = "theirs"
    EDITED = "edited"


@dataclass(frozen=True, slots=True)
class MergeConflict:
    """One path of which both sides made something else. `ours` is the parent's, `theirs` the sub-plan's.

    States are what git keeps of a file; one whose mode is `DIRECTORY` stands for all that is below it. `left`
    is what the merge left at the path. `marked`: that is text in which git marked the places, both sides in
    each. Where a side has its file at another path, because the other renamed the directory, that is in
    `ours_path` or `theirs_path`. A conflict is known by the number of its merge's call and its own in it.
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
        """Whether there is anything to decide. The old name of a file that both sides renamed is gone on
        both; git tells it with the new ones, which are what is to be decided."""
        return not (
            self.kind.startswith("rename") and self.ours is None and self.theirs is None and self.left is None
        )

    @property
    def shown_path(self) -> str:
        """As people and models name it."""
        return shown(self.path)

    def side(self, take: Take) -> tuple[str, FileState | None]:
        """Where that side has it, and as what."""
        if take is Take.OURS:
            return self.ours_path or self.path, self.ours
        return self.theirs_path or self.path, self.theirs

    def to_json(self) -> JsonValue:
        """As the merge's call keeps it."""
        known = ("plan_id", "title", "merge", "index")
        return freeze({name: fact for name, fact in facts_of(self).items() if name not in known})


@dataclass(frozen=True, slots=True)
class TreeMerge:
    """What came of merging two trees: the tree that is left, and the conflicts in it."""

    tree: str
    conflicts: tuple[MergeConflict, ...] = ()


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """What came of merging a sub-plan: the tree its parent's sandbox had then, how many files changed in it,
    and the conflicts, in order of path. `base` is the tree from which the sub-plan had started, `theirs` the
    one that was merged; the parent's sandbox keeps both."""

    plan_id: str
    part: str
    title: str
    base: str
    tree: str
    files: int
    theirs: str
    conflicts: tuple[MergeConflict, ...] = ()

    def to_json(self) -> JsonValue:
        """As the call keeps it."""
        return freeze(
            {
                "plan": self.plan_id,
                "base": self.base,
                "theirs": self.theirs,
                "tree": self.tree,
                "files": self.files,
                "conflicts": [conflict.to_json() for conflict in self.conflicts],
            }
        )

    @classmethod
    def of_call(cls, call: ToolCall) -> MergeOutcome:
        """What the call of a merge that is done tells. `PlanError` if it cannot be read."""
        try:
            return cls._read(call)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            problem = f"{type(error).__name__}: {error}"
            again = "Roll it back, to be merged again"
            remedy = Remedy("plan.rollback", call.plan_id, {"checkpoint": call.number}, again)
            reason = f"what is kept of call {call.number}, a merge, cannot be read ({problem})"
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
        # The first merges did not tell which tree they had merged: then that is none that a sandbox keeps.
        theirs = str(facts.get("theirs", ""))
        part = part_of_merge(call) or ""
        base, tree = str(facts["base"]), str(facts["tree"])
        return cls(plan_id, part, title, base, tree, int(facts["files"]), theirs, conflicts)


def merge_step(part: str) -> str:
    """The step of the call that merges the sub-plan of that part."""
    return f"{_STEP}{part}"


def part_of_merge(call: ToolCall) -> str | None:
    """Which part's sub-plan the call merges; None if it is no merge. An actor's calls have other steps."""
    if call.tool != MERGE or call.step is None or not call.step.startswith(_STEP):
        return None
    return call.step.removeprefix(_STEP)


def is_by_hand(call: ToolCall) -> bool:
    """Whether a person, and no actor, resolves a conflict by it: what a person does belongs to no step."""
    return call.tool == RESOLVE and call.step is None


def resolved_result(
    path: str, take: Take, ended: Iterable[MergeConflict], tree: str, files: Iterable[str]
) -> JsonValue:
    """What a call `resolve` tells: which conflicts it ended, and the tree that it left."""
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
    """The tree that a merge or a resolution left in the sandbox; None of any other call, or if it failed."""
    result = call.result
    if call.tool not in (MERGE, RESOLVE) or call.error is not None or not isinstance(result, Mapping):
        return None
    told = "conflicts" if call.tool == MERGE else "ended"
    tree = result.get("tree")
    return tree if told in result and isinstance(tree, str) else None


def conflicts_ended(call: ToolCall) -> tuple[tuple[int, int], ...]:
    """Which conflicts a call `resolve` ended: the number of the merge's call, and the conflict's in it."""
    result = call.result
    if call.tool != RESOLVE or call.state is not CallState.ENDED or not isinstance(result, Mapping):
        return ()
    ended: Any = result.get("ended", ())
    return tuple((int(one["merge"]), int(one["index"])) for one in ended)


def open_conflicts(calls: Iterable[ToolCall]) -> tuple[MergeConflict, ...]:
    """The conflicts of all merges that nobody ended, oldest first. What was taken back does not count."""
    found: dict[tuple[int, int], MergeConflict] = {}
    for call in calls:
        if call.state is CallState.ENDED and part_of_merge(call) is not None:
            for conflict in MergeOutcome.of_call(call).conflicts:
                if conflict.is_choice:
                    found[conflict.merge, conflict.index] = conflict
        for ended in conflicts_ended(call):
            found.pop(ended, None)
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class MarkedText:
    """What a merge left, with both sides in it, and what either side had been."""

    left: bytes
    ours: bytes
    theirs: bytes


def mark_left_in(text: bytes, merged: MarkedText, labels: tuple[str, str]) -> str | None:
    """A mark of that merge that the text still has; None if there is none. `labels` name the sides."""
    opening, closing = (re.escape(label).encode("utf-8") for label in labels)
    sides = re.compile(b"^(<{7,}) " + opening + b"|^(>{7,}) " + closing, flags=re.MULTILINE)
    found = sides.search(text)
    if found is not None:  # guard: what nobody decided is not decided
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
    """Where the merge wrote the lines that divide a marked place."""
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
    """The line between the sides: what is above it one side had, what is below it the other. Above it there
    may be what both began with, under a mark of its own."""
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
    """Whether these follow one another in it."""
    if not some:
        return True
    last = len(lines) - len(some)
    return any(lines[at] == some[0] and lines[at : at + len(some)] == some for at in range(last + 1))


def _kept_marks(before: Sequence[bytes], after: Sequence[bytes]) -> frozenset[int]:
    """The places of the lines that an edit left as they were."""
    blocks = SequenceMatcher(None, before, after).get_matching_blocks()
    return frozenset(place for block in blocks for place in range(block.a, block.a + block.size))
