"""The past: commits whose messages are like the question, and files that change together with likely ones.

A commit that touched a hundred files says little of any of them, so it shares its worth among them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from cleveragents.application.ports.context import CancelSignal, ContextStrategy
from cleveragents.application.ports.context_parts import CommitHistory, PastCommit, StrategyGround
from cleveragents.domain.code_terms import terms_of
from cleveragents.domain.context import ContextFragment, ContextRequest
from cleveragents.infrastructure.context.looking import looking
from cleveragents.infrastructure.context.places import Places, in_order

__all__ = ["HistoryStrategy", "make"]

_MOST_COMMITS = 1_000
_MOST_MESSAGE = 2_000
_MOST_PATHS = 30
_MOST_ALIKE = 30
_MOST_SEEDS = 10


class HistoryStrategy:
    """It holds nothing but the snapshot and the history, which any thread may ask."""

    name = "history"

    def __init__(self, ground: StrategyGround) -> None:
        self._code = ground.code
        self._history: CommitHistory = ground.history

    def retrieve(self, request: ContextRequest, cancelled: CancelSignal) -> Sequence[ContextFragment]:
        commits = self._history.commits(self._code.place, limit=_MOST_COMMITS)
        commits = [commit for commit in commits if 0 < len(commit.paths) <= _MOST_PATHS]
        if not commits or cancelled.is_cancelled:
            return ()
        look = looking(self._code, request.question)
        present = {file.path for file in self._code.files}
        places = Places(look, self.name)
        query = {**look.queries["prose"], **look.queries["title"]}
        fragments = places.files("message", _alike(commits, query, present))
        fragments += places.files("recent", _recent(commits, present))
        if not cancelled.is_cancelled:
            likely = {
                path: float(look.likely[one])
                for one in look.contenders[:_MOST_SEEDS]
                for path in look.paths[one]
            }
            fragments += places.files("together", _together(commits, likely, present))
        return in_order(fragments)


def _alike(commits: Sequence[PastCommit], query: Mapping[str, float], present: set[str]) -> dict[str, float]:
    """Files of the commits whose messages are most like the question."""
    words = [Counter(terms_of(commit.message[:_MOST_MESSAGE])) for commit in commits]
    holders = Counter(term for counted in words for term in counted if term in query)
    scored: list[tuple[float, int]] = []
    for position, counted in enumerate(words):
        worth = sum(
            query[term] * math.log(1 + len(commits) / holders[term]) for term in counted if term in query
        )
        scored.append((worth / (1 + math.log(1 + len(counted))), position))
    scored.sort(reverse=True)
    scores: dict[str, float] = {}
    for worth, position in scored[:_MOST_ALIKE]:
        for path in commits[position].paths:
            if path in present:
                scores[path] = scores.get(path, 0.0) + worth / len(commits[position].paths) ** 0.5
    return scores


def _recent(commits: Sequence[PastCommit], present: set[str]) -> dict[str, float]:
    """How lately and how often each file changed."""
    scores: dict[str, float] = {}
    for position, commit in enumerate(commits):
        for path in commit.paths:
            if path in present:
                scores[path] = scores.get(path, 0.0) + math.exp(-position / 100)
    return scores


def _together(
    commits: Sequence[PastCommit], likely: Mapping[str, float], present: set[str]
) -> dict[str, float]:
    """Files that changed in the same commits as likely ones."""
    scores: dict[str, float] = {}
    changes = Counter(path for commit in commits for path in commit.paths)
    for commit in commits:
        for source in commit.paths:
            worth = likely.get(source, 0.0) / changes[source] / len(commit.paths)
            if worth == 0.0:
                continue
            for path in commit.paths:
                if path != source and path in present:
                    scores[path] = scores.get(path, 0.0) + worth
    return scores


def make(ground: StrategyGround) -> ContextStrategy:
    return HistoryStrategy(ground)
