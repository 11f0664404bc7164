"""Segments that are merged, thinned out or sent through a pipe equal segments made at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleveragents.context.index.build.batch import IndexBatch
from cleveragents.context.index.build.segment import (
    IndexDamaged,
    IndexedContent,
    Segment,
    TermNumbers,
    analysis_from_bytes,
    analysis_to_bytes,
    merged,
    pack,
    sealed,
    segment_from_bytes,
    segment_of,
    segment_to_bytes,
    term_number,
    unpack,
    unsealed,
)
from cleveragents.context.index.view import blob_digest
from cleveragents.context.model.code import Chunk, Definition, Field, FileAnalysis, Import, LineSpan

WORDS = ("alpha", "beta", "gamma", "delta", "omega")
counts = st.dictionaries(st.sampled_from(WORDS), st.integers(1, 3), max_size=4)
chunk = st.builds(
    lambda body, names: Chunk(LineSpan(1, 1), None, {Field.BODY: body, Field.NAME: names}), counts, counts
)
contents = st.lists(st.lists(chunk, max_size=3), max_size=8)


def made(chunks: Sequence[Sequence[Chunk]], first: int = 0) -> list[IndexedContent]:
    found = [
        IndexedContent(
            blob_digest(str(first + number).encode()), number, FileAnalysis("text", 1, chunks=tuple(own))
        )
        for number, own in enumerate(chunks)
    ]
    return sorted(found, key=lambda content: content.digest)


def segment(found: Sequence[IndexedContent]) -> Segment:
    return segment_of(found, range(1, len(found) + 1), TermNumbers())


def told(one: Segment) -> dict[str, Any]:
    """Return the whole content of a segment, by content."""
    answer: dict[str, Any] = {}
    for number, digest in enumerate(one.digests.tolist()):
        start, end = one.first_chunk[number], one.first_chunk[number + 1]
        lengths = one.lengths[start:end].tolist()
        answer[digest] = {"size": one.sizes[number], "lengths": lengths, "terms": Counter()}
    document_of = np.repeat(np.arange(len(one.digests)), np.diff(one.first_chunk))
    for field, postings in one.fields.items():
        start = 0
        for term, end in zip(postings.terms.tolist(), postings.ends.tolist(), strict=True):
            where = postings.chunks[start:end].tolist()
            assert where == sorted(set(where))
            for at in range(start, end):
                place = int(postings.chunks[at])
                document = document_of[place]
                within = place - int(one.first_chunk[document])
                key = (field, term, within)
                answer[one.digests[document]]["terms"][key] += int(postings.counts[at])
            start = end
        assert start == len(postings.chunks) == len(postings.counts)
        assert postings.terms.tolist() == sorted(set(postings.terms.tolist()))
    return answer


def wanted(found: Sequence[IndexedContent]) -> dict[str, Any]:
    return {
        content.digest: {
            "size": content.size,
            "lengths": [sum(one.terms[Field.BODY].values()) for one in content.analysis.chunks],
            "terms": Counter(
                {
                    (field, term_number(term), within): count
                    for within, one in enumerate(content.analysis.chunks)
                    for field, terms in one.terms.items()
                    for term, count in terms.items()
                }
            ),
        }
        for content in found
    }


@settings(max_examples=60, deadline=None)
@given(contents, contents, st.randoms(use_true_random=False))
def test_merging_loses_and_invents_nothing_and_drops_only_the_given_contents(
    one: list[list[Chunk]], two: list[list[Chunk]], random: Any
) -> None:
    first, second = made(one), made(two, first=100)
    assert told(segment(first)) == wanted(first)
    parts = []
    kept = []
    for found in (first, second):
        mask = np.array([random.random() < 0.7 for _ in found], np.bool_)
        parts.append((segment(found), mask))
        kept += [content for content, keep in zip(found, mask, strict=True) if keep]
    whole = merged(parts)
    assert told(whole) == wanted(kept)
    assert whole.digests.tolist() == sorted(content.digest for content in kept)


@settings(max_examples=20, deadline=None)
@given(contents)
def test_a_batch_survives_a_pipe_unchanged(one: list[list[Chunk]]) -> None:
    found = made(one)
    batch = IndexBatch(
        segment(found),
        [content.digest for content in found],
        [analysis_to_bytes(content.analysis) for content in found],
        ["changed"],
        ["missing\udce9"],
    )
    again = IndexBatch.from_bytes(batch.to_bytes())
    assert told(again.segment) == wanted(found)
    assert replace(again, segment=batch.segment) == batch


def test_an_analysis_is_kept_whole_but_for_its_terms() -> None:
    analysis = FileAnalysis(
        "python",
        12,
        (
            Definition("A", "class", LineSpan(1, 9), LineSpan(1, 1)),
            Definition("é\n", "f", LineSpan(2, 3), LineSpan(2, 2), 0),
        ),
        (Import("..a.b", (("c", "d"), ("e", "e"))), Import("x")),
        (Chunk(LineSpan(1, 9), 0), Chunk(LineSpan(10, 12), None)),
        "generated",
    )
    assert analysis_from_bytes(analysis_to_bytes(analysis)) == analysis


@pytest.mark.parametrize("data", [b"", b"nothing", analysis_to_bytes(FileAnalysis("text", 1))[:-3]])
def test_bytes_that_are_not_an_analysis_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        analysis_from_bytes(data)


def test_damage_is_noticed() -> None:
    data = sealed(b"something that matters")
    assert bytes(unsealed(data)) == b"something that matters"
    for at in range(len(data)):
        with pytest.raises(IndexDamaged):
            unsealed(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    for wrong in (None, b"", data[:-1], "text"):
        with pytest.raises(IndexDamaged):
            unsealed(wrong)
    parts = pack([b"one", b"", b"three"])
    assert [bytes(part) for part in unpack(parts)] == [b"one", b"", b"three"]
    for length in range(len(parts)):
        with pytest.raises(IndexDamaged):
            unpack(parts[:length])
    for wrong in (pack([b"1"]), pack([b""] * 3)):
        with pytest.raises(IndexDamaged):
            segment_from_bytes(wrong)
    assert told(segment_from_bytes(segment_to_bytes(segment([])))) == {}


def test_a_too_large_count_is_capped() -> None:
    one = segment(made([[Chunk(LineSpan(1, 1), None, {Field.BODY: {"alpha": 1_000_000}})]]))
    assert one.fields[Field.BODY].counts.tolist() == [65535]
    assert one.lengths.tolist() == [1_000_000.0]
