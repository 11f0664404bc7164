"""Moments, numbers and lengths of time as every interface writes them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from math import ceil

__all__ = [
    "UNITS",
    "UNREADABLE",
    "ago",
    "counted",
    "duration_text",
    "on_one_line",
    "printable_name",
    "printable_value",
    "timestamp",
]

UNREADABLE = "\ufffd"
"""What stands for a byte that is no text."""

_NO_TEXT = re.compile("[\ud800-\udfff]")

UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
"""Seconds, by the letter that stands for so many."""


def timestamp(moment: datetime) -> str:
    """The moment in UTC, to the second, as people and programs both read it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def ago(moment: datetime, now: datetime) -> str:
    """How long it has been, in the largest unit that fits; what lies ahead is "now", as clocks differ."""
    seconds = int((now - moment).total_seconds())
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        if seconds >= length:
            return f"{seconds // length} {unit} ago"
    return "now"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """`1 event`, `2 events`; a plural that is not made with an s is given."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def on_one_line(text: str) -> str:
    """The text without its line breaks."""
    return " ".join(text.split())


def printable_name(text: str) -> str:
    """The text in characters that every encoder takes. Names of files may be any bytes; each that is no text
    has a character of its own in Python, which JSON in UTF-8 cannot say."""
    return text if text.isascii() else _NO_TEXT.sub(UNREADABLE, text)


def printable_value(value: object) -> object:
    """Return JSON in text that every encoder accepts."""
    if type(value) is str:
        return printable_name(value)
    if isinstance(value, dict):
        return {printable_value(key): printable_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [printable_value(item) for item in value]
    return value


def duration_text(seconds: float) -> str:
    """In the largest unit that says it in whole numbers; rounded up to seconds."""
    whole = ceil(seconds)
    unit = next(unit for unit, length in UNITS.items() if whole % length == 0)
    return f"{whole // UNITS[unit]}{unit}"
