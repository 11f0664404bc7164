"""Lengths of time, as they are given on the command line and said there: `90`, `90s`, `30m`, `2h`, `1d`."""

from __future__ import annotations

import re
from math import ceil

import click

__all__ = ["Duration", "spelt_duration"]

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_SHAPE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)", re.IGNORECASE)
_LONGEST_SECONDS = 30 * 86_400


class Duration(click.ParamType[float]):
    """More than nothing, at most 30 days; a number without a unit is seconds."""

    name = "duration"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = _SHAPE.fullmatch(str(value).strip())
        if found is None:
            self.fail(f"{value!r} is no length of time; write 90s, 30m, 2h or 1d", param, ctx)
        seconds = float(found[1]) * _UNITS[found[2].lower() or "s"]
        if not 0 < seconds <= _LONGEST_SECONDS:
            self.fail(f"{value!r} is not between nothing and 30d", param, ctx)
        return seconds


def spelt_duration(seconds: float) -> str:
    """In the largest unit that says it in whole numbers; rounded up to seconds."""
    whole = ceil(seconds)
    unit = next(unit for unit, length in _UNITS.items() if whole % length == 0)
    return f"{whole // _UNITS[unit]}{unit}"
