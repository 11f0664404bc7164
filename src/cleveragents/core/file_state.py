"""What a file is at one moment, and how recorded changes lead from one moment to the next.

A state is what git would keep of a file: its mode and the name of its content. `None` stands for "no file".
Everything that compares, folds or reverses changes is decided here, without touching a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from cleveragents.core.change import ChangeEntry, ChangeKind

__all__ = ["Difference", "FileState", "differences_of", "entries_between", "split_renames", "states_after"]

REGULAR, EXECUTABLE, SYMLINK, GITLINK = 0o100644, 0o100755, 0o120000, 0o160000


@dataclass(frozen=True, slots=True)
class FileState:
    """A file: git's mode (regular, executable, symbolic link, submodule) and its content's name."""

    mode: int
    content: str


@dataclass(frozen=True, slots=True)
class Difference:
    """What a path was at first, and what it is now; None: no file."""

    before: FileState | None
    after: FileState | None


def states_after(entries: Iterable[ChangeEntry]) -> dict[str, FileState | None]:
    """The state of every path that the changes touched, once all of them were made, in order."""
    return {path: step.after for path, step in _steps_of(entries).items()}


def differences_of(entries: Iterable[ChangeEntry]) -> dict[str, Difference]:
    """First and last state of every path that was touched; one that came back to its first is left out."""
    return {path: step for path, step in _steps_of(entries).items() if step.before != step.after}


def _steps_of(entries: Iterable[ChangeEntry]) -> dict[str, Difference]:
    found: dict[str, Difference] = {}
    for entry in entries:
        for path, before, after in split_renames(entry):
            first = found[path].before if path in found else before
            found[path] = Difference(first, after)
    return found


def split_renames(entry: ChangeEntry) -> Iterator[tuple[str, FileState | None, FileState | None]]:
    """What the change did to each path: a rename takes one away and makes another."""
    before = _state(entry.before_mode, entry.before_hash)
    after = _state(entry.mode, entry.after_hash)
    if entry.old_path is None:
        yield entry.path, before, after
    else:
        yield entry.old_path, before, None
        yield entry.path, None, after


def entries_between(
    differences: Mapping[str, Difference], *, tool_call_id: str | None = None
) -> list[ChangeEntry]:
    """The changes that lead from each `before` to its `after`, in the order of their paths.

    A file that is gone and one that appeared with the very same content and mode are one rename; where
    several could be paired, the first by path are.
    """
    gone: dict[FileState, list[str]] = {}
    for path in sorted(differences):
        step = differences[path]
        if step.before is not None and step.after is None:
            gone.setdefault(step.before, []).append(path)
    renamed: dict[str, str] = {}
    for path in sorted(differences):
        step = differences[path]
        if step.before is None and step.after is not None and gone.get(step.after):
            renamed[path] = gone[step.after].pop(0)
    sources = set(renamed.values())
    return [
        _entry(path, differences[path], renamed.get(path), tool_call_id)
        for path in sorted(differences)
        if path not in sources and differences[path].before != differences[path].after
    ]


def _state(mode: int | None, content: str | None) -> FileState | None:
    return None if content is None else FileState(mode or REGULAR, content)


def _entry(path: str, step: Difference, old_path: str | None, call: str | None) -> ChangeEntry:
    before, after = step.before, step.after
    if old_path is not None and after is not None:
        return ChangeEntry(
            ChangeKind.RENAME,
            path,
            before_hash=after.content,
            after_hash=after.content,
            old_path=old_path,
            mode=after.mode,
            before_mode=after.mode,
            tool_call_id=call,
        )
    return ChangeEntry(
        _kind(before, after),
        path,
        before_hash=before.content if before else None,
        after_hash=after.content if after else None,
        mode=after.mode if after else None,
        before_mode=before.mode if before else None,
        tool_call_id=call,
    )


def _kind(before: FileState | None, after: FileState | None) -> ChangeKind:
    if before is None:
        return ChangeKind.CREATE
    if after is None:
        return ChangeKind.DELETE
    return ChangeKind.MODE if before.content == after.content else ChangeKind.MODIFY
