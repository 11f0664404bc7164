"""Conversion of records to table rows and back: times as microseconds, enumerations by value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from cleveragents.core.records import Reader, as_it_is, readers_of
from cleveragents.storage.columns import microseconds, moment

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["record_in", "row_of"]

R = TypeVar("R", bound="DataclassInstance")
_LEAVES = ((datetime, moment),)


def row_of(record: DataclassInstance, **kept: object) -> dict[str, Any]:
    """Return a column for each field; `kept` overrides columns or adds some."""
    names, values, readers = _columns(type(record), None)
    row = dict(zip(names, values(record), strict=True)) | kept
    for name in readers.keys() - kept.keys():
        row[name] = _kept(row[name])
    return row


def record_in(kind: type[R], row: Mapping[Any, Any], **read: object) -> R:
    """Return the record in a row; `read` contains the fields that no column holds directly."""
    names, values, readers = _columns(kind, tuple(row))
    found = dict(zip(names, values(row), strict=True)) | read
    for name in readers.keys() - read.keys():
        found[name] = readers[name](found[name])
    return kind(**found)


@cache
def _columns(
    kind: type[DataclassInstance], present: tuple[str, ...] | None
) -> tuple[tuple[str, ...], Callable[[Any], tuple[object, ...]], Mapping[str, Reader]]:
    """Return the fields of a record, or those that are columns of a row, with their getters and readers."""
    readers = {
        name: reader
        for name, reader in readers_of(kind, _LEAVES).items()
        if present is None or name in present
    }
    get = attrgetter(*readers) if present is None else itemgetter(*readers)
    return tuple(readers), get, {name: read for name, read in readers.items() if read is not as_it_is}


def _kept(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    return microseconds(value) if isinstance(value, datetime) else value
