"""Lists in pieces: so many at most, after the one where the last piece ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel, Field

__all__ = ["After", "Limit", "Listing", "piece_of"]

T = TypeVar("T")

Limit = Annotated[int, Query(ge=1, le=1000, description="at most so many")]
After = Annotated[str | None, Query(max_length=300, description="what `next` of the last piece said")]


class Listing(BaseModel, Generic[T]):
    """A piece of a list."""

    items: list[T]
    next: str | None = Field(description="where to go on, as `after`; null at the end")


def piece_of(items: Sequence[T], key: Callable[[T], str], limit: int, after: str | None) -> Listing[T]:
    """The piece of a short list that is in the order of `key`."""
    left = [item for item in items if after is None or key(item) > after]
    piece = left[:limit]
    return Listing[T](items=piece, next=key(piece[-1]) if len(left) > limit else None)
