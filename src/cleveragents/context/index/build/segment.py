"""A segment: some contents with all their postings, as arrays that are written once and never changed.

Terms are known by a number of 64 bits that is made from them; the words themselves are in the files. The
postings of a field lie one after the other, ordered by term and then by chunk, and `ends` says where each
term's end. So segments are merged by sorting numbers, and a term is found by bisection.

A file's analysis as bytes and back, without the terms of its chunks: those are in the postings.

JSON, because whatever else is quick to read trusts what it reads, and a file on a disk may be damaged.

A segment as bytes, for the pipe between two processes.

Arrays as bytes that tell when they were damaged: SQLite does not look into what it keeps.

Segments in the file: a catalogue that is read whole, dictionaries that are read when a field is asked for,
and blocks of postings, of which a question reads the few that it needs.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from dataclasses import dataclass
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
    "SegmentInfo",
    "FieldPostings",
    "IndexDamaged",
    "IndexedContent",
    "Segment",
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
"""Room for the names of either kind of repository."""
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
"""Postings in a row."""


@dataclass(frozen=True, slots=True)
class IndexedContent:
    """A content that was looked at, and what was found in it."""

    digest: bytes
    size: int
    analysis: FileAnalysis


@dataclass(frozen=True, slots=True)
class FieldPostings:
    """The postings of one field. Those of `terms[i]` lie before `ends[i]`, from `ends[i - 1]` on."""

    terms: NDArray[np.uint64]
    ends: NDArray[np.uint32]
    chunks: NDArray[np.uint32]
    counts: NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Segment:
    """`digests` ascend. Content i has the chunks from `first_chunk[i]` up to `first_chunk[i + 1]`; `rows` are
    where their analyses are kept."""

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
    """The same in every process."""
    return int.from_bytes(hashlib.blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest())


class TermNumbers(dict[str, int]):
    """Remembers the numbers of terms. Not thread-safe: for one batch."""

    def __missing__(self, term: str) -> int:
        number = self[term] = term_number(term)
        return number


def segment_of(contents: Iterable[IndexedContent], rows: Sequence[int], numbers: TermNumbers) -> Segment:
    """The segment of these contents, which are given in the order of their digests."""
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
    """One segment of those contents that are to be kept; no content may be in two of them."""
    import numpy as np

    digests = np.concatenate([segment.digests[kept] for segment, kept in segments])
    order = np.argsort(digests, kind="stable")
    sizes = np.concatenate([segment.sizes[kept] for segment, kept in segments])
    rows = np.concatenate([segment.rows[kept] for segment, kept in segments])
    counts = np.concatenate([np.diff(segment.first_chunk)[kept] for segment, kept in segments])
    first = np.zeros(len(order) + 1, np.int32)
    np.cumsum(counts[order], out=first[1:])
    # Where the contents begin, in the order in which the segments bring them.
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
    """For each chunk of a segment its new number, or -1 if its content is not kept; `begins` has the first
    new number of each content that is."""
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
    """By term; within a term the order stays, so chunks have to come in order."""
    import numpy as np

    order = np.argsort(terms, kind="stable")
    ordered = terms[order]
    last = np.flatnonzero(np.diff(ordered, append=~ordered[-1:]) != 0) if len(ordered) else order
    return FieldPostings(ordered[last], (last + 1).astype(np.uint32), chunks[order], counts[order])


def analysis_to_bytes(analysis: FileAnalysis) -> bytes:
    """What `analysis_from_bytes` reads."""
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
    """`ValueError` if that is nothing that was written here."""
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
    """What `segment_from_bytes` reads."""
    parts = [getattr(segment, name).tobytes() for name in CATALOGUE]
    for field in Field:
        parts += [getattr(segment.fields[field], name).tobytes() for name in FIELD]
    return pack(parts)


def segment_from_bytes(data: bytes | memoryview) -> Segment:
    """`IndexDamaged` if that is no segment."""
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
    """What is in the file is not what was written. Never leaves the index."""


def sealed(data: bytes) -> bytes:
    """The same with its sum at the end."""
    return data + _SUM.pack(zlib.crc32(data))


def unsealed(data: object) -> memoryview:
    """What was sealed. `IndexDamaged`."""
    if not isinstance(data, bytes) or len(data) < _SUM.size:
        raise IndexDamaged("a part of it is missing")
    view = memoryview(data)[: -_SUM.size]
    if zlib.crc32(view) != _SUM.unpack(data[-_SUM.size :])[0]:  # guard: nothing damaged is searched
        raise IndexDamaged("a part of it has changed")
    return view


def pack(parts: Sequence[bytes]) -> bytes:
    """Several pieces as one."""
    head = [_LENGTH.pack(len(parts)), *(_LENGTH.pack(len(part)) for part in parts)]
    return b"".join([*head, *parts])


def unpack(data: bytes | memoryview) -> list[memoryview]:
    """The pieces. `IndexDamaged`."""
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
    """The array in these bytes. `IndexDamaged`."""
    import numpy as np

    try:
        found: NDArray[Any] = np.frombuffer(data, np.dtype(kind))
    except ValueError as error:
        raise IndexDamaged(str(error)) from error
    return found


@dataclass(frozen=True, slots=True)
class SegmentInfo:
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


def catalogue(connection: sqlite3.Connection) -> list[SegmentInfo]:
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
        found.append(SegmentInfo(number, postings, Segment(**arrays, fields={})))
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


def read_segment(connection: sqlite3.Connection, entry: SegmentInfo) -> Segment:
    """With all its postings. `IndexDamaged`."""
    fields = {}
    for field in Field:
        terms, ends = read_dictionary(connection, entry.number, field)
        total = int(ends[-1]) if len(ends) else 0
        blocks = range(-(-total // BLOCK))
        chunks, counts = read_blocks(connection, entry.number, field, blocks)
        fields[field] = FieldPostings(terms, ends, chunks, counts)
    return replace(entry.head, fields=fields)
