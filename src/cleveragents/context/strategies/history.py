"""Commit history: files changed by commits whose messages resemble the question.

Commit messages use the language of issues and rarely name files, but the commits show which files changed. So
files are found by the commits most similar to the question, and by all messages about a file taken as one
text. Recent changes count as well, and so do files that often change together with relevant files. The score
of a commit is divided among its files, because a commit of many files says little about each of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

from cleveragents.context.context_parts import CommitHistory, PastCommit, StrategyGround
from cleveragents.context.model.code_terms import terms_of_name, words_of
from cleveragents.context.model.context import ContextFragment, ContextRequest
from cleveragents.context.model.question import COMMON_WORDS
from cleveragents.context.search.question_search import FoundPlaces, in_order, shared_search
from cleveragents.context.strategy import CancelSignal, ContextStrategy

__all__ = ["HistoryStrategy", "make"]

_MOST_COMMITS = 1_000
_MOST_MESSAGE = 1_000
_MOST_PATHS = 60
_MOST_NEAREST = 10
_MOST_SEEDS = 10
_HEAVIEST = 3.0


class HistoryStrategy:
    """Finds files by commit history. Any thread may use it: it holds only the snapshot and the history, which
    any thread may read.
    """

    name = "history"

    def __init__(self, ground: StrategyGround) -> None:
        self._code = ground.code
        self._history: CommitHistory = ground.history

    def retrieve(self, request: ContextRequest, cancelled: CancelSignal) -> Sequence[ContextFragment]:
        commits = self._history.commits(self._code.place, limit=_MOST_COMMITS)
        if not commits or cancelled.is_cancelled:
            return ()
        look = shared_search(self._code, request.question)
        past = _Past(commits, frozenset(look.source_paths))
        places = FoundPlaces(look, self.name)
        fragments: list[ContextFragment] = []
        for part in ("title", "weighed"):
            if cancelled.is_cancelled:
                break
            query = {term: min(weight, _HEAVIEST) for term, weight in look.queries[part].items()}
            alike = past.alike(query)
            fragments += places.files(f"nearest_{part}", past.nearest(alike))
            fragments += places.files(f"told_{part}", past.told(query))
        fragments += places.files("latest", past.latest())
        seeds = look.contenders[:_MOST_SEEDS]
        likely = {path: float(look.likely[one]) for one in seeds for path in look.paths[one]}
        fragments += places.files("together", past.together(likely))
        return in_order(fragments)


@lru_cache(maxsize=10_000)
def _counted(message: str) -> tuple[dict[str, int], int]:
    """Return the terms of a message and their total; cached, because later questions need them again."""
    counts: dict[str, int] = {}
    total = 0
    for word in words_of(message[:_MOST_MESSAGE]):
        if word.lower() not in COMMON_WORDS:
            for term in terms_of_name(word):
                counts[term] = counts.get(term, 0) + 1
                total += 1
    return counts, total


class _Past:
    """Commits, newest first, with their files that still exist. Not thread-safe: one per question."""

    def __init__(self, commits: Sequence[PastCommit], present: frozenset[str]) -> None:
        self._words = [_counted(commit.message) for commit in commits]
        self._paths = [
            [path for path in commit.paths if path in present] if len(commit.paths) <= _MOST_PATHS else []
            for commit in commits
        ]
        self._average = sum(length for _, length in self._words) / (len(commits) + 1) or 1.0

    def alike(self, query: Mapping[str, float]) -> list[tuple[float, int]]:
        """Return the best commits by BM25 over their messages, each with its score and position."""
        holders = Counter(term for terms, _ in self._words for term in terms.keys() & query.keys())
        total = len(self._words) + 1
        rarity = {term: math.log(1 + (total - held + 0.5) / (held + 0.5)) for term, held in holders.items()}
        scored: list[tuple[float, int]] = []
        for place, (terms, length) in enumerate(self._words):
            common = terms.keys() & rarity.keys()
            if common and self._paths[place]:
                penalty = 1.2 * (0.4 + 0.6 * length / self._average)
                score = sum(
                    rarity[term] * query[term] * terms[term] * 2.2 / (terms[term] + penalty)
                    for term in common
                )
                scored.append((score, place))
        return sorted(scored, key=lambda item: (-item[0], item[1]))[:_MOST_NEAREST]

    def nearest(self, alike: Sequence[tuple[float, int]]) -> dict[str, float]:
        """Score each file by its most similar commit."""
        scores: dict[str, float] = {}
        for score, place in alike:
            for path in self._paths[place]:
                worth = score / len(self._paths[place]) ** 0.5
                scores[path] = max(scores.get(path, 0.0), worth)
        return scores

    def told(self, query: Mapping[str, float]) -> dict[str, float]:
        """Score files by BM25 over all messages about each file, taken as one text."""
        texts: dict[str, dict[str, float]] = {}
        lengths: dict[str, float] = {}
        for (terms, length), paths in zip(self._words, self._paths, strict=True):
            common = terms.keys() & query.keys()
            share = 1 / len(paths) ** 0.5 if paths else 0.0
            for path in paths:
                lengths[path] = lengths.get(path, 0.0) + share * length
                text = texts.setdefault(path, {})
                for term in common:
                    text[term] = text.get(term, 0.0) + share * terms[term]
        holders = Counter(term for text in texts.values() for term in text)
        average = sum(lengths.values()) / max(len(lengths), 1) or 1.0
        total = len(lengths)
        scores: dict[str, float] = {}
        for path, text in texts.items():
            penalty = 1.2 * (0.5 + 0.5 * lengths[path] / average)
            scores[path] = sum(
                math.log(1 + (total - holders[term] + 0.5) / (holders[term] + 0.5))
                * query[term]
                * count
                * 2.2
                / (count + penalty)
                for term, count in text.items()
            )
        return scores

    def latest(self) -> dict[str, float]:
        """Score files by the recency of their last change."""
        scores: dict[str, float] = {}
        for place, paths in enumerate(self._paths):
            for path in paths:
                scores.setdefault(path, 1 / (1 + place / 50))
        return scores

    def together(self, likely: Mapping[str, float]) -> dict[str, float]:
        """Score files that changed in the same commits as relevant files."""
        scores: dict[str, float] = {}
        often = Counter(path for paths in self._paths for path in paths)
        for paths in self._paths:
            for source in paths:
                worth = likely.get(source, 0.0) / often[source] / len(paths)
                if worth > 0:
                    for path in paths:
                        if path != source:
                            scores[path] = scores.get(path, 0.0) + worth
        return scores


def make(ground: StrategyGround) -> ContextStrategy:
    return HistoryStrategy(ground)
