"""Segments in the file: a catalogue that is read whole, dictionaries that are read when a field is asked for,
and blocks of postings, of which a question reads the few that it needs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cleveragents.context.index.build.segment import (
    CATALOGUE,
    FieldPostings,
    IndexDamaged,
    Segment,
    array_of,
    pack,
    sealed,
    unpack,
    unsealed,
)
from cleveragents.context.model.code import Field

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "BLOCK",
    "Catalogued",
    "add_contents",
    "add_segment",
    "catalogue",
    "read_blocks",
    "read_dictionary",
    "read_segment",
    "remove_segments",
]

BLOCK = 8192
"""Postings in a row."""


@dataclass(frozen=True, slots=True)
class Catalogued:
    """A segment of the file, without its postings."""

    number: int
    postings: int
    head: Segment


def add_contents(
    connection: sqlite3.Connection, segment: Segment, digests: Sequence[bytes], analyses: Sequence[bytes]
) -> None:
    """Adds a segment and its contents' analyses. `sqlite3.IntegrityError` if one of them is there already."""
    import numpy as np

    first = connection.execute("SELECT coalesce(max(row), 0) + 1 FROM content").fetchone()[0]
    rows = range(first, first + len(digests))
    connection.executemany(
        "INSERT INTO content VALUES (?, ?, ?)",
        zip(rows, digests, map(sealed, analyses), strict=True),
    )
    add_segment(connection, replace(segment, rows=np.array(rows, np.int64)))


def add_segment(connection: sqlite3.Connection, segment: Segment) -> None:
    """Adds it, within the caller's transaction."""
    head = pack([getattr(segment, name).tobytes() for name in CATALOGUE])
    cursor = connection.execute(
        "INSERT INTO segment (postings, catalogue) VALUES (?, ?)", (segment.postings, sealed(head))
    )
    number = cursor.lastrowid
    for field, postings in segment.fields.items():
        words = pack([postings.terms.tobytes(), postings.ends.tobytes()])
        connection.execute("INSERT INTO dictionary VALUES (?, ?, ?)", (number, field.value, sealed(words)))
        connection.executemany(
            "INSERT INTO block VALUES (?, ?, ?, ?)",
            (
                (
                    number,
                    field.value,
                    at // BLOCK,
                    sealed(
                        pack(
                            [
                                postings.chunks[at : at + BLOCK].tobytes(),
                                postings.counts[at : at + BLOCK].tobytes(),
                            ]
                        )
                    ),
                )
                for at in range(0, len(postings.chunks), BLOCK)
            ),
        )


def remove_segments(connection: sqlite3.Connection, numbers: Iterable[int]) -> None:
    """Removes them, but not their contents' analyses."""
    for number in numbers:
        connection.execute("DELETE FROM segment WHERE segment = ?", (number,))
        connection.execute("DELETE FROM dictionary WHERE segment = ?", (number,))
        connection.execute("DELETE FROM block WHERE segment = ?", (number,))


def catalogue(connection: sqlite3.Connection) -> list[Catalogued]:
    """All segments, oldest first. `IndexDamaged`."""
    found = []
    for number, postings, data in connection.execute(
        "SELECT segment, postings, catalogue FROM segment ORDER BY segment"
    ):
        parts = unpack(unsealed(data))
        if len(parts) != len(CATALOGUE):
            raise IndexDamaged("a part of it is missing")
        arrays = {
            name: array_of(part, kind) for (name, kind), part in zip(CATALOGUE.items(), parts, strict=True)
        }
        found.append(Catalogued(number, postings, Segment(**arrays, fields={})))
    return found


def read_dictionary(
    connection: sqlite3.Connection, number: int, field: Field
) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
    """A field's terms, and where the postings of each end. `IndexDamaged`."""
    row = connection.execute(
        "SELECT data FROM dictionary WHERE segment = ? AND field = ?", (number, field.value)
    ).fetchone()
    terms, ends = unpack(unsealed(row and row[0]))
    return array_of(terms, "<u8"), array_of(ends, "<u4")


def read_blocks(
    connection: sqlite3.Connection, number: int, field: Field, blocks: Sequence[int]
) -> tuple[NDArray[np.uint32], NDArray[np.uint16]]:
    """Chunks and counts in these blocks, one block after the other. `IndexDamaged`."""
    import numpy as np

    chunks = []
    counts = []
    for block in blocks:
        row = connection.execute(
            "SELECT data FROM block WHERE segment = ? AND field = ? AND number = ?",
            (number, field.value, block),
        ).fetchone()
        where, often = unpack(unsealed(row and row[0]))
        chunks.append(array_of(where, "<u4"))
        counts.append(array_of(often, "<u2"))
    if not blocks:
        return np.empty(0, np.uint32), np.empty(0, np.uint16)
    return np.concatenate(chunks), np.concatenate(counts)


def read_segment(connection: sqlite3.Connection, entry: Catalogued) -> Segment:
    """With all its postings. `IndexDamaged`."""
    fields = {}
    for field in Field:
        terms, ends = read_dictionary(connection, entry.number, field)
        total = int(ends[-1]) if len(ends) else 0
        blocks = range(-(-total // BLOCK))
        chunks, counts = read_blocks(connection, entry.number, field, blocks)
        fields[field] = FieldPostings(terms, ends, chunks, counts)
    return replace(entry.head, fields=fields)
