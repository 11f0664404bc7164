"""A file's analysis as bytes and back, without the terms of its chunks: those are in the postings.

JSON, because whatever else is quick to read trusts what it reads, and a file on a disk may be damaged.
"""

from __future__ import annotations

import json
import zlib

from cleveragents.context.model.code import Chunk, Definition, FileAnalysis, Import, Span

__all__ = ["analysis_from_bytes", "analysis_to_bytes"]


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
                Definition(row[0], row[1], Span(row[2], row[3]), Span(row[4], row[5]), *row[6:])
                for row in definitions
            ),
            tuple(Import(row[0], tuple(zip(row[1::2], row[2::2], strict=True))) for row in imports),
            tuple(Chunk(Span(first, last), None if of < 0 else of) for first, last, of in chunks),
            opaque,
        )
    except (zlib.error, TypeError, IndexError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error
