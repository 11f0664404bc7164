"""Values as every table keeps them: moments as microseconds, texts without NUL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ["kept_text", "microseconds", "moment"]

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
