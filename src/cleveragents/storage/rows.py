"""Records as rows of tables, and back: moments as microseconds, enumerations by their value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from cleveragents.core.records import readers_of
from cleveragents.storage.columns import microseconds, moment

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["record_in", "row_of"]

R = TypeVar("R", bound="DataclassInstance")
_LEAVES = ((datetime, moment),)


def row_of(record: DataclassInstance, **kept: object) -> dict[str, Any]:
    """A column for each field; `kept` are those that hold something else, or more."""
    names = [each.name for each in fields(record) if each.name not in kept]
    return {name: _kept(getattr(record, name)) for name in names} | kept


def record_in(kind: type[R], row: Mapping[Any, Any], **read: object) -> R:
    """The record that the row holds; `read` are the fields that no column of that name has as it is."""
    readers = readers_of(kind, _LEAVES)
    found = {name: reader(row[name]) for name, reader in readers.items() if name not in read and name in row}
    return kind(**found, **read)


def _kept(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    return microseconds(value) if isinstance(value, datetime) else value
