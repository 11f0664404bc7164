"""Changes: what was done to which file, filed in the changeset it was made under.

What recording and sealing mean is decided here, once for every store: a store adds only the critical
section in which the decision is made and kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from cleveragents.core.errors import ChangesetClosed, DuplicateKey

__all__ = ["ChangeEntry", "ChangeKind", "Changeset", "RecordedChange", "keys_of_batch"]


class ChangeKind(str, Enum):
    """What happened to the file."""

    CREATE = "create"
    MODIFY = "modify"
    DELETE = "delete"
    RENAME = "rename"
    MODE = "mode"


@dataclass(frozen=True, slots=True)
class ChangeEntry:
    """One change to one file. Hashes name content in the content store; None: there was, or is, no file.

    `mode` and `before_mode` are git's, after and before the change, so that an entry can be reversed alone.
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
            raise ValueError("old_path belongs to renames, and every rename has one")


@dataclass(frozen=True, slots=True)
class RecordedChange:
    """A change as it stands in its changeset: `sequence` counts from 1 without a gap."""

    changeset_id: str
    sequence: int
    entry: ChangeEntry
    key: str | None = None

    def repeated(self, entry: ChangeEntry) -> RecordedChange:
        """The answer to a retry under the same key: this very record, or `DuplicateKey` for another entry."""
        if entry != self.entry:  # guard: a key that came back with other content is not a retry
            raise DuplicateKey(str(self.key))
        return self


@dataclass(frozen=True, slots=True)
class Changeset:
    """An ordered set of changes of one plan; open until it is closed, immutable from then on."""

    id: str
    plan_id: str
    closed: bool = False
    length: int = 0

    def appended(self, entry: ChangeEntry, key: str | None = None) -> tuple[Changeset, RecordedChange]:
        """The changeset with one entry more, and that entry's record. `ChangesetClosed`."""
        if self.closed:  # guard: sealed is immutable
            raise ChangesetClosed(self.id)
        longer = replace(self, length=self.length + 1)
        return longer, RecordedChange(self.id, longer.length, entry, key)

    def sealed(self) -> Changeset:
        """The same changeset, closed; sealing twice is harmless."""
        return replace(self, closed=True)


def keys_of_batch(key: str | None, length: int) -> list[str | None]:
    """The key of each entry of a batch that was recorded under one key."""
    return [None if key is None else f"{key}#{number}" for number in range(1, length + 1)]
