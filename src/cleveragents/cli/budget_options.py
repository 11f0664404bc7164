"""`--max-usd`, `--max-tokens`, `--max-steps`, `--timeout`: what a plan may spend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from cleveragents.api.plans.budget import limits_of
from cleveragents.cli.duration import Duration

__all__ = ["budget_options"]

_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS: tuple[tuple[str, click.ParamType[Any], str, str], ...] = (
    ("max_usd", click.FloatRange(0, 1e6, min_open=True), "DOLLARS", "Money for models; needs known prices."),
    ("max_tokens", click.IntRange(1), "N", "Tokens, read and written."),
    ("max_steps", click.IntRange(1), "N", "Calls of models."),
    ("timeout", Duration(), "TIME", "Time at work: 90s, 30m, 2h."),
)


def budget_options(command: _Command) -> _Command:
    """Adds the options; they arrive together as `limits: Limits`."""

    def collect(context: click.Context, parameter: click.Parameter, value: float | None) -> None:
        if value is not None:
            context.meta.setdefault(__name__, {})[parameter.name] = value
        # The last one to be read makes the whole; each of them may be the last.
        given = context.meta.get(__name__, {})
        context.params["limits"] = limits_of(*(given.get(name) for name, *_ in _OPTIONS))

    for name, kind, metavar, text in reversed(_OPTIONS):
        flag = f"--{name.replace('_', '-')}"
        command = click.option(
            flag, name, type=kind, metavar=metavar, expose_value=False, callback=collect, help=text
        )(command)
    return command
