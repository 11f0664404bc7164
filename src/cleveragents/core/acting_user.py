"""In whose name something is done: known where a request comes in, and told by whatever is recorded of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["acting", "acting_as"]

_NAME: ContextVar[str | None] = ContextVar("cleveragents_acting", default=None)


def acting() -> str | None:
    """The user's name; None where nobody said who they are, as with a command or a worker."""
    return _NAME.get()


@contextmanager
def acting_as(name: str | None) -> Iterator[None]:
    """Until the block ends, here and in what is called or started from here with its context."""
    token = _NAME.set(name)
    try:
        yield
    finally:
        _NAME.reset(token)
