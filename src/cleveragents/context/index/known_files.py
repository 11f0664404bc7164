"""What was known of files that git does not vouch for, and which contents were looked at lately."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cleveragents.context.index.build.sealing import array_of, sealed, unsealed
from cleveragents.context.index.index_file import transaction
from cleveragents.context.index.place import Ground
from cleveragents.context.index.view import View

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["place_name", "remember", "remembered_stamps"]

MOST_VIEWS = 32
_AGAIN_SECONDS = 3600

Stamps = Mapping[str, tuple[str, bytes]]


def place_name(ground: Ground) -> bytes:
    """The same each time that the place is looked at; all commits of a repository count as one each."""
    return os.fsencode(f"{ground.root}@{ground.commit or ''}")


def remembered_stamps(connection: sqlite3.Connection, ground: Ground) -> dict[str, tuple[str, bytes]]:
    """By path: stamp and digest."""
    if ground.commit is not None:
        return {}
    return {
        path: (stamp, bytes(digest))
        for path, stamp, digest in connection.execute(
            "SELECT path, stamp, digest FROM known_file WHERE place = ?", (place_name(ground),)
        )
    }


def remember(
    connection: sqlite3.Connection, ground: Ground, before: Stamps, view: View, rows: NDArray[np.int64]
) -> None:
    """Writes down what has changed since `before`, if anything has. `rows` are the contents in use.

    What a view that is not whole does not have may still be there: it stays as it was.
    """
    import numpy as np

    now = view.stamps
    place = place_name(ground)
    known = connection.execute("SELECT used, rows FROM view WHERE place = ?", (place,)).fetchone()
    if known is not None and not view.whole:  # guard: what is in use may be dropped otherwise
        rows = np.union1d(rows, array_of(unsealed(known[1]), "<i8"))
    used = rows.astype("<i8").tobytes()
    moment = int(time.time())
    fresh = known is None or known[1] != sealed(used) or known[0] < moment - _AGAIN_SECONDS
    gone = [path for path in before if path not in now] if view.whole else []
    learned = [(path, *told) for path, told in now.items() if before.get(path) != told]
    if not (fresh or gone or learned):
        return
    with transaction(connection):
        connection.execute(
            "INSERT OR REPLACE INTO view VALUES (?, ?, ?, ?)",
            (place, os.fsencode(ground.root), moment, sealed(used)),
        )
        connection.executemany(
            "DELETE FROM known_file WHERE place = ? AND path = ?", ((place, path) for path in gone)
        )
        connection.executemany(
            "INSERT OR REPLACE INTO known_file VALUES (?, ?, ?, ?)", ((place, *one) for one in learned)
        )
        _forget_old_views(connection)


def _forget_old_views(connection: sqlite3.Connection) -> None:
    old: Sequence[tuple[bytes]] = connection.execute(
        "SELECT place FROM view ORDER BY used DESC, place LIMIT -1 OFFSET ?", (MOST_VIEWS,)
    ).fetchall()
    connection.executemany("DELETE FROM view WHERE place = ?", old)
    connection.executemany("DELETE FROM known_file WHERE place = ?", old)
