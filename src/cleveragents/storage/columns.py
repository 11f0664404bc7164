"""Values as every table keeps them: moments as microseconds, texts without NUL."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from cleveragents.core.errors import InvalidPayload

__all__ = ["ensure_storable", "is_storable", "kept_text", "microseconds", "moment"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def microseconds(moment: datetime) -> int:
    """Since 1970, exactly."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(number: int) -> datetime:
    """The moment of that many microseconds since 1970."""
    return _EPOCH + number * _MICROSECOND


def kept_text(text: str) -> str:
    """The text, with what is not Unicode or NUL spelt out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


def is_storable(text: str) -> bool:
    """Whether every database can hold it as text."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def ensure_storable(where: str, facts: Mapping[str, str | None]) -> None:
    """Raises `InvalidPayload` for text that would spoil the transaction it is written in."""
    for name, value in facts.items():
        if value is not None and not is_storable(value):
            raise InvalidPayload(where, f"{name} {value!r} is not Unicode text without NUL")
