"""A snapshot: what a place held, and the index as it was when that was looked up.

Documents are numbered as the segments keep their contents, so that the postings of all segments, put one
after the other, are in order.

A content by its name: from the file that had it, if it still has, and from the repository otherwise.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleveragents.context.code_index import CodePlace, IndexStatus, Postings, Sought
from cleveragents.context.index.build.segment import IndexDamaged, analysis_from_bytes, term_number, unsealed
from cleveragents.context.index.build.segment_rows import BLOCK, read_blocks, read_dictionary
from cleveragents.context.index.index_file import is_damage
from cleveragents.context.index.layout import Layout
from cleveragents.context.index.place import Ground
from cleveragents.context.index.view import blob_digest, read_below
from cleveragents.context.model.code import CodeFile, Field, FileAnalysis
from cleveragents.core.errors import Closed, SourceChanged, ToolRefused
from cleveragents.git.blob_reader import BlobReader

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["SourceText", "SqliteCodeSnapshot"]


_ROWS_AT_ONCE = 500
_Dictionary = tuple["NDArray[np.uint64]", "NDArray[np.uint32]"]

_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class _Found:
    """What a segment has of some terms: for each that it has, where its postings lie in the two arrays."""

    chunks: NDArray[np.int32]
    counts: NDArray[np.uint16]
    ranges: Mapping[int, tuple[int, int]]


class SqliteCodeSnapshot:
    """`CodeSnapshot` on a connection in the middle of a reading transaction.

    Thread safety:
        Owner: the index that opened it closes it; any thread may ask.
        Lock: `_lock` guards the connection and what was read of it, and is held while the file is read,
            because a connection serves one thread at a time; never while anything is computed or git runs.
        Guarantee: all answers are of one state of the index; after `close` every question is `Closed`.
    Cancel safety: an interrupted question leaves nothing behind.
    """

    def __init__(
        self,
        ground: Ground,
        layout: Layout,
        connection: sqlite3.Connection,
        notes: Sequence[str],
        damaged: Callable[[], None],
    ) -> None:
        self._ground = ground
        self._layout = layout
        self._connection = connection
        self._damaged = damaged
        self._source = SourceText(ground)
        self._lock = threading.Lock()
        self._closed = False
        self._dictionaries: dict[tuple[int, Field], _Dictionary] = {}
        self._analyses: dict[int, FileAnalysis] = {}
        self._status = IndexStatus(len(layout.files), layout.indexed, tuple(notes))

    @property
    def place(self) -> CodePlace:
        return self._ground.place

    @property
    def files(self) -> Sequence[CodeFile]:
        return self._layout.files

    @property
    def status(self) -> IndexStatus:
        return self._status

    @property
    def chunks(self) -> Sought:
        return self._layout.sought

    def postings(self, field: Field, terms: Sequence[str]) -> Mapping[str, Postings]:
        import numpy as np

        wanted = {term_number(term): term for term in terms}
        numbers = np.sort(np.fromiter(wanted, np.uint64, len(wanted)))
        chunks: dict[int, list[NDArray[np.int32]]] = {}
        counts: dict[int, list[NDArray[np.uint16]]] = {}
        for position in range(len(self._layout.segments)):
            found = self._found(position, field, numbers)
            for number, (start, end) in found.ranges.items():
                chunks.setdefault(number, []).append(found.chunks[start:end])
                counts.setdefault(number, []).append(found.counts[start:end])
        answer = {}
        for number, parts in chunks.items():
            where = np.concatenate(parts)
            often = np.concatenate(counts[number])
            if self._layout.partial:
                held = where >= 0
                where, often = where[held], often[held]
            if len(where):
                answer[wanted[number]] = Postings(where, often.astype(np.float32))
        return answer

    def analyses(self, documents: Sequence[int]) -> Mapping[int, FileAnalysis]:
        rows = self._layout.rows
        wanted = {int(rows[document]): int(document) for document in documents if rows[document] > 0}
        with self._reading() as connection:
            known = self._analyses
            lacking = [row for row in wanted if row not in known]
        for at in range(0, len(lacking), _ROWS_AT_ONCE):
            some = lacking[at : at + _ROWS_AT_ONCE]
            with self._reading() as connection:
                read = [
                    connection.execute("SELECT analysis FROM content WHERE row = ?", (row,)).fetchone()
                    for row in some
                ]
            decoded = self._decoded(some, read)
            with self._reading():
                known.update(decoded)
        return {document: known[row] for row, document in wanted.items()}

    def text(self, path: str) -> str:
        file = self._layout.by_path[path]
        with self._reading():
            pass
        data = self._source.content(path, bytes.fromhex(file.digest))
        if data is None:
            raise SourceChanged(path)
        return data.decode("utf-8", "replace")

    def close(self) -> None:
        """Lets go of the index. Twice is harmless."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._connection.close()
        self._source.close()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._closed:  # guard: a strategy that is late must not use what is gone
                raise Closed("the snapshot of the code index")
            try:
                yield self._connection
            except (sqlite3.Error, IndexDamaged) as error:
                if is_damage(error):
                    self._damaged()
                raise Closed(
                    f"the code index, which was damaged ({error}) and is built anew next time,"
                ) from error

    def _decoded(self, rows: Sequence[int], read: Sequence[tuple[bytes] | None]) -> dict[int, FileAnalysis]:
        with self._reading():
            data = [bytes(unsealed(row and row[0])) for row in read]
        return {row: analysis_from_bytes(one) for row, one in zip(rows, data, strict=True)}

    def _found(self, position: int, field: Field, numbers: NDArray[np.uint64]) -> _Found:
        """Of the wanted terms, in one segment; chunks are numbered as in the snapshot."""
        import numpy as np

        segment = self._layout.segments[position].number
        with self._reading() as connection:
            key = (segment, field)
            if key not in self._dictionaries:
                self._dictionaries[key] = read_dictionary(connection, segment, field)
            terms, ends = self._dictionaries[key]
        if not len(terms):
            return _Found(np.empty(0, np.int32), np.empty(0, np.uint16), {})
        at = np.minimum(np.searchsorted(terms, numbers), len(terms) - 1)
        at = at[terms[at] == numbers]
        starts = np.where(at > 0, ends[at - 1], 0).astype(np.int64)
        stops = ends[at].astype(np.int64)
        blocks = _touched(starts, stops)
        with self._reading() as connection:
            where, often = read_blocks(connection, segment, field, blocks.tolist())
        # Blocks are all of the same length, so a place in the field is one in what was read of it.
        moved = (np.searchsorted(blocks, starts // BLOCK) - starts // BLOCK) * BLOCK
        begins = (starts + moved).tolist()
        lengths = (stops - starts).tolist()
        ranges = {
            number: (begin, begin + length)
            for number, begin, length in zip(terms[at].tolist(), begins, lengths, strict=True)
        }
        return _Found(self._layout.places[position][where], often, ranges)


def _touched(starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.int64]:
    """The blocks that these ranges lie in, ascending."""
    import numpy as np

    if not len(starts):
        return np.empty(0, np.int64)
    first = starts // BLOCK
    counts = (stops - 1) // BLOCK - first + 1
    offsets = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.unique(np.repeat(first, counts) + offsets)


class SourceText:
    """The contents of a place. Any thread may ask; who made it closes it."""

    def __init__(self, ground: Ground) -> None:
        self._root = ground.root
        git = ground.git
        self._stored = None if ground.repository is None else BlobReader(git.directory, git.environment)

    def content(self, path: str, digest: bytes) -> bytes | None:
        """None if that content is to be had no more."""
        data = read_below(self._root, path, at_most=_MOST_BYTES)
        if data is not None and _is_named(data, digest):  # guard: not as it is now
            return data
        if self._stored is None:
            return None
        try:
            data = self._stored.read(digest.hex())
        except (ToolRefused, OSError):
            return None
        return data if data is not None and _is_named(data, digest) else None

    def close(self) -> None:
        if self._stored is not None:
            self._stored.close()


def _is_named(data: bytes, digest: bytes) -> bool:
    return blob_digest(data, name_bytes=len(digest)) == digest
