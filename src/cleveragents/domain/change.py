"""Changes: what was done to which file, filed in the changeset it was made under."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["ChangeEntry", "ChangeKind", "Changeset", "RecordedChange"]


class ChangeKind(str, Enum):
    """What happened to the file."""

    CREATE = "create"
    MODIFY = "modify"
    DELETE = "delete"
    RENAME = "rename"
    MODE = "mode"


@dataclass(frozen=True, slots=True)
class ChangeEntry:
    """One change to one file. Hashes name content in the content store; None: there was, or is, no file."""

    kind: ChangeKind
    path: str
    before_hash: str | None = None
    after_hash: str | None = None
    old_path: str | None = None
    mode: int | None = None
    tool_call_id: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.kind, ChangeKind):
            object.__setattr__(self, "kind", ChangeKind(self.kind))
        if not self.path or "\0" in self.path:
            raise ValueError(f"{self.path!r} is not a path")
        if (self.kind is ChangeKind.RENAME) != (self.old_path is not None):
            raise ValueError("old_path belongs to renames, and every rename has one")


@dataclass(frozen=True, slots=True)
class RecordedChange:
    """A change as it stands in its changeset: `sequence` counts from 1 without a gap."""

    changeset_id: str
    sequence: int
    entry: ChangeEntry
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Changeset:
    """An ordered set of changes of one plan; open until it is closed, immutable from then on."""

    id: str
    plan_id: str
    closed: bool = False
    length: int = 0
