"""Column values common to all tables: times as microseconds, texts without NUL."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from cleveragents.core.errors import InvalidPayload

__all__ = ["ensure_storable", "is_storable", "kept_text", "microseconds", "moment"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def microseconds(moment: datetime) -> int:
    """Return the exact number of microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(number: int) -> datetime:
    """Return the time of this number of microseconds since 1970."""
    return _EPOCH + number * _MICROSECOND


def kept_text(text: str) -> str:
    """Return the text with NUL and invalid Unicode escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


def is_storable(text: str) -> bool:
    """Return whether every database can store the text."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def ensure_storable(where: str, facts: Mapping[str, str | None]) -> None:
    """Raise `InvalidPayload` for text that would abort the transaction it is written in."""
    for name, value in facts.items():
        if value is not None and not is_storable(value):
            raise InvalidPayload(where, f"{name} {value!r} is not Unicode text without NUL")
