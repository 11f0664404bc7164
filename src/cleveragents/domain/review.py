"""Reviews: which of a plan's changes the reviewer leaves out, and what result is left.

Changes are kept whole, with their content before and after, so leaving out one changeset of several on the
same file is a question of merging: the later ones were made on top of it. Where they cannot be told apart the
answer is a conflict, never a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from cleveragents.domain.change import RecordedChange
from cleveragents.domain.file_state import FileState, differences_of, split_renames
from cleveragents.errors import PlanError

__all__ = ["MergeContent", "Review", "ReviewKind", "accepted_states"]


class ReviewKind(str, Enum):
    """What a verdict is about."""

    PATH = "path"
    CHANGESET = "changeset"


@dataclass(frozen=True, slots=True)
class Review:
    """A verdict on a file or a changeset."""

    plan_id: str
    kind: ReviewKind
    subject: str
    accepted: bool


class MergeContent(Protocol):
    """Merges three versions of a file's content, by name; None if they conflict."""

    def __call__(self, ancestor: str, ours: str, theirs: str) -> str | None: ...


def accepted_states(
    plan_id: str,
    changes: Sequence[RecordedChange],
    reviews: Iterable[Review],
    merge: MergeContent,
) -> dict[str, FileState | None]:
    """The state of every path that the accepted changes lead to. `PlanError` where a later accepted change
    was made on top of a rejected one in the same place."""
    rejected = {review.subject: review.kind for review in reviews if not review.accepted}
    left_out = {subject for subject, kind in rejected.items() if kind is ReviewKind.CHANGESET}
    paths_out = {subject for subject, kind in rejected.items() if kind is ReviewKind.PATH}
    if not left_out:
        all_of_them = differences_of(change.entry for change in changes)
        return {path: step.after for path, step in all_of_them.items() if path not in paths_out}
    states: dict[str, FileState | None] = {}
    first: dict[str, FileState | None] = {}
    for change in changes:
        for path, before, after in split_renames(change.entry):
            first.setdefault(path, before)
            now = states.get(path, first[path])
            if change.changeset_id in left_out:
                states.setdefault(path, now)
                continue
            states[path] = _step(plan_id, path, now, before, after, merge)
    return {path: state for path, state in states.items() if state != first[path] and path not in paths_out}


def _step(
    plan_id: str,
    path: str,
    now: FileState | None,
    before: FileState | None,
    after: FileState | None,
    merge: MergeContent,
) -> FileState | None:
    if now == before:
        return after
    if now is None or before is None or after is None:
        raise PlanError(plan_id, _cannot(path))
    mode = after.mode if after.mode != before.mode else now.mode
    if after.content == before.content:
        return FileState(mode, now.content)
    content = merge(before.content, now.content, after.content)
    if content is None:
        raise PlanError(plan_id, _cannot(path))
    return FileState(mode, content)


def _cannot(path: str) -> str:
    return (
        f"{path}: a later change was made on top of a rejected one; reject that one, too, or the whole file"
    )
