"""Conversion of records to plain values and back. A record is a `msgspec.Struct` or a dataclass.

The fields of a record, their names and types, define its JSON form; `storage.rows` adds the mapping to
columns. A record written by another version may lack a field that has a default, and may have extra fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from inspect import get_annotations
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

from msgspec import Struct

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["Reader", "as_it_is", "facts_of", "readers_of", "record_of"]

R = TypeVar("R", bound="DataclassInstance")
Reader = Callable[[Any], Any]
"""A function that converts a stored value into the value of a field."""


def _is_record(kind: type) -> bool:
    """Return whether objects of this type are records."""
    return issubclass(kind, Struct) or is_dataclass(kind)


def _names_of(kind: type[DataclassInstance]) -> tuple[str, ...]:
    """Return the names of the fields of a record type."""
    # Type checkers take a struct for a dataclass, too.
    if issubclass(kind, Struct):
        return kind.__struct_fields__
    return tuple(each.name for each in fields(kind))


def facts_of(record: DataclassInstance) -> dict[str, Any]:
    """Return the fields of a record by name, with nested records and enumerations as plain values."""
    return {name: _plain(getattr(record, name)) for name in _names_of(type(record))}


def record_of(kind: type[R], facts: Mapping[str, Any]) -> R:
    """Return the record described by the result of `facts_of`.

    Raises `TypeError` if a required field is missing, and `ValueError` for an unknown enumeration value.
    """
    return kind(**{name: read(facts[name]) for name, read in readers_of(kind).items() if name in facts})


@cache
def readers_of(kind: type[Any], leaves: tuple[tuple[type, Reader], ...] = ()) -> Mapping[str, Reader]:
    """Return a function for each field of the record type that converts a plain value to the field's type.

    `leaves` adds such functions for further types.
    """
    types = get_annotations(kind, eval_str=True)
    return {name: _reader(types[name], dict(leaves)) for name in _names_of(kind)}


def _reader(hint: Any, leaves: Mapping[type, Reader]) -> Reader:
    if hint in leaves:
        return leaves[hint]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint
    if isinstance(hint, type) and _is_record(hint):
        return lambda facts: record_of(hint, facts)
    inner = [each for each in get_args(hint) if each not in (NoneType, ...)]
    if get_origin(hint) is tuple:
        read = _reader(inner[0], leaves)
        return lambda facts: tuple(map(read, facts))
    if NoneType in get_args(hint) and len(inner) == 1:
        read = _reader(inner[0], leaves)
        return as_it_is if read is as_it_is else lambda facts: None if facts is None else read(facts)
    return as_it_is


def as_it_is(value: Any) -> Any:
    """Return the stored value unchanged."""
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return facts_of(value) if _is_record(type(value)) else value
