"""Identifiers: readable ULIDs in the order of their creation."""

from __future__ import annotations

import time

from ulid import ULID

from cleveragents.core.identifiers import UlidSource


def test_an_id_is_a_ulid_of_its_moment() -> None:
    before = time.time()
    read = ULID.from_str(made := UlidSource().new())
    assert str(read) == made
    assert int(before * 1000) / 1000 <= read.timestamp <= time.time()


def test_ids_of_one_moment_differ() -> None:
    source = UlidSource()
    made = [source.new() for _ in range(1000)]
    assert len(set(made)) == 1000
    assert [one[:10] for one in made] == sorted(one[:10] for one in made)
