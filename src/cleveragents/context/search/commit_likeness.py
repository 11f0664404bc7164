"""Which commits are about what a question asks, by the words of their messages."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from cleveragents.context.context_parts import PastCommit
from cleveragents.context.model.code_terms import terms_of

__all__ = ["most_alike"]

_MOST_COMPARED = 2_000


def most_alike(
    commits: Sequence[PastCommit], query: Mapping[str, float], *, most: int
) -> list[tuple[float, PastCommit]]:
    """The commits that share terms with the query, the most alike first, each with how much.

    `query` has the weight of each term. A term is worth more the fewer messages have it, and a long message
    has to share more of them.
    """
    words = [Counter(terms_of(commit.message[:_MOST_COMPARED])) for commit in commits]
    holders = Counter(term for counted in words for term in counted if term in query)
    scored: list[tuple[float, int]] = []
    for position, counted in enumerate(words):
        worth = sum(
            query[term] * math.log(1 + len(commits) / holders[term]) for term in counted if term in query
        )
        if worth > 0:
            scored.append((worth / (1 + math.log(1 + len(counted))), -position))
    scored.sort(reverse=True)  # of two as much alike, the newer one
    return [(worth, commits[-position]) for worth, position in scored[:most]]
