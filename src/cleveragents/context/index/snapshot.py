"""A snapshot: the files of a place, and the state of the index at that moment.

Documents are numbered in the order of the segments, so that the concatenated postings of all segments are
sorted. A layout maps the files of a view to documents, and documents to the chunks of segments. A content is
read from its file if the file is unchanged, otherwise from the repository.
"""

from __future__ import annotations

import operator
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleveragents.context.code_index import ChunkLayout, CodePlace, IndexStatus, Postings
from cleveragents.context.index.build.segment import (
    BLOCK,
    DIGEST_TYPE,
    IndexDamaged,
    SegmentInfo,
    analysis_from_bytes,
    new_places,
    read_blocks,
    read_dictionary,
    term_number,
    unsealed,
)
from cleveragents.context.index.index_file import is_damage
from cleveragents.context.index.place import ResolvedPlace
from cleveragents.context.index.view import FileEntry, blob_digest, read_below
from cleveragents.context.model.code import CodeFile, Field, FileAnalysis
from cleveragents.core.errors import Closed, SourceChanged, ToolRefused
from cleveragents.git.blob_reader import BlobReader

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "DistinctContents",
    "Layout",
    "SourceText",
    "SqliteCodeSnapshot",
    "distinct",
    "layout_of",
    "located",
]


_ROWS_AT_ONCE = 500
_Dictionary = tuple["NDArray[np.uint64]", "NDArray[np.uint32]"]
_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class _Found:
    """The postings of some terms in a segment: for each term, its range in the two arrays."""

    chunks: NDArray[np.int32]
    counts: NDArray[np.uint16]
    ranges: Mapping[int, tuple[int, int]]


class SqliteCodeSnapshot:
    """A `CodeSnapshot` on a connection with an open read transaction.

    Thread safety:
        Owner: the index that opened it closes it; any thread may ask.
        Lock: `_lock` guards the connection and the cached data that was read from it. It is held while the
            file is read, because a connection serves one thread at a time, but never while anything is
            computed or git runs.
        Guarantee: all answers refer to the same state of the index; after `close`, every method raises
            `Closed`.
    Cancel safety: an interrupted question leaves nothing behind.
    """

    def __init__(
        self,
        ground: ResolvedPlace,
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
    def chunks(self) -> ChunkLayout:
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
        """Release the index. Closing twice is harmless."""
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
                raise Closed(f"the damaged code index ({error}; the next query rebuilds it)") from error

    def _decoded(self, rows: Sequence[int], read: Sequence[tuple[bytes] | None]) -> dict[int, FileAnalysis]:
        with self._reading():
            data = [bytes(unsealed(row and row[0])) for row in read]
        return {row: analysis_from_bytes(one) for row, one in zip(rows, data, strict=True)}

    def _found(self, position: int, field: Field, numbers: NDArray[np.uint64]) -> _Found:
        """Return the postings of the wanted terms in one segment, with the chunk numbers of the snapshot."""
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
        # All blocks have the same length, so a position in the field maps to a position in the blocks read.
        moved = (np.searchsorted(blocks, starts // BLOCK) - starts // BLOCK) * BLOCK
        begins = (starts + moved).tolist()
        lengths = (stops - starts).tolist()
        ranges = {
            number: (begin, begin + length)
            for number, begin, length in zip(terms[at].tolist(), begins, lengths, strict=True)
        }
        return _Found(self._layout.places[position][where], often, ranges)


def _touched(starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the blocks that these ranges overlap, ascending."""
    import numpy as np

    if not len(starts):
        return np.empty(0, np.int64)
    first = starts // BLOCK
    counts = (stops - 1) // BLOCK - first + 1
    offsets = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.unique(np.repeat(first, counts) + offsets)


class SourceText:
    """The contents of a place. Any thread may ask; the creator closes it."""

    def __init__(self, ground: ResolvedPlace) -> None:
        self._root = ground.root
        git = ground.git
        self._stored = None if ground.repository is None else BlobReader(git.directory, git.environment)

    def content(self, path: str, digest: bytes) -> bytes | None:
        """Return the content; None if it is no longer available."""
        data = read_below(self._root, path, at_most=_MOST_BYTES)
        if data is not None and _is_named(data, digest):  # guard: the file may have changed
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


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a view in the index.

    `rows[document]` is the row of its analysis, 0 if there is none. `places[i]` maps the chunks of segment i
    to chunks of the snapshot, -1 for chunks outside of it; `partial`: there are such chunks.
    """

    files: Sequence[CodeFile]
    by_path: Mapping[str, CodeFile]
    indexed: int
    sought: ChunkLayout
    rows: NDArray[np.int64]
    segments: Sequence[SegmentInfo]
    places: Sequence[NDArray[np.int32]]
    partial: bool


def layout_of(
    entries: Sequence[FileEntry], contents: DistinctContents, catalogued: Sequence[SegmentInfo]
) -> Layout:
    """Return the layout of a view."""
    import numpy as np

    which, where = located(catalogued, contents.digests)
    # Contents that are not indexed come last.
    order = np.lexsort((where, np.where(which < 0, len(catalogued), which)))
    document_of = np.empty(len(order), np.int64)
    document_of[order] = np.arange(len(order))
    rows = np.zeros(len(order), np.int64)
    sizes = np.full(len(order), -1, np.int64)
    counts = np.zeros(len(order), np.int64)
    used = []
    for number, one in enumerate(catalogued):
        mine = which == number
        if not mine.any():
            continue
        documents, positions = document_of[mine], where[mine]
        rows[documents] = one.head.rows[positions]
        sizes[documents] = one.head.sizes[positions]
        counts[documents] = np.diff(one.head.first_chunk)[positions]
        kept = np.zeros(len(one.head.sizes), np.bool_)
        kept[positions] = True
        used.append((one, kept, np.sort(documents)))
    first = np.zeros(len(order) + 1, np.int32)
    np.cumsum(counts, out=first[1:])
    lengths = np.zeros(int(first[-1]), np.float32)
    places = []
    for one, kept, documents in used:
        place = new_places(one.head.first_chunk, kept, first[documents])
        lengths[place[place >= 0]] = one.head.lengths[place >= 0]
        places.append(place)
    numbers = document_of[contents.content_of]
    files = _files(entries, numbers, sizes)
    return Layout(
        files=files,
        by_path=dict(zip(map(operator.attrgetter("path"), files), files, strict=True)),
        indexed=int((rows[numbers] > 0).sum()) if len(entries) else 0,
        sought=ChunkLayout(np.repeat(np.arange(len(order), dtype=np.int32), counts), first, lengths),
        rows=rows,
        segments=[one for one, _, _ in used],
        places=places,
        partial=any(not kept.all() for _, kept, _ in used),
    )


def _files(
    entries: Sequence[FileEntry], numbers: NDArray[np.int64], sizes: NDArray[np.int64]
) -> list[CodeFile]:
    return [
        CodeFile(entry.path, entry.digest.hex(), entry.size if size < 0 else size, document)
        for entry, document, size in zip(entries, numbers.tolist(), sizes[numbers].tolist(), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class DistinctContents:
    """The distinct contents of a view: their sorted digests, and the content of each entry."""

    digests: NDArray[np.bytes_]
    content_of: NDArray[np.int64]


def distinct(entries: Sequence[FileEntry]) -> DistinctContents:
    """Return each content once."""
    import numpy as np

    named = np.array([entry.digest for entry in entries], DIGEST_TYPE)
    digests, content_of = np.unique(named, return_inverse=True)
    return DistinctContents(digests, content_of)


def located(
    segments: Sequence[SegmentInfo], digests: NDArray[np.bytes_]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the segment of each digest and its position there; -1 for a digest that is not indexed."""
    import numpy as np

    which = np.full(len(digests), -1, np.int32)
    where = np.full(len(digests), -1, np.int32)
    for number, segment in enumerate(segments):
        own = segment.head.digests
        if not len(own):
            continue
        at = np.minimum(np.searchsorted(own, digests), len(own) - 1)
        found = own[at] == digests
        which[found] = number
        where[found] = at[found]
    return which, where
