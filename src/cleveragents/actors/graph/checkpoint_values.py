"""How the values of a graph become bytes: plain values, and the few marks that LangGraph itself puts down.

Whatever names a class could make the reader import and call it. So nothing of that kind is written, and what
somebody else wrote into the database is not revived either.
"""

from __future__ import annotations

from typing import Any

import ormsgpack
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Interrupt, Overwrite, Send

from cleveragents.core.errors import InvalidPayload

__all__ = ["PlainSerializer"]

_KINDS = ("null", "bytes", "bytearray", "msgpack")
_PLAIN = (type(None), bool, int, float, str, bytes, bytearray)
# Without these, objects would slip through as if they were plain, and come back as something else.
_STRICT = (
    ormsgpack.OPT_NON_STR_KEYS
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_UUID
)


class PlainSerializer(JsonPlusSerializer):
    """LangGraph's serialiser, for what JSON knows, bytes, and LangGraph's own marks. `InvalidPayload`.

    An error is kept in words: nobody goes on from what a task failed with, it is only looked at.
    """

    def __init__(self) -> None:
        super().__init__(pickle_fallback=False, allowed_json_modules=None, allowed_msgpack_modules=None)

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        if obj is not None and not isinstance(obj, bytes | bytearray):
            try:
                return "msgpack", ormsgpack.packb(obj, default=_told, option=_STRICT)
            except ormsgpack.MsgpackEncodeError:
                _ensure_plain(obj)
        try:
            kind, content = super().dumps_typed(obj)
        except (ormsgpack.MsgpackEncodeError, RecursionError) as error:
            raise InvalidPayload("a value of a graph", str(error)) from error
        return kind, bytes(content)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        if data[0] not in _KINDS:  # guard: other kinds revive objects
            raise InvalidPayload("a value of a graph", f"it was written as {data[0]!r}")
        return super().loads_typed(data)


def _told(value: object) -> str:
    """Errors in words, and nothing else."""
    if isinstance(value, BaseException):
        return repr(value)
    raise TypeError(type(value).__qualname__)


def _ensure_plain(value: object) -> None:
    """Looks at all of it, because something in it is not plain."""
    if isinstance(value, list) or type(value) is tuple:
        for item in value:
            _ensure_plain(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            _ensure_plain(key)
            _ensure_plain(item)
    elif isinstance(value, Send):
        _ensure_plain(value.arg)
    elif isinstance(value, Interrupt | Overwrite):
        _ensure_plain(value.value)
    elif type(value) not in _PLAIN:  # guard: nothing names a class
        raise InvalidPayload("a value of a graph", f"{type(value).__qualname__} is not a plain value")
