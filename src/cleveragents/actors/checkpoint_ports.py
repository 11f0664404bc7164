"""Where the checkpoints of graphs are kept: bytes by thread, opaque here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cleveragents.core.identifiers import Fence

__all__ = ["Blob", "CheckpointStore", "StoredCheckpoint", "StoredWrite"]

Blob = tuple[str, bytes]
"""A value as a serialiser left it: how, and what."""


@dataclass(frozen=True, slots=True)
class StoredWrite:
    """What one task of a step wrote, before the step was over."""

    task_id: str
    index: int
    channel: str
    value: Blob
    task_path: str = ""


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint. `values` are the channels' values by name, each at its version. One that `supersedes` is,
    with its parent, all that is needed from now on."""

    thread_id: str
    namespace: str
    checkpoint_id: str
    parent_id: str | None
    checkpoint: Blob
    metadata: bytes
    values: Mapping[str, tuple[str, Blob]]
    writes: Sequence[StoredWrite] = ()
    supersedes: bool = False


class CheckpointStore(Protocol):
    """Checkpoints by thread. Every method is one atomic step; what returned survives kill -9.

    A write with a fence is refused (`StaleFence`) unless the job still runs under that token: checked in the
    same transaction.
    """

    def get(
        self, thread_id: str, namespace: str = "", checkpoint_id: str | None = None
    ) -> StoredCheckpoint | None:
        """That checkpoint with its values and writes; the latest, if none is named."""
        ...

    def list(
        self,
        thread_id: str | None,
        *,
        namespace: str | None = None,
        before: str | None = None,
    ) -> Iterator[StoredCheckpoint]:
        """Newest first."""
        ...

    def put(self, checkpoint: StoredCheckpoint, *, fence: Fence | None = None) -> None:
        """Keeps the checkpoint and those of its values that are new; `writes` is not looked at.

        One that supersedes is the end of all that came before its parent in its namespace, and of the
        namespaces below it (`namespace|…`): graphs that the step before it ran.
        """
        ...

    def put_writes(
        self,
        thread_id: str,
        namespace: str,
        checkpoint_id: str,
        writes: Sequence[StoredWrite],
        *,
        replace: bool,
        fence: Fence | None = None,
        checkpoint: StoredCheckpoint | None = None,
    ) -> None:
        """Keeps them; one that is there already (task and index) is replaced or left, as `replace` says.

        `checkpoint` is the one they belong to, where it was not put yet: it is kept with them, or neither.
        """
        ...

    def threads(self) -> Sequence[str]:
        """The names of all threads of which something is kept."""
        ...

    def delete_threads(self, beginning: str) -> None:
        """Forgets the thread of that name, and those below it (`beginning/…`)."""
        ...
