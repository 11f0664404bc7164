"""Reviews: which changes of a plan the reviewer leaves out, and the remaining result.

Changes are recorded with their content before and after. Leaving out one of several changesets of a file
needs a merge, because later changes were made on top of it. If the changes cannot be separated, the result is
a conflict.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from hashlib import sha256
from typing import Protocol

from msgspec import Struct
from msgspec.structs import astuple

from cleveragents.core.change import (
    REGULAR,
    ChangeEntry,
    FileState,
    RecordedChange,
    differences_of,
    split_renames,
)
from cleveragents.core.errors import PlanError

__all__ = [
    "HunkId",
    "MergeContent",
    "Review",
    "ReviewKind",
    "accepted_states",
    "lapsed_hunks",
    "present_hunks",
    "rejected_hunks",
    "without_hunks",
]

_TYPE = 0o170000


class ReviewKind(str, Enum):
    """The subject of a review."""

    PATH = "path"
    CHANGESET = "changeset"
    HUNK = "hunk"


class Review(Struct, frozen=True):
    """A verdict on a file, a changeset or a hunk."""

    plan_id: str
    kind: ReviewKind
    subject: str
    accepted: bool


class HunkId(Struct, frozen=True):
    """A hunk: lines of the `base` blob of a file that became lines of its `result` blob. Starts count from 1.

    A verdict on a hunk names both blobs, so it lapses when one of them changes. A lapsed rejection needs a
    new verdict before the result may be applied.
    """

    path: str
    base: str
    result: str
    old_start: int
    old_lines: int
    new_start: int
    new_lines: int

    @property
    def subject(self) -> str:
        """The hunk as reviews store it."""
        return json.dumps(astuple(self))

    @property
    def digest(self) -> str:
        """The id of the hunk for clients."""
        return sha256(self.subject.encode("ascii")).hexdigest()[:20]

    def meets(self, other: HunkId) -> bool:
        """Return whether both hunks change the same or adjacent lines of the same base."""
        return (
            (self.path, self.base) == (other.path, other.base)
            and self.old_start <= other.old_start + other.old_lines
            and other.old_start <= self.old_start + self.old_lines
        )


class MergeContent(Protocol):
    """A function that merges three versions of a file's content, given by their object names. It returns None
    if they conflict.
    """

    def __call__(self, ancestor: str, ours: str, theirs: str) -> str | None: ...


def accepted_states(
    plan_id: str,
    changes: Sequence[RecordedChange],
    reviews: Iterable[Review],
    merge: MergeContent,
) -> dict[str, FileState | None]:
    """Return the state of every path after the accepted changes.

    Raises `PlanError` if an accepted change was made on top of a rejected change in the same place; leaving
    out the whole file avoids this error. A rename is one change with two names: leaving out the new file
    keeps the old one, and vice versa, so that no file gets lost.
    """
    rejected = {(review.kind, review.subject) for review in reviews if not review.accepted}
    left_out = {subject for kind, subject in rejected if kind is ReviewKind.CHANGESET}
    paths_out = {subject for kind, subject in rejected if kind is ReviewKind.PATH}
    accepted = [change.entry for change in changes if change.changeset_id not in left_out]
    if paths_out:
        paths_out |= _other_names(paths_out, accepted)
    if not left_out:
        steps = differences_of(accepted)
        return {path: step.after for path, step in steps.items() if path not in paths_out}
    first: dict[str, FileState | None] = {}
    states: dict[str, FileState | None] = {}
    for change in changes:
        for path, before, after in split_renames(change.entry):
            if path in paths_out:
                continue
            first.setdefault(path, before)
            now = states.setdefault(path, before)
            if change.changeset_id not in left_out:
                states[path] = _step(plan_id, path, now, before, after, merge)
    return {path: state for path, state in states.items() if state != first[path]}


def rejected_hunks(reviews: Iterable[Review]) -> list[HunkId]:
    """Return the hunks that were left out, including those whose verdict has lapsed."""
    return _hunks_of(review for review in reviews if not review.accepted)


def present_hunks(
    hunks: Iterable[HunkId],
    states: Mapping[str, FileState | None],
    base: Mapping[str, FileState | None],
) -> list[HunkId]:
    """Return the hunks of files that have the same blobs as when the hunks were reviewed."""
    found = []
    for hunk in hunks:
        now, before = states.get(hunk.path), base.get(hunk.path)
        if now is None or before is None:
            continue
        if (before.content, now.content) == (hunk.base, hunk.result):  # guard: a verdict is on these blobs
            found.append(hunk)
    return found


def lapsed_hunks(
    reviews: Iterable[Review],
    states: Mapping[str, FileState | None],
    base: Mapping[str, FileState | None],
) -> list[HunkId]:
    """Return the hunks that were left out of an earlier version of their file and have no new verdict. A
    verdict on a current hunk at the same lines counts as a new verdict.
    """
    every = list(reviews)
    decided = present_hunks(_hunks_of(every), states, base)
    return [
        hunk
        for hunk in rejected_hunks(every)
        if hunk.path in states
        and states[hunk.path] != base.get(hunk.path)
        and not any(one.meets(hunk) for one in decided)
    ]


def without_hunks(
    states: Mapping[str, FileState | None],
    base: Mapping[str, FileState | None],
    rejected: Iterable[HunkId],
    read: Callable[[str], bytes],
    keep: Callable[[bytes], str],
) -> dict[str, FileState | None]:
    """Return the file states with the rejected hunks reverted to the lines of the base.

    Hunks of other blobs have no effect. If all hunks of a file are rejected and nothing else changed in it,
    the file counts as unchanged. `read` returns a content by name, and `keep` stores one.
    """
    found = dict(states)
    by_path: dict[str, list[HunkId]] = {}
    for hunk in present_hunks(rejected, states, base):
        by_path.setdefault(hunk.path, []).append(hunk)
    for path, hunks in by_path.items():
        now, before = states[path], base[path]
        assert now is not None
        assert before is not None
        old, new = _lines(read(before.content)), _lines(read(now.content))
        for hunk in sorted(hunks, key=lambda one: one.new_start, reverse=True):
            old_at, new_at = max(0, hunk.old_start - 1), max(0, hunk.new_start - 1)
            new[new_at : new_at + hunk.new_lines] = old[old_at : old_at + hunk.old_lines]
        state = FileState(now.mode, keep(b"".join(new)))
        if state == before:
            del found[path]
        else:
            found[path] = state
    return found


def _hunks_of(reviews: Iterable[Review]) -> list[HunkId]:
    return [HunkId(*json.loads(review.subject)) for review in reviews if review.kind is ReviewKind.HUNK]


def _lines(content: bytes) -> list[bytes]:
    lines = content.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _other_names(paths: set[str], entries: Sequence[ChangeEntry]) -> set[str]:
    """Return the other names of renamed files: earlier names that are gone, and current names."""
    names: dict[str, frozenset[str]] = {}
    for entry in entries:
        if entry.old_path is not None:
            one, other = entry.old_path, entry.path
            together = names.get(one, frozenset({one})) | names.get(other, frozenset({other}))
            names |= dict.fromkeys(together, together)
    steps = differences_of(entries)
    gone = {path for path, step in steps.items() if step.after is None}
    made = {path for path, step in steps.items() if step.before is None}
    found: set[str] = set()
    for path in paths & names.keys():
        if path in made:
            found |= names[path] & gone
        if path in gone:
            found |= names[path] & made
    return found


def _step(
    plan_id: str,
    path: str,
    now: FileState | None,
    before: FileState | None,
    after: FileState | None,
    merge: MergeContent,
) -> FileState | None:
    """Return the state of a file after the change from `before` to `after` is applied to its state `now`."""
    if now in (before, after):
        return after
    if now is None or before is None or after is None or not _same_type(now, before, after):
        raise PlanError(plan_id, _cannot(path))
    mode = after.mode if after.mode != before.mode else now.mode
    content = _content(now, before, after, merge)
    if content is None:
        raise PlanError(plan_id, _cannot(path))
    return FileState(mode, content)


def _same_type(*states: FileState) -> bool:
    """Return whether all are files, all links, or all submodules."""
    return len({state.mode & _TYPE for state in states}) == 1


def _content(now: FileState, before: FileState, after: FileState, merge: MergeContent) -> str | None:
    if after.content == before.content:
        return now.content
    if now.content == before.content:
        return after.content
    if now.mode & _TYPE != REGULAR & _TYPE:  # the target of a link and the commit of a submodule are not text
        return None
    return merge(before.content, now.content, after.content)


def _cannot(path: str) -> str:
    return f"{path}: an accepted change builds on a rejected one; reject that change too, or the whole file"
