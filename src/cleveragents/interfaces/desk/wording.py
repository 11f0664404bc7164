"""Moments and numbers as every interface writes them."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["ago", "counted", "timestamp"]


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
