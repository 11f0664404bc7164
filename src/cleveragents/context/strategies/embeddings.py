"""Meaning rather than words: vectors that come inside a package, for what keywords find likely.

An optional extra (`cleveragents[embeddings]`); nothing is ever downloaded. Vectors of single words cannot
tell one file of thousands, but they can tell which of the likeliest is meant. So only those are looked at,
and of each the chunks that answer best.
"""

from __future__ import annotations

from collections.abc import Sequence

from cleveragents.context.context_parts import StrategyGround
from cleveragents.context.model.code import Span
from cleveragents.context.model.context import ContextFragment, ContextRequest
from cleveragents.context.search.looking import Looking, Places, in_order, looking
from cleveragents.context.search.word_vectors import vector_files, word_vectors
from cleveragents.context.strategy import CancelSignal, ContextStrategy

__all__ = ["EmbeddingsStrategy", "make", "offered"]

_MOST_FILES = 20
_MOST_PIECES = 6
_MOST_CHARACTERS = 1_000

_Piece = tuple[str, Span, str]


def offered() -> bool:
    """Whether the vectors are there."""
    return vector_files() is not None


class EmbeddingsStrategy:
    """It holds nothing but the snapshot, which any thread may ask; the vectors are only read."""

    name = "embeddings"

    def __init__(self, ground: StrategyGround) -> None:
        self._code = ground.code

    def retrieve(self, request: ContextRequest, cancelled: CancelSignal) -> Sequence[ContextFragment]:
        look = looking(self._code, request.question)
        pieces = self._pieces(look, cancelled)
        if not pieces or cancelled.is_cancelled:
            return ()
        vectors = word_vectors()
        asked = vectors.embed([f"{look.question.title}\n{look.question.prose}"[:_MOST_CHARACTERS]])[0]
        nearness = (vectors.embed([text for _, _, text in pieces]) @ asked).tolist()
        # All of them are near, so what counts is by how much nearer than the farthest.
        farthest = min(nearness)
        by_path: dict[str, float] = {}
        fragments: list[ContextFragment] = []
        for (path, span, _), near in zip(pieces, nearness, strict=True):
            by_path[path] = max(by_path.get(path, 0.0), near - farthest)
            fragments.append(ContextFragment(path, "", near - farthest, self.name, span, "piece"))
        fragments.sort(key=lambda fragment: (-fragment.score, fragment.path))
        return in_order([*Places(look, self.name).files("file", by_path), *fragments[:_MOST_FILES]])

    def _pieces(self, look: Looking, cancelled: CancelSignal) -> list[_Piece]:
        """The best chunks of the likeliest files, with their text."""
        sought = self._code.chunks
        scores = look.chunk_scores("weighed")
        documents = look.contenders[:_MOST_FILES]
        analyses = self._code.analyses(documents)
        pieces: list[_Piece] = []
        for document in documents:
            if document not in analyses or cancelled.is_cancelled:
                continue
            path = look.paths[document][0]
            lines = look.text(path).split("\n")
            first = int(sought.first_chunk[document])
            chunks = range(first, int(sought.first_chunk[document + 1]))
            for chunk in sorted(chunks, key=lambda one: -float(scores[one]))[:_MOST_PIECES]:
                span = analyses[document].chunks[chunk - first].span
                text = "\n".join(lines[span.first - 1 : span.last])[:_MOST_CHARACTERS]
                pieces.append((path, span, text))
        return pieces


def make(ground: StrategyGround) -> ContextStrategy:
    return EmbeddingsStrategy(ground)
