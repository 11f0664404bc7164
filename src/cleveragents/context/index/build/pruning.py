"""Keeps the index within bounds: contents that no view of late has are dropped.

A view is what a place held when it was last looked at. Whoever holds the index's lock may drop; a snapshot
that is open keeps what it sees, and one that is being opened looks again.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.context.index.index_file import transaction
from cleveragents.context.index.build.sealing import array_of, unsealed
from cleveragents.context.index.build.segment import merged
from cleveragents.context.index.build.segment_rows import (
    Catalogued,
    add_segment,
    catalogue,
    read_segment,
    remove_segments,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["drop_unused", "forget_places", "forget_views", "is_mostly_unused"]

_WORTH_IT = 1_000


def is_mostly_unused(connection: sqlite3.Connection, in_use: NDArray[np.int64]) -> bool:
    """Whether more than half of many contents are in no view, `in_use` counted as one."""
    total = int(connection.execute("SELECT count(*) FROM content").fetchone()[0])
    return total >= _WORTH_IT and len(_used(connection, in_use)) * 2 < total


def drop_unused(connection: sqlite3.Connection, in_use: NDArray[np.int64]) -> None:
    """Drops the contents that are in no view, and gives the room back."""
    import numpy as np

    used = _used(connection, in_use)
    for segment in catalogue(connection):
        kept = np.isin(segment.head.rows, used)
        if not kept.all():
            _thin_out(connection, segment, kept)
    connection.execute("PRAGMA incremental_vacuum").fetchall()
    # Passive: a snapshot that is open may stay so for long.
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def forget_places(connection: sqlite3.Connection, gone: Iterable[Path]) -> int:
    """Forgets the views of these directories, of what is in them, and of all that are no longer there."""
    named = [os.fsencode(path) for path in gone]
    places = [
        (place,)
        for place, root in connection.execute("SELECT place, root FROM view").fetchall()
        if not Path(os.fsdecode(root)).is_dir()
        or any(root == one or root.startswith(one + b"/") for one in named)
    ]
    with transaction(connection):
        connection.executemany("DELETE FROM view WHERE place = ?", places)
        connection.execute("DELETE FROM known_file WHERE place NOT IN (SELECT place FROM view)")
    return len(places)


def forget_views(connection: sqlite3.Connection, here: bytes) -> None:
    """Of all places: what is still looked at is looked up again. Only of the files of `here`, the place that
    is being looked at, what is known stays so."""
    with transaction(connection):
        connection.execute("DELETE FROM view")
        connection.execute("DELETE FROM known_file WHERE place <> ?", (here,))


def _used(connection: sqlite3.Connection, in_use: NDArray[np.int64]) -> NDArray[np.int64]:
    import numpy as np

    views = [
        array_of(unsealed(rows), "<i8") for (rows,) in connection.execute("SELECT rows FROM view").fetchall()
    ]
    found: NDArray[np.int64] = np.unique(np.concatenate([in_use, *views]))
    return found[found > 0]


def _thin_out(connection: sqlite3.Connection, segment: Catalogued, kept: NDArray[np.bool_]) -> None:
    rest = merged([(read_segment(connection, segment), kept)]) if kept.any() else None
    with transaction(connection):
        if rest is not None:
            add_segment(connection, rest)
        remove_segments(connection, [segment.number])
        connection.executemany(
            "DELETE FROM content WHERE row = ?", ((row,) for row in segment.head.rows[~kept].tolist())
        )
