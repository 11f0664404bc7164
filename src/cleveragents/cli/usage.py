"""What is wrong with a request is, on the command line, wrong with what was typed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from cleveragents.core.errors import RequestRefused

__all__ = ["as_usage"]


@contextmanager
def as_usage() -> Iterator[None]:
    """`click.UsageError` instead of `RequestRefused`: said with how the command is used."""
    try:
        yield
    except RequestRefused as refused:
        raise click.UsageError(refused.problem) from None
