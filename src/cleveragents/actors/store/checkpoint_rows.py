"""Checkpoints as rows of `graph_checkpoints`, `graph_values` and `graph_writes`. Values are opaque bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select

from cleveragents.core.errors import DatabaseFailed
from cleveragents.storage.actor_tables import graph_values, graph_writes
from cleveragents.storage.columns import ensure_storable

__all__ = [
    "Blob",
    "StoredCheckpoint",
    "StoredWrite",
    "checkpoint_row",
    "filled",
    "value_rows",
    "versions_of",
    "write_rows",
]


# Channels and versions are matched separately: for pairs, SQLite scans all values of a thread.
_VALUES = select(graph_values).where(
    graph_values.c.thread_id == bindparam("thread_id"),
    graph_values.c.namespace == bindparam("namespace"),
    graph_values.c.channel.in_(bindparam("channels", expanding=True)),
    graph_values.c.version.in_(bindparam("versions", expanding=True)),
)
_WRITES = select(graph_writes).where(
    graph_writes.c.thread_id == bindparam("thread_id"),
    graph_writes.c.namespace == bindparam("namespace"),
    graph_writes.c.checkpoint_id.in_(bindparam("checkpoints", expanding=True)),
)

Blob = tuple[str, bytes]
"""A serialised value: the name of its format, and its bytes."""


def checkpoint_row(checkpoint: StoredCheckpoint) -> dict[str, object]:
    """Return the row of a checkpoint, with the versions of its values. Raises `InvalidPayload`."""
    ids = {
        "thread": checkpoint.thread_id,
        "namespace": checkpoint.namespace,
        "id": checkpoint.checkpoint_id,
        "parent": checkpoint.parent_id,
    }
    ensure_storable("a checkpoint", ids)
    return {
        "thread_id": checkpoint.thread_id,
        "namespace": checkpoint.namespace,
        "checkpoint_id": checkpoint.checkpoint_id,
        "parent_id": checkpoint.parent_id,
        "kind": checkpoint.checkpoint[0],
        "content": checkpoint.checkpoint[1],
        "metadata": checkpoint.metadata,
        "versions": json.dumps({channel: version for channel, (version, _) in checkpoint.values.items()}),
    }


def value_rows(checkpoint: StoredCheckpoint) -> list[dict[str, object]]:
    """Return the rows of the checkpoint's new values. Raises `InvalidPayload`."""
    rows: list[dict[str, object]] = []
    for channel, (version, (kind, content)) in checkpoint.values.items():
        if not kind:
            continue
        ensure_storable("a checkpoint", {"channel": channel, "version": version})
        rows.append(
            {
                "thread_id": checkpoint.thread_id,
                "namespace": checkpoint.namespace,
                "channel": channel,
                "version": version,
                "kind": kind,
                "content": content,
            }
        )
    return rows


def write_rows(key: Mapping[str, str], writes: Sequence[StoredWrite]) -> list[dict[str, object]]:
    """Return the rows of writes; `key` identifies their checkpoint. Raises `InvalidPayload`."""
    ensure_storable("a checkpoint", key)
    return [{**key, **_write_columns(write)} for write in writes]


def _write_columns(write: StoredWrite) -> dict[str, object]:
    ensure_storable(
        "a checkpoint", {"task": write.task_id, "channel": write.channel, "path": write.task_path}
    )
    return {
        "task_id": write.task_id,
        "index": write.index,
        "channel": write.channel,
        "kind": write.value[0],
        "content": write.value[1],
        "task_path": write.task_path,
    }


def filled(connection: Connection, rows: Sequence[Row[Any]], location: str) -> list[StoredCheckpoint]:
    """Load the values and writes of checkpoint rows, in the same order.

    Raises `DatabaseFailed` if a value is missing.
    """
    places: dict[tuple[str, str], list[Row[Any]]] = {}
    for row in rows:
        places.setdefault((row.thread_id, row.namespace), []).append(row)
    found: dict[tuple[str, str, str], StoredCheckpoint] = {}
    for (thread_id, namespace), here in places.items():
        place = {"thread_id": thread_id, "namespace": namespace}
        versions = {row.checkpoint_id: versions_of(row.versions) for row in here}
        values = _values(connection, place, versions.values())
        writes = _writes(connection, place, list(versions))
        for row in here:
            wanted = versions[row.checkpoint_id]
            missing = [name for name, version in wanted.items() if (name, version) not in values]
            if missing:  # guard: a graph never continues from an incomplete state
                raise DatabaseFailed(location, f"a checkpoint of {thread_id} lacks its {missing[0]!r}")
            own = {name: (version, values[name, version]) for name, version in wanted.items()}
            key = (thread_id, namespace, row.checkpoint_id)
            found[key] = _checkpoint_of(row, own, writes.get(row.checkpoint_id, ()))
    return [found[row.thread_id, row.namespace, row.checkpoint_id] for row in rows]


def versions_of(kept: str) -> dict[str, str]:
    """Parse the stored versions of a checkpoint's values."""
    versions: dict[str, str] = json.loads(kept)
    return versions


def _checkpoint_of(
    row: Row[Any], values: Mapping[str, tuple[str, Blob]], writes: Sequence[StoredWrite]
) -> StoredCheckpoint:
    columns = row._mapping
    return StoredCheckpoint(
        row.thread_id,
        row.namespace,
        row.checkpoint_id,
        row.parent_id,
        (row.kind, row.content),
        columns["metadata"],
        values,
        writes,
    )


def _values(
    connection: Connection, place: Mapping[str, str], versions: Iterable[Mapping[str, str]]
) -> dict[tuple[str, str], Blob]:
    wanted = {pair for of_one in versions for pair in of_one.items()}
    if not wanted:
        return {}
    channels = sorted({channel for channel, _ in wanted})
    numbers = sorted({version for _, version in wanted})
    rows = connection.execute(_VALUES, {**place, "channels": channels, "versions": numbers})
    return {(row.channel, row.version): (row.kind, row.content) for row in rows}


def _writes(
    connection: Connection, place: Mapping[str, str], checkpoints: Sequence[str]
) -> dict[str, list[StoredWrite]]:
    found: dict[str, list[StoredWrite]] = {}
    for row in connection.execute(_WRITES, {**place, "checkpoints": checkpoints}):
        columns = row._mapping
        write = StoredWrite(
            row.task_id, columns["index"], row.channel, (row.kind, row.content), row.task_path
        )
        found.setdefault(row.checkpoint_id, []).append(write)
    for writes in found.values():
        # The order in which a step applies them. Sorted here, because databases disagree on the order of
        # text.
        writes.sort(key=lambda write: (write.task_path, write.task_id, write.index))
    return found


@dataclass(frozen=True, slots=True)
class StoredWrite:
    """A write of one task, stored before its step has ended."""

    task_id: str
    index: int
    channel: str
    value: Blob
    task_path: str = ""


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint. `values` maps channels to versions and values. If `supersedes` is set, older checkpoints
    than its parent are no longer needed.
    """

    thread_id: str
    namespace: str
    checkpoint_id: str
    parent_id: str | None
    checkpoint: Blob
    metadata: bytes
    values: Mapping[str, tuple[str, Blob]]
    writes: Sequence[StoredWrite] = ()
    supersedes: bool = False
