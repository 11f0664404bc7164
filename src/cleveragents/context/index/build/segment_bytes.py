"""A segment as bytes, for the pipe between two processes."""

from __future__ import annotations

from cleveragents.context.model.code import Field
from cleveragents.context.index.build.sealing import IndexDamaged, array_of, pack, unpack
from cleveragents.context.index.build.segment import DIGEST_TYPE, FieldPostings, Segment

__all__ = ["CATALOGUE", "FIELD", "segment_from_bytes", "segment_to_bytes"]

CATALOGUE = {
    "digests": DIGEST_TYPE,
    "sizes": "<i8",
    "rows": "<i8",
    "first_chunk": "<i4",
    "lengths": "<f4",
}
FIELD = {"terms": "<u8", "ends": "<u4", "chunks": "<u4", "counts": "<u2"}


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
