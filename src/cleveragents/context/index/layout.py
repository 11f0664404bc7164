"""How a view lies in the index: which documents there are, and which chunks of which segments are theirs.

Where in the index the contents of a view are.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleveragents.context.code_index import Sought
from cleveragents.context.index.build.segment import DIGEST_TYPE, new_places
from cleveragents.context.index.build.segment_rows import Catalogued
from cleveragents.context.index.view import Entry
from cleveragents.context.model.code import CodeFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Distinct", "Layout", "distinct", "layout_of", "located"]


@dataclass(frozen=True, slots=True)
class Layout:
    """`rows[document]` is where its analysis is kept, 0 if nowhere. `places[i]` numbers the chunks of segment
    i as the snapshot does, -1 for those that are not in it; `partial` says whether there are such."""

    files: Sequence[CodeFile]
    by_path: Mapping[str, CodeFile]
    indexed: int
    sought: Sought
    rows: NDArray[np.int64]
    segments: Sequence[Catalogued]
    places: Sequence[NDArray[np.int32]]
    partial: bool


def layout_of(entries: Sequence[Entry], contents: Distinct, catalogued: Sequence[Catalogued]) -> Layout:
    """The view as the index knows it."""
    import numpy as np

    which, where = located(catalogued, contents.digests)
    # What is not indexed comes last.
    order = np.lexsort((where, np.where(which < 0, len(catalogued), which)))
    document_of = np.empty(len(order), np.int64)
    document_of[order] = np.arange(len(order))
    rows = np.zeros(len(order), np.int64)
    sizes = np.full(len(order), -1, np.int64)
    counts = np.zeros(len(order), np.int64)
    used = []
    for number, one in enumerate(catalogued):
        mine = which == number
        if not mine.any():
            continue
        documents, positions = document_of[mine], where[mine]
        rows[documents] = one.head.rows[positions]
        sizes[documents] = one.head.sizes[positions]
        counts[documents] = np.diff(one.head.first_chunk)[positions]
        kept = np.zeros(len(one.head.sizes), np.bool_)
        kept[positions] = True
        used.append((one, kept, np.sort(documents)))
    first = np.zeros(len(order) + 1, np.int32)
    np.cumsum(counts, out=first[1:])
    lengths = np.zeros(int(first[-1]), np.float32)
    places = []
    for one, kept, documents in used:
        place = new_places(one.head.first_chunk, kept, first[documents])
        lengths[place[place >= 0]] = one.head.lengths[place >= 0]
        places.append(place)
    numbers = document_of[contents.content_of]
    files = _files(entries, numbers, sizes)
    return Layout(
        files=files,
        by_path=dict(zip(map(operator.attrgetter("path"), files), files, strict=True)),
        indexed=int((rows[numbers] > 0).sum()) if len(entries) else 0,
        sought=Sought(np.repeat(np.arange(len(order), dtype=np.int32), counts), first, lengths),
        rows=rows,
        segments=[one for one, _, _ in used],
        places=places,
        partial=any(not kept.all() for _, kept, _ in used),
    )


def _files(entries: Sequence[Entry], numbers: NDArray[np.int64], sizes: NDArray[np.int64]) -> list[CodeFile]:
    return [
        CodeFile(entry.path, entry.digest.hex(), entry.size if size < 0 else size, document)
        for entry, document, size in zip(entries, numbers.tolist(), sizes[numbers].tolist(), strict=True)
    ]


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
