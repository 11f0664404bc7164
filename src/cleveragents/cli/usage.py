"""Refused requests as usage errors of the command line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from cleveragents.core.errors import Remedy, RequestRefused

__all__ = ["RefusedUsage", "as_usage"]


class RefusedUsage(click.UsageError):
    """A usage error with remedies."""

    def __init__(self, problem: str, remedies: Sequence[Remedy]) -> None:
        super().__init__(problem)
        self.remedies = tuple(remedies)


@contextmanager
def as_usage() -> Iterator[None]:
    """Raise `click.UsageError` instead of `RequestRefused`, so that the usage is shown."""
    try:
        yield
    except RequestRefused as refused:
        raise RefusedUsage(refused.problem, refused.remedies) from None
