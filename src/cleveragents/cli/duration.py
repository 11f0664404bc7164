"""Durations as options: `90`, `90s`, `30m`, `2h`, `1d`."""

from __future__ import annotations

import re

import click

from cleveragents.api.format import UNITS

__all__ = ["Duration"]

_SHAPE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)", re.IGNORECASE)
_LONGEST_SECONDS = 30 * 86_400


class Duration(click.ParamType[float]):
    """A duration greater than 0 and at most 30 days; a number without a unit is in seconds."""

    name = "duration"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = _SHAPE.fullmatch(str(value).strip())
        if found is None:
            self.fail(f"{value!r} is not a duration; write 90s, 30m, 2h or 1d", param, ctx)
        seconds = float(found[1]) * UNITS[found[2].lower() or "s"]
        if not 0 < seconds <= _LONGEST_SECONDS:
            self.fail(f"{value!r} must be greater than 0 and at most 30d", param, ctx)
        return seconds
