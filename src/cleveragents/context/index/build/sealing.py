"""Arrays as bytes that tell when they were damaged: SQLite does not look into what it keeps."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["IndexDamaged", "array_of", "pack", "sealed", "unpack", "unsealed"]

_SUM = struct.Struct("<I")
_LENGTH = struct.Struct("<Q")


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
