"""Immutable JSON values, which events, job payloads and results carry.

A value is frozen once, when it is received. Any thread may share a frozen value, so readers need no copies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import TypeAlias

from cleveragents.core.errors import InvalidPayload

__all__ = ["FrozenObject", "JsonValue", "freeze", "freeze_object", "is_deeper", "thaw", "unkeepable"]

JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"

_DEPTH_LIMIT = 64
_INTEGER_BITS = 14_000  # slightly less than 4300 digits, Python's limit for writing and reading integers
_INTEGERS = range(-(1 << 63), 1 << 63)
_BROKEN = re.compile("[\0\ud800-\udfff]")


class FrozenObject(Mapping[str, "JsonValue"]):
    """An immutable JSON object. Equal to any mapping with equal items; hashable; can be pickled."""

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
    """Return the JSON value, deeply immutable.

    Raises `InvalidPayload` for values that JSON cannot represent.
    """
    if value is None or isinstance(value, (str, bool, FrozenObject)):
        return value
    if isinstance(value, int):
        if value.bit_length() > _INTEGER_BITS:
            raise InvalidPayload(where, "the integer has too many digits")
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
    """Like `freeze`, for a value that must be an object.

    Raises `InvalidPayload` for other JSON values, too.
    """
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
    """Return the value with plain dicts and lists, for `json.dumps` and for callers that edit a copy."""
    if type(value) in _LEAVES:  # the common case; a check against an abstract class is slow
        return value
    if type(value) is FrozenObject:
        return {key: thaw(item) for key, item in value._items.items()}
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [thaw(item) for item in value]
    return value


def unkeepable(value: object) -> str | None:
    """Return the reason why some store cannot keep a value that was read as JSON; None if every store can."""
    try:
        return next(_unkeepable(freeze(value)), None)
    except InvalidPayload as refused:
        return refused.problem


def _unkeepable(value: JsonValue) -> Iterator[str]:
    if isinstance(value, str):
        if _BROKEN.search(value):
            yield "an incomplete character or a NUL"
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


def is_deeper(value: object, levels: int) -> bool:
    """Return whether parsed JSON is nested deeper than `levels`. It does not recurse: any depth is safe."""
    layer = [value]
    for _ in range(levels):
        inner = [one for item in layer for one in _inside(item)]
        if not inner:
            return False
        layer = inner
    return True


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
