"""JSON values that cannot be altered: what events, job payloads and results carry.

Freezing once, where a value enters, replaces a deep copy per reader: whoever holds a frozen value
may hand it to any thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import TypeAlias

from cleveragents.core.errors import InvalidPayload

__all__ = ["FrozenObject", "JsonValue", "freeze", "freeze_object", "thaw", "unkeepable"]

JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"

_DEPTH_LIMIT = 64
_INTEGER_BITS = 14_000  # somewhat less than the 4300 digits beyond which Python writes and reads no integer
_INTEGERS = range(-(1 << 63), 1 << 63)
_BROKEN = re.compile("[\0\ud800-\udfff]")


class FrozenObject(Mapping[str, "JsonValue"]):
    """A JSON object that nobody can change. Equal to any mapping with equal items; hashable; pickles."""

    __slots__ = ("_items",)

    _items: dict[str, JsonValue]

    def __init__(self, items: Mapping[str, JsonValue]) -> None:
        frozen = {key: freeze(value) for key, value in items.items()}
        object.__setattr__(self, "_items", frozen)

    def __getitem__(self, key: str) -> JsonValue:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return f"FrozenObject({self._items!r})"

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a FrozenObject cannot be changed")

    def __reduce__(self) -> tuple[type[FrozenObject], tuple[dict[str, JsonValue]]]:
        return FrozenObject, (self._items,)


_LEAVES = frozenset({str, bool, int, float, type(None)})


def freeze(value: object, *, where: str = "payload", depth: int = 0) -> JsonValue:
    """The same JSON value, immutable all the way down; `InvalidPayload` for anything JSON cannot carry."""
    if value is None or isinstance(value, (str, bool, FrozenObject)):
        return value
    if isinstance(value, int):
        if value.bit_length() > _INTEGER_BITS:
            raise InvalidPayload(where, "an integer of thousands of digits is not one that can be read again")
        return value
    if isinstance(value, float):
        if not isfinite(value):
            raise InvalidPayload(where, f"{value!r} is not a JSON number")
        return value
    if depth >= _DEPTH_LIMIT:
        raise InvalidPayload(where, f"nested deeper than {_DEPTH_LIMIT} levels")
    if isinstance(value, Mapping):
        return _freeze_object(value, where, depth)
    if isinstance(value, (list, tuple)):
        return tuple(freeze(item, where=where, depth=depth + 1) for item in value)
    raise InvalidPayload(where, f"{type(value).__name__} is not a JSON value")


def freeze_object(value: object, *, where: str) -> FrozenObject:
    """As `freeze`, for what is kept as an object; `InvalidPayload` for any other JSON value, too."""
    frozen = freeze(value, where=where)
    if not isinstance(frozen, FrozenObject):
        raise InvalidPayload(where, f"{type(value).__name__} is not a JSON object")
    return frozen


def _freeze_object(value: Mapping[object, object], where: str, depth: int) -> FrozenObject:
    items: dict[str, JsonValue] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise InvalidPayload(where, f"key {key!r} is not text")
        items[key] = freeze(item, where=where, depth=depth + 1)
    frozen = FrozenObject.__new__(FrozenObject)
    object.__setattr__(frozen, "_items", items)
    return frozen


def thaw(value: JsonValue) -> object:
    """Plain dicts and lists again, for `json.dumps` and for callers that want to edit a copy."""
    if type(value) in _LEAVES:  # most are; asking an abstract class takes long
        return value
    if type(value) is FrozenObject:
        return {key: thaw(item) for key, item in value._items.items()}
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [thaw(item) for item in value]
    return value


def unkeepable(value: object) -> str | None:
    """What is in a value that was read as JSON and that not every store can keep, in words for who wrote it;
    None if all of it can be kept."""
    try:
        return next(_unkeepable(freeze(value)), None)
    except InvalidPayload as refused:
        return refused.problem


def _unkeepable(value: JsonValue) -> Iterator[str]:
    if isinstance(value, str):
        if _BROKEN.search(value):
            yield "half a character or a NUL"
    elif isinstance(value, int):
        if value not in _INTEGERS:
            yield "an integer of more than 64 bits"
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _unkeepable(key)
            yield from _unkeepable(item)
    elif isinstance(value, tuple):
        for item in value:
            yield from _unkeepable(item)
