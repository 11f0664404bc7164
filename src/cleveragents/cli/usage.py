"""What is wrong with a request is, on the command line, wrong with what was typed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from cleveragents.core.errors import Remedy, RequestRefused

__all__ = ["RefusedUsage", "as_usage"]


class RefusedUsage(click.UsageError):
    """A wrong use of a command, with what to do instead."""

    def __init__(self, problem: str, remedies: Sequence[Remedy]) -> None:
        super().__init__(problem)
        self.remedies = tuple(remedies)


@contextmanager
def as_usage() -> Iterator[None]:
    """`click.UsageError` instead of `RequestRefused`: said with how the command is used."""
    try:
        yield
    except RequestRefused as refused:
        raise RefusedUsage(refused.problem, refused.remedies) from None
