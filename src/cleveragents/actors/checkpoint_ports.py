"""Where the checkpoints of graphs are kept: bytes by thread, opaque here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Blob", "StoredCheckpoint", "StoredWrite"]

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
