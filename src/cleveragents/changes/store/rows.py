"""Changes as rows: what the columns of `change_entries` hold, and what no database can hold.

A path is text to Python and bytes to the file system; one that is not UTF-8 comes with lone surrogates, which
no database takes. Such a path is kept as a JSON string, which is plain ASCII and begins with a quote; a path
that itself begins with a quote is kept so, too, and every other one as it is.
"""

from __future__ import annotations

import json

from sqlalchemy import Row

from cleveragents.core.change import ChangeEntry, RecordedChange
from cleveragents.storage.columns import is_storable
from cleveragents.storage.rows import record_in, row_of

__all__ = ["change_row", "recorded_of"]


def change_row(change: RecordedChange) -> dict[str, object]:
    """The columns of a recorded change."""
    entry = change.entry
    return row_of(
        entry,
        changeset_id=change.changeset_id,
        sequence=change.sequence,
        path=_kept(entry.path),
        old_path=None if entry.old_path is None else _kept(entry.old_path),
        key=change.key,
    )


def recorded_of(row: Row[tuple[object, ...]]) -> RecordedChange:
    """The recorded change of a row."""
    columns = row._mapping
    old_path = None if columns["old_path"] is None else _path(columns["old_path"])
    entry = record_in(ChangeEntry, columns, path=_path(columns["path"]), old_path=old_path)
    return RecordedChange(columns["changeset_id"], columns["sequence"], entry, columns["key"])


def _kept(path: str) -> str:
    return path if is_storable(path) and not path.startswith('"') else json.dumps(path)


def _path(kept: str) -> str:
    if not kept.startswith('"'):
        return kept
    path: str = json.loads(kept)
    return path
