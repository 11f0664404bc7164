"""Conflicts in words: what an actor is asked to resolve, with both sides, in bounded length."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cleveragents.changes.model.merge_conflict import DIRECTORY, KeptConflict, Take
from cleveragents.core.file_state import EXECUTABLE, GITLINK, SYMLINK, FileState
from cleveragents.core.text.path_spelling import shown
from cleveragents.core.text.redaction import redact_content_text

__all__ = ["conflict_in_words", "conflict_task", "side_in_short"]

_MOST_CONFLICTS = 40
_SIDE_CHARACTERS = 1_500
_TASK_CHARACTERS = 20_000
_HOW = """\
Make each file what both sides wanted: read it, and edit it until it has no conflict marks and does what \
either side was made for. Then call `resolve` with its path: `edited` if you edited it, `ours` to take what \
this plan had, `theirs` to take what the merged part had (in text with marks, only in the marked places). \
Leave open what you cannot decide: a person will be asked."""


def conflict_task(conflicts: Sequence[KeptConflict], content: Callable[[str], bytes]) -> str:
    """The task of resolving these. `content` gives what is kept under a name."""
    titles = dict.fromkeys(conflict.title for conflict in conflicts)
    parts = [f"Conflicts came up when this was merged into the plan: {'; '.join(titles)}", _HOW]
    room = _TASK_CHARACTERS
    told = 0
    for conflict in conflicts[:_MOST_CONFLICTS]:
        words = conflict_in_words(conflict, content)
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


def side_in_short(conflict: KeptConflict, take: Take) -> str:
    """What a side made of it, in a few words."""
    path, state = conflict.side(take)
    where = "" if path == conflict.path else f" at {shown(path)}"
    return _kind_of(state) + where


def conflict_in_words(conflict: KeptConflict, content: Callable[[str], bytes]) -> str:
    """One conflict, with as much of both sides as can be read in one go."""
    lines = [f"## {conflict.shown_path} ({conflict.kind})"]
    if conflict.marked and conflict.left is not None:
        lines.append("Both sides are marked in the file:")
        lines += _excerpt(_marked_places(content(conflict.left.content)))
        return "\n".join(lines)
    for take, name in ((Take.OURS, "ours"), (Take.THEIRS, "theirs")):
        there = "; that is there now" if _is_there(conflict, take) else ""
        lines.append(f"{name}: {side_in_short(conflict, take)}{there}")
        state = conflict.side(take)[1]
        if state is not None and state.mode not in (DIRECTORY, GITLINK):
            lines += _excerpt(content(state.content))
    return "\n".join(lines)


def _marked_places(text: bytes) -> bytes:
    """Each place that git marked, as it is in the file."""
    places: list[bytes] = []
    inside = False
    for line in text.splitlines(keepends=True):
        inside = inside or line.startswith(b"<<<<<<<")
        if inside:
            places.append(line)
        inside = inside and not line.startswith(b">>>>>>>")
    return b"".join(places)


def _is_there(conflict: KeptConflict, take: Take) -> bool:
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
        return [f"  ({len(data):,} bytes that are no text)"]
    text = redact_content_text(data[: 4 * _SIDE_CHARACTERS].decode("utf-8", "replace"))
    told = text[:_SIDE_CHARACTERS]
    lines = [f"  | {line}" for line in told.splitlines()]
    return lines + (["  (it goes on)"] if len(text) > len(told) else [])
