"""Keeps the segments few: those of like size are merged, so that each posting is moved only a few times."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence

from cleveragents.core.faults import FaultPoints
from cleveragents.context.index.index_file import transaction
from cleveragents.context.index.patience import Patience
from cleveragents.context.index.build.segment import merged
from cleveragents.context.index.build.segment_rows import (
    Catalogued,
    add_segment,
    catalogue,
    read_segment,
    remove_segments,
)

__all__ = ["LARGEST", "compact", "merge"]

LARGEST = 8_000_000
"""Postings of a segment that grows no more: merging is done in memory."""

_FAN_IN = 8
_SMALLEST = 1 << 15


def compact(connection: sqlite3.Connection, patience: Patience, faults: FaultPoints, *, wholly: bool) -> None:
    """Merges what is worth it, or with `wholly` all that may be merged, until the time is up."""
    while not patience.is_over:
        segments = [one for one in catalogue(connection) if one.postings < LARGEST // 2]
        group = _within(segments) if wholly else _next_group(segments)
        if len(group) < 2:
            return
        merge(connection, group, faults)


def merge(connection: sqlite3.Connection, group: Sequence[Catalogued], faults: FaultPoints) -> None:
    """Puts one segment in the place of these."""
    import numpy as np

    whole = merged([(read_segment(connection, one), np.ones(len(one.head.sizes), np.bool_)) for one in group])
    with transaction(connection):
        add_segment(connection, whole)
        faults.reach("index.merge.in_transaction")
        remove_segments(connection, [one.number for one in group])


def _next_group(segments: Sequence[Catalogued]) -> list[Catalogued]:
    tiers: dict[int, list[Catalogued]] = defaultdict(list)
    for one in segments:
        tiers[(max(one.postings, 1) // _SMALLEST).bit_length() // 3].append(one)
    full = [tier for tier in tiers.values() if len(tier) >= _FAN_IN]
    return _within(full[0]) if full else []


def _within(segments: Sequence[Catalogued]) -> list[Catalogued]:
    """The smallest ones that are not too large together."""
    chosen: list[Catalogued] = []
    total = 0
    for one in sorted(segments, key=lambda one: one.postings):
        total += one.postings
        if total > LARGEST and len(chosen) > 1:
            break
        chosen.append(one)
    return chosen
