"""Segments: contents with all their postings, as arrays that are written once and never changed.

Terms are identified by a 64-bit hash; the words themselves are only in the files. The postings of a field are
ordered by term and then by chunk, and `ends` marks the end of each term. So segments are merged by sorting
numbers, and a term is found by bisection.

Analyses are stored as JSON, without the terms, which are in the postings. Faster formats trust their input,
and a file on a disk may be damaged, so they would be unsafe. All arrays have a checksum, because SQLite does
not verify the contents of its rows.

In the file, a segment consists of a catalogue that is read completely, dictionaries that are read on demand,
and blocks of postings, of which a query reads only a few.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cleveragents.context.model.code import Chunk, Definition, Field, FileAnalysis, Import, LineSpan

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "BLOCK",
    "CATALOGUE",
    "DIGEST_TYPE",
    "FIELD",
    "FieldPostings",
    "IndexDamaged",
    "IndexedContent",
    "Segment",
    "SegmentInfo",
    "TermNumbers",
    "add_contents",
    "add_segment",
    "analysis_from_bytes",
    "analysis_to_bytes",
    "array_of",
    "catalogue",
    "merged",
    "new_places",
    "pack",
    "read_blocks",
    "read_dictionary",
    "read_segment",
    "remove_segments",
    "sealed",
    "segment_from_bytes",
    "segment_of",
    "segment_to_bytes",
    "term_number",
    "unpack",
    "unsealed",
]


DIGEST_TYPE = "S32"
"""Wide enough for SHA-1 and SHA-256 digests."""
_MOST_COUNTED = 65535
CATALOGUE = {
    "digests": DIGEST_TYPE,
    "sizes": "<i8",
    "rows": "<i8",
    "first_chunk": "<i4",
    "lengths": "<f4",
}
FIELD = {"terms": "<u8", "ends": "<u4", "chunks": "<u4", "counts": "<u2"}
_SUM = struct.Struct("<I")
_LENGTH = struct.Struct("<Q")

BLOCK = 8192
"""Postings per block."""


@dataclass(frozen=True, slots=True)
class IndexedContent:
    """An analysed content."""

    digest: bytes
    size: int
    analysis: FileAnalysis


@dataclass(frozen=True, slots=True)
class FieldPostings:
    """The postings of one field. The postings of `terms[i]` are between `ends[i - 1]` and `ends[i]`."""

    terms: NDArray[np.uint64]
    ends: NDArray[np.uint32]
    chunks: NDArray[np.uint32]
    counts: NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment. `digests` ascend. Content i has the chunks from `first_chunk[i]` up to `first_chunk[i + 1]`;
    `rows` are the rows of their analyses.
    """

    digests: NDArray[np.bytes_]
    sizes: NDArray[np.int64]
    rows: NDArray[np.int64]
    first_chunk: NDArray[np.int32]
    lengths: NDArray[np.float32]
    fields: Mapping[Field, FieldPostings]

    @property
    def postings(self) -> int:
        return sum(len(field.chunks) for field in self.fields.values())


def term_number(term: str) -> int:
    """Return the number of a term, the same in every process."""
    return int.from_bytes(hashlib.blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest())


class TermNumbers(dict[str, int]):
    """A cache of term numbers. Not thread-safe: one per batch."""

    def __missing__(self, term: str) -> int:
        number = self[term] = term_number(term)
        return number


def segment_of(contents: Iterable[IndexedContent], rows: Sequence[int], numbers: TermNumbers) -> Segment:
    """Return the segment of these contents, which must be sorted by digest."""
    import numpy as np

    told = list(contents)
    chunks = [chunk for content in told for chunk in content.analysis.chunks]
    first = np.zeros(len(told) + 1, np.int32)
    np.cumsum([len(content.analysis.chunks) for content in told], out=first[1:])
    fields = {}
    for field in Field:
        terms: list[int] = []
        counts: list[int] = []
        sizes = []
        for chunk in chunks:
            found = chunk.terms.get(field, {})
            terms.extend(map(numbers.__getitem__, found))
            counts.extend(found.values())
            sizes.append(len(found))
        where = np.repeat(np.arange(len(chunks), dtype=np.uint32), sizes)
        often = np.minimum(np.array(counts, np.int64), _MOST_COUNTED).astype(np.uint16)
        fields[field] = _sorted(np.array(terms, np.uint64), where, often)
    return Segment(
        digests=np.array([content.digest for content in told], DIGEST_TYPE),
        sizes=np.array([content.size for content in told], np.int64),
        rows=np.array(rows, np.int64),
        first_chunk=first,
        lengths=np.array([sum(chunk.terms.get(Field.BODY, {}).values()) for chunk in chunks], np.float32),
        fields=fields,
    )


def merged(segments: Sequence[tuple[Segment, NDArray[np.bool_]]]) -> Segment:
    """Merge the kept contents of several segments; no content may be in two of them."""
    import numpy as np

    digests = np.concatenate([segment.digests[kept] for segment, kept in segments])
    order = np.argsort(digests, kind="stable")
    sizes = np.concatenate([segment.sizes[kept] for segment, kept in segments])
    rows = np.concatenate([segment.rows[kept] for segment, kept in segments])
    counts = np.concatenate([np.diff(segment.first_chunk)[kept] for segment, kept in segments])
    first = np.zeros(len(order) + 1, np.int32)
    np.cumsum(counts[order], out=first[1:])
    # The first chunks of the contents, in the order of the input segments.
    begins = np.empty(len(order), np.int32)
    begins[order] = first[:-1]
    lengths = np.zeros(int(first[-1]), np.float32)
    places = []
    at = 0
    for segment, kept in segments:
        number = int(kept.sum())
        place = new_places(segment.first_chunk, kept, begins[at : at + number])
        lengths[place[place >= 0]] = segment.lengths[place >= 0]
        places.append(place)
        at += number
    fields = {}
    for field in Field:
        parts = [
            _moved(segment.fields[field], place) for (segment, _), place in zip(segments, places, strict=True)
        ]
        terms, where, often = (np.concatenate(column) for column in zip(*parts, strict=True))
        by_chunk = np.argsort(where, kind="stable")
        fields[field] = _sorted(terms[by_chunk], where[by_chunk], often[by_chunk])
    return Segment(digests[order], sizes[order], rows[order], first, lengths, fields)


def new_places(
    first_chunk: NDArray[np.int32], kept: NDArray[np.bool_], begins: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Return the number of each chunk of a segment after the merge; -1 if its content is not kept.

    `begins` holds the first new number of each kept content.
    """
    import numpy as np

    counts = np.diff(first_chunk)
    shift = np.zeros(len(counts), np.int32)
    shift[kept] = begins - first_chunk[:-1][kept]
    places = np.arange(int(first_chunk[-1]), dtype=np.int32) + np.repeat(shift, counts)
    places[~np.repeat(kept, counts)] = -1
    return places


def _moved(
    field: FieldPostings, places: NDArray[np.int32]
) -> tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.uint16]]:
    import numpy as np

    terms = np.repeat(field.terms, np.diff(field.ends, prepend=np.uint32(0)))
    where = places[field.chunks]
    kept = where >= 0
    return terms[kept], where[kept].astype(np.uint32), field.counts[kept]


def _sorted(
    terms: NDArray[np.uint64], chunks: NDArray[np.uint32], counts: NDArray[np.uint16]
) -> FieldPostings:
    """Sort by term. The order within a term is kept, so chunks must be sorted."""
    import numpy as np

    order = np.argsort(terms, kind="stable")
    ordered = terms[order]
    last = np.flatnonzero(np.diff(ordered, append=~ordered[-1:]) != 0) if len(ordered) else order
    return FieldPostings(ordered[last], (last + 1).astype(np.uint32), chunks[order], counts[order])


def analysis_to_bytes(analysis: FileAnalysis) -> bytes:
    """Serialise an analysis for `analysis_from_bytes`."""
    row = [
        analysis.language,
        analysis.lines,
        analysis.opaque,
        [
            [one.name, one.kind, one.span.first, one.span.last, one.signature.first, one.signature.last]
            + ([] if one.parent is None else [one.parent])
            for one in analysis.definitions
        ],
        [[one.module, *(word for pair in one.names for word in pair)] for one in analysis.imports],
        [
            [chunk.span.first, chunk.span.last, -1 if chunk.definition is None else chunk.definition]
            for chunk in analysis.chunks
        ],
    ]
    return zlib.compress(json.dumps(row, separators=(",", ":")).encode("ascii"), 1)


def analysis_from_bytes(data: bytes) -> FileAnalysis:
    """Restore an analysis. Raises `ValueError` if the data is invalid."""
    try:
        language, lines, opaque, definitions, imports, chunks = json.loads(zlib.decompress(data))
        return FileAnalysis(
            language,
            lines,
            tuple(
                Definition(row[0], row[1], LineSpan(row[2], row[3]), LineSpan(row[4], row[5]), *row[6:])
                for row in definitions
            ),
            tuple(Import(row[0], tuple(zip(row[1::2], row[2::2], strict=True))) for row in imports),
            tuple(Chunk(LineSpan(first, last), None if of < 0 else of) for first, last, of in chunks),
            opaque,
        )
    except (zlib.error, TypeError, IndexError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error


def segment_to_bytes(segment: Segment) -> bytes:
    """Serialise a segment for `segment_from_bytes`."""
    parts = [getattr(segment, name).tobytes() for name in CATALOGUE]
    for field in Field:
        parts += [getattr(segment.fields[field], name).tobytes() for name in FIELD]
    return pack(parts)


def segment_from_bytes(data: bytes | memoryview) -> Segment:
    """Restore a segment. Raises `IndexDamaged` if the data is invalid."""
    parts = unpack(data)
    if len(parts) != len(CATALOGUE) + len(Field) * len(FIELD):
        raise IndexDamaged("a part of it is missing")
    head = {name: array_of(part, kind) for (name, kind), part in zip(CATALOGUE.items(), parts, strict=False)}
    fields = {}
    for number, field in enumerate(Field):
        at = len(CATALOGUE) + number * len(FIELD)
        own = parts[at : at + len(FIELD)]
        fields[field] = FieldPostings(
            **{name: array_of(part, kind) for (name, kind), part in zip(FIELD.items(), own, strict=True)}
        )
    return Segment(**head, fields=fields)


class IndexDamaged(Exception):
    """The index file does not have the content that was written. Never raised outside the index."""


def sealed(data: bytes) -> bytes:
    """Append a checksum."""
    return data + _SUM.pack(zlib.crc32(data))


def unsealed(data: object) -> memoryview:
    """Verify and remove the checksum. Raises `IndexDamaged`."""
    if not isinstance(data, bytes) or len(data) < _SUM.size:
        raise IndexDamaged("a part of it is missing")
    view = memoryview(data)[: -_SUM.size]
    if zlib.crc32(view) != _SUM.unpack(data[-_SUM.size :])[0]:  # guard: nothing damaged is searched
        raise IndexDamaged("a part of it has changed")
    return view


def pack(parts: Sequence[bytes]) -> bytes:
    """Join several byte strings, with their lengths, so that `unpack` can split them."""
    head = [_LENGTH.pack(len(parts)), *(_LENGTH.pack(len(part)) for part in parts)]
    return b"".join([*head, *parts])


def unpack(data: bytes | memoryview) -> list[memoryview]:
    """Split the result of `pack` into its parts. Raises `IndexDamaged`."""
    view = memoryview(data)
    try:
        (count,) = _LENGTH.unpack_from(view, 0)
        lengths = struct.unpack_from(f"<{count}Q", view, _LENGTH.size)
    except struct.error as error:
        raise IndexDamaged(str(error)) from error
    at = _LENGTH.size * (count + 1)
    parts = []
    for length in lengths:
        parts.append(view[at : at + length])
        at += length
    if at != len(view):
        raise IndexDamaged("a part of it is missing")
    return parts


def array_of(data: bytes | memoryview, kind: str) -> NDArray[Any]:
    """Return the array in these bytes. Raises `IndexDamaged`."""
    import numpy as np

    try:
        found: NDArray[Any] = np.frombuffer(data, np.dtype(kind))
    except ValueError as error:
        raise IndexDamaged(str(error)) from error
    return found


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """A stored segment without its postings."""

    number: int
    postings: int
    head: Segment


def add_contents(
    connection: sqlite3.Connection, segment: Segment, digests: Sequence[bytes], analyses: Sequence[bytes]
) -> None:
    """Add a segment and its analyses. Raises `sqlite3.IntegrityError` if a content already exists."""
    import numpy as np

    first = connection.execute("SELECT coalesce(max(row), 0) + 1 FROM content").fetchone()[0]
    rows = range(first, first + len(digests))
    connection.executemany(
        "INSERT INTO content VALUES (?, ?, ?)",
        zip(rows, digests, map(sealed, analyses), strict=True),
    )
    add_segment(connection, replace(segment, rows=np.array(rows, np.int64)))


def add_segment(connection: sqlite3.Connection, segment: Segment) -> None:
    """Add a segment within the caller's transaction."""
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
    """Remove segments, but not the analyses of their contents."""
    for number in numbers:
        connection.execute("DELETE FROM segment WHERE segment = ?", (number,))
        connection.execute("DELETE FROM dictionary WHERE segment = ?", (number,))
        connection.execute("DELETE FROM block WHERE segment = ?", (number,))


def catalogue(connection: sqlite3.Connection) -> list[SegmentInfo]:
    """Return all segments, oldest first. Raises `IndexDamaged`."""
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
        found.append(SegmentInfo(number, postings, Segment(**arrays, fields={})))
    return found


def read_dictionary(
    connection: sqlite3.Connection, number: int, field: Field
) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
    """Return a field's terms and the ends of their postings. Raises `IndexDamaged`."""
    row = connection.execute(
        "SELECT data FROM dictionary WHERE segment = ? AND field = ?", (number, field.value)
    ).fetchone()
    terms, ends = unpack(unsealed(row and row[0]))
    return array_of(terms, "<u8"), array_of(ends, "<u4")


def read_blocks(
    connection: sqlite3.Connection, number: int, field: Field, blocks: Sequence[int]
) -> tuple[NDArray[np.uint32], NDArray[np.uint16]]:
    """Return the chunks and counts in these blocks, in order. Raises `IndexDamaged`."""
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


def read_segment(connection: sqlite3.Connection, entry: SegmentInfo) -> Segment:
    """Load a segment with all its postings. Raises `IndexDamaged`."""
    fields = {}
    for field in Field:
        terms, ends = read_dictionary(connection, entry.number, field)
        total = int(ends[-1]) if len(ends) else 0
        blocks = range(-(-total // BLOCK))
        chunks, counts = read_blocks(connection, entry.number, field, blocks)
        fields[field] = FieldPostings(terms, ends, chunks, counts)
    return replace(entry.head, fields=fields)
