"""`--max-usd`, `--max-tokens`, `--max-steps`, `--timeout`: the budget of a plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from cleveragents.api.format import UNITS
from cleveragents.api.plans.budget import limits_of
from cleveragents.api.plans.request import Limits
from cleveragents.models.model.budget import PICODOLLARS, BudgetLimits

__all__ = ["Duration", "budget_options", "given_limits", "read_limits"]

_Command = TypeVar("_Command", bound=Callable[..., Any])

_SHAPE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)", re.IGNORECASE)
_LONGEST_SECONDS = 30 * 86_400


class Duration(click.ParamType[float]):
    """A duration greater than 0 and at most 30 days: `90s`, `30m`, `2h`, `1d`, or `90` for seconds."""

    name = "duration"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = _SHAPE.fullmatch(str(value).strip())
        if found is None:
            self.fail(f"{value!r} is not a duration; write 90s, 30m, 2h or 1d", param, ctx)
        seconds = float(found[1]) * UNITS[found[2].lower() or "s"]
        if not 0 < seconds <= _LONGEST_SECONDS:
            self.fail(f"{value!r} must be greater than 0 and at most 30d", param, ctx)
        return seconds


_OPTIONS: tuple[tuple[str, click.ParamType[Any], str, str], ...] = (
    (
        "max_usd",
        click.FloatRange(0, 1e6, min_open=True),
        "DOLLARS",
        "Budget in dollars; needs known prices.",
    ),
    ("max_tokens", click.IntRange(1), "N", "Token limit, input and output."),
    ("max_steps", click.IntRange(1), "N", "Limit of model calls."),
    ("timeout", Duration(), "TIME", "Time limit: 90s, 30m, 2h."),
)


def budget_options(command: _Command) -> _Command:
    """Add the budget options; the command receives them as `limits: Limits`."""

    def collect(context: click.Context, parameter: click.Parameter, value: float | None) -> None:
        if value is not None:
            context.meta.setdefault(__name__, {})[parameter.name] = value
        # Options are read in any order: the last one read builds the limits.
        given = context.meta.get(__name__, {})
        context.params["limits"] = limits_of(*(given.get(name) for name, *_ in _OPTIONS))

    for name, kind, metavar, text in reversed(_OPTIONS):
        flag = f"--{name.replace('_', '-')}"
        command = click.option(
            flag, name, type=kind, metavar=metavar, expose_value=False, callback=collect, help=text
        )(command)
    return command


def read_limits(texts: Mapping[str, str]) -> Limits:
    """Return the limits that a person typed, by the names of the options: `max_usd`, `max_tokens`,
    `max_steps`, `timeout`. An empty text is no limit. Raises `click.BadParameter`.
    """
    given = [
        kind.convert(text, None, None) if (text := texts.get(name, "").strip()) else None
        for name, kind, *_ in _OPTIONS
    ]
    return given_limits(limits_of(*given))


def given_limits(limits: BudgetLimits) -> Limits:
    """Return the limits as a client takes them."""
    usd = None if limits.picodollars is None else limits.picodollars / PICODOLLARS
    return Limits(usd=usd, tokens=limits.tokens, steps=limits.steps, seconds=limits.seconds)
