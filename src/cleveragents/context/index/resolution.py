"""Where in the index the contents of a view are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleveragents.context.index.build.segment import DIGEST_TYPE
from cleveragents.context.index.build.segment_rows import Catalogued
from cleveragents.context.index.view import Entry

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Distinct", "distinct", "located"]


@dataclass(frozen=True, slots=True)
class Distinct:
    """The distinct contents of a view: their digests in order, and for each entry which it has."""

    digests: NDArray[np.bytes_]
    content_of: NDArray[np.int64]


def distinct(entries: Sequence[Entry]) -> Distinct:
    """Each content once."""
    import numpy as np

    named = np.array([entry.digest for entry in entries], DIGEST_TYPE)
    digests, content_of = np.unique(named, return_inverse=True)
    return Distinct(digests, content_of)


def located(
    segments: Sequence[Catalogued], digests: NDArray[np.bytes_]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """For each digest the position of its segment and its own in that; -1 if it is not indexed."""
    import numpy as np

    which = np.full(len(digests), -1, np.int32)
    where = np.full(len(digests), -1, np.int32)
    for number, segment in enumerate(segments):
        own = segment.head.digests
        if not len(own):
            continue
        at = np.minimum(np.searchsorted(own, digests), len(own) - 1)
        found = own[at] == digests
        which[found] = number
        where[found] = at[found]
    return which, where
