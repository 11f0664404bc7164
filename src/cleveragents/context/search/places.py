"""From numbers of a snapshot to places that people know: documents to paths, chunks to lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from cleveragents.context.model.context import ContextFragment
from cleveragents.context.search.bm25 import best
from cleveragents.context.search.looking import Looking

if TYPE_CHECKING:
    from cleveragents.context.search.bm25 import Scores

__all__ = ["MOST_CHUNKS", "MOST_FILES", "Places", "in_order"]

MOST_FILES = 100
"""Of one signal: what stands further down has never been what was sought."""

MOST_CHUNKS = 60


class Places:
    """Names what one strategy found in one snapshot."""

    def __init__(self, look: Looking, strategy: str) -> None:
        self._look = look
        self._strategy = strategy

    def documents(self, signal: str, scores: Scores, most: int = MOST_FILES) -> list[ContextFragment]:
        """The documents that score best, as whole files."""
        paths = self._look.paths
        return [
            ContextFragment(path, "", float(scores[document]), self._strategy, signal=signal)
            for document in best(scores, most)
            for path in paths[document]
        ]

    def chunks(self, signal: str, scores: Scores, most: int = MOST_CHUNKS) -> list[ContextFragment]:
        """The chunks that score best, as lines of files."""
        code = self._look.code
        sought = code.chunks
        chosen = best(scores, most)
        analyses = code.analyses(sorted({int(sought.document_of[chunk]) for chunk in chosen}))
        fragments: list[ContextFragment] = []
        for chunk in chosen:
            document = int(sought.document_of[chunk])
            analysis = analyses.get(document)
            if analysis is None:
                continue
            span = analysis.chunks[chunk - int(sought.first_chunk[document])].span
            score = float(scores[chunk])
            fragments.extend(
                ContextFragment(path, "", score, self._strategy, span, signal)
                for path in self._look.paths[document]
            )
        return fragments

    def files(
        self, signal: str, scores: Mapping[str, float], most: int = MOST_FILES
    ) -> list[ContextFragment]:
        """Files by path, best first."""
        ranked = sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:most]
        return [
            ContextFragment(path, "", float(score), self._strategy, signal=signal)
            for path, score in ranked
            if score > 0
        ]


def in_order(fragments: Iterable[ContextFragment]) -> list[ContextFragment]:
    """Best of each signal first, the signals taking turns: whoever keeps a part keeps some of each."""
    by_signal: dict[str, list[ContextFragment]] = {}
    for fragment in fragments:
        by_signal.setdefault(fragment.signal, []).append(fragment)
    columns = list(by_signal.values())
    longest = max(map(len, columns), default=0)
    return [column[row] for row in range(longest) for column in columns if row < len(column)]
