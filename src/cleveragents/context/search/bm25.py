"""BM25 over chunks and documents, for many queries with the same terms.

The score of an occurrence is the weight of its term in the query, times a factor that does not depend on the
query. These factors are computed once, and each query is one pass over them. All operations use whole arrays:
a dozen queries for an issue of three hundred words take milliseconds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleveragents.context.code_index import CodeSnapshot, Postings
from cleveragents.context.model.code import Field

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Scores = NDArray[np.float32]

__all__ = ["Bm25Table", "Corpus", "Occurrences", "best", "pooled"]


class Corpus:
    """A subset of a snapshot's documents with its own term rarity and average length.

    Immutable; any thread may use it.
    """

    def __init__(self, code: CodeSnapshot, documents: Collection[int] | None = None) -> None:
        import numpy as np

        sought = code.chunks
        self.document_count = max(len(sought.first_chunk) - 1, 0)
        self.chunk_count = len(sought.document_of)
        kept = np.zeros(self.document_count, dtype=bool)
        kept[:] = documents is None
        if documents:
            kept[np.fromiter(documents, dtype=np.int64, count=len(documents))] = True
        self.document_of = sought.document_of
        self.kept_chunks = kept[sought.document_of]
        self.chunk_lengths = np.where(self.kept_chunks, sought.lengths, np.float32(0))
        lengths = np.bincount(sought.document_of, weights=self.chunk_lengths, minlength=self.document_count)
        self.document_lengths = lengths.astype(np.float32)

    def find(self, code: CodeSnapshot, field: Field, terms: Sequence[str]) -> Occurrences:
        """Return the occurrences of these terms, in the order of `terms`."""
        return self.among(code.postings(field, sorted(set(terms))), terms)

    def among(self, postings: Mapping[str, Postings], terms: Sequence[str]) -> Occurrences:
        """Return the occurrences within this corpus."""
        import numpy as np

        numbers: list[NDArray[np.int32]] = []
        chunks: list[NDArray[np.int32]] = []
        counts: list[Scores] = []
        for number, term in enumerate(terms):
            found = postings.get(term)
            if found is None:
                continue
            kept = self.kept_chunks[found.chunks]
            chunks.append(found.chunks[kept])
            counts.append(found.counts[kept])
            numbers.append(np.full(len(chunks[-1]), number, dtype=np.int32))
        if not chunks:
            nothing = np.zeros(0, dtype=np.int32)
            return Occurrences(tuple(terms), nothing, nothing, nothing.astype(np.float32))
        return Occurrences(
            tuple(terms), np.concatenate(numbers), np.concatenate(chunks), np.concatenate(counts)
        )


@dataclass(frozen=True, slots=True)
class Occurrences:
    """The occurrences of terms: the term, the chunk and the count of each. Ordered by term, then chunk."""

    terms: tuple[str, ...]
    term: NDArray[np.int32]
    chunk: NDArray[np.int32]
    count: Scores

    def joined(self, other: Occurrences, weight: float) -> Occurrences:
        """Combine the occurrences of the same terms; those of `other` count `weight` times."""
        import numpy as np

        term = np.concatenate((self.term, other.term))
        chunk = np.concatenate((self.chunk, other.chunk))
        count = np.concatenate((self.count, np.float32(weight) * other.count))
        order = np.lexsort((chunk, term))
        return Occurrences(self.terms, term[order], chunk[order], count[order])


class Bm25Table:
    """Weighted occurrences in chunks or whole documents.

    `k1` limits the effect of repetition, and `b` sets the penalty for long texts. Immutable; any thread may
    use it.
    """

    def __init__(
        self, corpus: Corpus, found: Occurrences, *, documents: bool, k1: float = 1.2, b: float = 0.75
    ) -> None:
        import numpy as np

        lengths = corpus.document_lengths if documents else corpus.chunk_lengths
        unit = corpus.document_of[found.chunk] if documents else found.chunk
        term, unit, count = _summed(found.term, unit, found.count)
        population = max(int((lengths > 0).sum()), 1)
        holders = np.bincount(term, minlength=len(found.terms))
        self.rarity = np.log(1 + (population - holders + 0.5) / (holders + 0.5)).astype(np.float32)
        average = max(float(lengths.sum()) / population, 1.0)
        penalty = k1 * (1 - b + b * lengths[unit] / average)
        self._numbers = {name: number for number, name in enumerate(found.terms)}
        self._size = len(lengths)
        self._term = term
        self._unit = unit
        self._value = self.rarity[term] * count * (k1 + 1) / (count + penalty)

    def scores(self, query: Mapping[str, float]) -> Scores:
        """Return the score of each chunk or document; zero if it contains no term of the query."""
        return self._sums(self._weights(query)[self._term] * self._value)

    def coverage(self, query: Mapping[str, float]) -> Scores:
        """Return, for each chunk or document, the share of the query's terms that occur in it, weighted by
        rarity.
        """
        weights = self._weights(query) * self.rarity
        total = float(weights.sum()) or 1.0
        return self._sums(weights[self._term]) / total

    def _weights(self, query: Mapping[str, float]) -> Scores:
        import numpy as np

        weights = np.zeros(len(self._numbers), dtype=np.float32)
        known = [(self._numbers[term], weight) for term, weight in query.items() if term in self._numbers]
        for number, weight in known:
            weights[number] = weight
        return weights

    def _sums(self, values: Scores) -> Scores:
        import numpy as np

        return np.bincount(self._unit, weights=values, minlength=self._size).astype(np.float32)


def _summed(
    term: NDArray[np.int32], unit: NDArray[np.int32], count: Scores
) -> tuple[NDArray[np.int32], NDArray[np.int32], Scores]:
    """Return one row for each term and unit, with the sum of the counts. The input is sorted, so equal pairs
    are adjacent.
    """
    import numpy as np

    if not len(term):
        return term, unit, count
    changes = (term[1:] != term[:-1]) | (unit[1:] != unit[:-1])
    starts = np.flatnonzero(np.concatenate((np.ones(1, dtype=bool), changes)))
    return term[starts], unit[starts], np.add.reduceat(count, starts)


def pooled(corpus: Corpus, scores: Scores, shares: tuple[float, ...] = (1.0, 0.5, 0.25)) -> Scores:
    """Return the sum of each document's best chunk scores, each further chunk counting less."""
    import numpy as np

    totals = np.zeros(corpus.document_count, dtype=np.float32)
    hits = np.flatnonzero(scores > 0)
    if not len(hits):
        return totals
    owners = corpus.document_of[hits]
    order = np.lexsort((-scores[hits], owners))
    hits, owners = hits[order], owners[order]
    starts = np.flatnonzero(np.concatenate((np.ones(1, dtype=bool), owners[1:] != owners[:-1])))
    place = np.arange(len(hits)) - np.repeat(starts, np.diff(np.append(starts, len(hits))))
    for position, share in enumerate(shares):
        there = place == position
        totals[owners[there]] += np.float32(share) * scores[hits[there]]
    return totals


def best(scores: Scores, most: int) -> list[int]:
    """Return the positions of the highest positive scores, best first; ties in order."""
    import numpy as np

    hits = np.flatnonzero(scores > 0)
    if len(hits) > most:
        threshold = np.partition(scores[hits], len(hits) - most)[len(hits) - most]
        hits = hits[scores[hits] >= threshold]
    order = np.argsort(-scores[hits], kind="stable")[:most]
    return [int(position) for position in hits[order]]
