"""Changes to files, recorded in changesets, and the file states between them.

This module contains the rules for recording and closing, which all stores share. A store adds only the
critical section in which a rule is applied and its result stored.

A file state is the mode of a file and the hash of its content, as in git; `None` means that there is no file.
All functions that compare, fold or reverse changes are in this module, and never access a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from cleveragents.core.errors import ChangesetClosed, DuplicateKey

__all__ = [
    "ChangeEntry",
    "ChangeKind",
    "Changeset",
    "Difference",
    "FileState",
    "RecordedChange",
    "differences_of",
    "entries_between",
    "keys_of_batch",
    "split_renames",
    "states_after",
]


REGULAR, EXECUTABLE, SYMLINK, GITLINK = 0o100644, 0o100755, 0o120000, 0o160000


class ChangeKind(str, Enum):
    """The kind of a change."""

    CREATE = "create"
    MODIFY = "modify"
    DELETE = "delete"
    RENAME = "rename"
    MODE = "mode"


@dataclass(frozen=True, slots=True)
class ChangeEntry:
    """One change to one file. Hashes refer to the content store; None means that there is no file.

    `mode` and `before_mode` are git's modes after and before the change, so that an entry alone can be
    reversed.
    """

    kind: ChangeKind
    path: str
    before_hash: str | None = None
    after_hash: str | None = None
    old_path: str | None = None
    mode: int | None = None
    tool_call_id: str | None = None
    before_mode: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.kind, ChangeKind):
            object.__setattr__(self, "kind", ChangeKind(self.kind))
        for path in (self.path, self.old_path):
            if path is not None and (not path or "\0" in path):
                raise ValueError(f"{path!r} is not a path")
        if (self.kind is ChangeKind.RENAME) != (self.old_path is not None):
            raise ValueError("a rename needs old_path, and other changes must not have one")


class RecordedChange(Struct, frozen=True):
    """A change in its changeset: `sequence` counts from 1 without gaps."""

    changeset_id: str
    sequence: int
    entry: ChangeEntry
    key: str | None = None

    def repeated(self, entry: ChangeEntry) -> RecordedChange:
        """Return this record for a retry with the same key. Raises `DuplicateKey` if the entry differs."""
        if entry != self.entry:  # guard: a reused key with different content is not a retry
            raise DuplicateKey(str(self.key))
        return self


class Changeset(Struct, frozen=True):
    """An ordered set of changes of one plan; immutable once it is closed."""

    id: str
    plan_id: str
    closed: bool = False
    length: int = 0

    def appended(self, entry: ChangeEntry, key: str | None = None) -> tuple[Changeset, RecordedChange]:
        """Return the changeset with one more entry, and the record of that entry.

        Raises `ChangesetClosed`.
        """
        if self.closed:  # guard: a closed changeset is immutable
            raise ChangesetClosed(self.id)
        longer = replace(self, length=self.length + 1)
        return longer, RecordedChange(self.id, longer.length, entry, key)

    def sealed(self) -> Changeset:
        """Return a closed copy of the changeset. Closing twice is harmless."""
        return replace(self, closed=True)


def keys_of_batch(key: str | None, length: int) -> list[str | None]:
    """Return the key of each entry of a batch recorded under one key."""
    return [None if key is None else f"{key}#{number}" for number in range(1, length + 1)]


class FileState(Struct, frozen=True):
    """A file: git's mode (regular, executable, symbolic link, submodule) and the hash of its content."""

    mode: int
    content: str


class Difference(Struct, frozen=True):
    """The first and the current state of a path; None means no file."""

    before: FileState | None
    after: FileState | None


def states_after(entries: Iterable[ChangeEntry]) -> dict[str, FileState | None]:
    """Return the state of every touched path after all changes, in order."""
    return {path: step.after for path, step in _steps_of(entries).items()}


def differences_of(entries: Iterable[ChangeEntry]) -> dict[str, Difference]:
    """Return the first and last state of every path whose states differ."""
    return {path: step for path, step in _steps_of(entries).items() if step.before != step.after}


def _steps_of(entries: Iterable[ChangeEntry]) -> dict[str, Difference]:
    found: dict[str, Difference] = {}
    for entry in entries:
        for path, before, after in split_renames(entry):
            first = found[path].before if path in found else before
            found[path] = Difference(first, after)
    return found


def split_renames(entry: ChangeEntry) -> Iterator[tuple[str, FileState | None, FileState | None]]:
    """Yield each path that the change affects, with its state before and after. A rename removes one path and
    creates another.
    """
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
    """Return the changes that lead from each `before` to its `after`, ordered by path.

    A removed file and a new file with the same content and mode become a rename. If several pairs are
    possible, the first pairs by path are used.
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
