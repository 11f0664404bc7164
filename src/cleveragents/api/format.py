"""Times, numbers and durations as text, the same on every surface."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from math import ceil

__all__ = [
    "UNITS",
    "UNREADABLE",
    "ago",
    "clock_time",
    "counted",
    "duration_text",
    "on_one_line",
    "printable_name",
    "printable_value",
    "timestamp",
]

UNREADABLE = "\ufffd"
"""The replacement of a byte that is not text."""

_NO_TEXT = re.compile("[\ud800-\udfff]")

UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
"""The units of durations in seconds."""


def timestamp(moment: datetime) -> str:
    """Return the time in UTC, to the second, as ISO 8601."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def clock_time(moment: datetime) -> str:
    """Return the time of day with its time zone; with the date, if the day is not today."""
    local = moment.astimezone()
    today = datetime.now(UTC).astimezone().date()
    day = "" if local.date() == today else f"{local:%Y-%m-%d} "
    return f"{day}{local:%H:%M} {local:%Z}".rstrip()


def ago(moment: datetime, now: datetime) -> str:
    """Return the elapsed time in the largest unit that fits. A future time is "now", because clocks
    differ."""
    seconds = int((now - moment).total_seconds())
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        if seconds >= length:
            return f"{seconds // length} {unit} ago"
    return "now"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return the number with the noun, as in `1 event` or `2 events`. `plural` is for irregular nouns."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def on_one_line(text: str) -> str:
    """Return the text without line breaks."""
    return " ".join(text.split())


def printable_name(text: str) -> str:
    """Return the text in characters that every encoder accepts.

    Names of files may be any bytes. Python represents bytes that are not text as surrogates, which UTF-8
    cannot encode.
    """
    return text if text.isascii() else _NO_TEXT.sub(UNREADABLE, text)


def printable_value(value: object) -> object:
    """Return a JSON value with all its texts in characters that every encoder accepts."""
    if type(value) is str:
        return printable_name(value)
    if isinstance(value, dict):
        return {printable_value(key): printable_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [printable_value(item) for item in value]
    return value


def duration_text(seconds: float) -> str:
    """Return the duration, rounded up to seconds, in the largest unit that gives a whole number."""
    whole = ceil(seconds)
    unit = next(unit for unit, length in UNITS.items() if whole % length == 0)
    return f"{whole // UNITS[unit]}{unit}"
